/* A worker that has many tensors of several kinds in flight at once, so that they travel between hosts as
 * one, and compares the bits of each result with those of the same tensor alone. Prints "rank N: all right".
 *
 *   fused ROUNDS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/worker.h"

#define TENSORS 60

struct tensor {
    char name[16];
    size_t count, bytes;
    hvd_dtype dtype;
    hvd_options options;
    void *in, *alone, *out;
    hvd_handle handle;
};

static int rank;
static struct tensor tensors[TENSORS];

static void make(struct tensor *t, int i)
{
    static const hvd_dtype dtype[] = {HVD_FLOAT32, HVD_FLOAT32, HVD_FLOAT64, HVD_INT32};
    static const size_t size[] = {4, 4, 8, 4};

    snprintf(t->name, sizeof t->name, "t.%d", i);
    t->dtype = dtype[i % 4];
    t->count = (size_t)(1 + i * 97 % 1000 + (i % 3) * 9001);
    t->bytes = t->count * size[i % 4];
    if (i % 8 == 4)
        t->options.compression = HVD_COMPRESSION_FLOAT16;
    if (i % 8 == 2)
        t->options.postscale = 0.3;
    t->in = malloc(t->bytes);
    t->alone = malloc(t->bytes);
    t->out = i % 2 ? malloc(t->bytes) : hvd_alloc(t->bytes);
    if (!t->in || !t->alone || !t->out)
        exit(1);
}

/* Sums of these depend on their order. */
static void fill(struct tensor *t, int i, int round)
{
    for (size_t j = 0; j < t->count; j++) {
        double x = (rank % 2 ? 1 : 1000) / (double)((int)j + i + round + 3) + rank;
        if (t->dtype == HVD_FLOAT32)
            ((float *)t->in)[j] = (float)x;
        else if (t->dtype == HVD_FLOAT64)
            ((double *)t->in)[j] = x;
        else
            ((int *)t->in)[j] = (int)(x * 1000);
    }
}

static void one_round(int round)
{
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &tensors[i];
        fill(t, i, round);
        must(hvd_allreduce(t->name, t->in, t->alone, t->count, t->dtype, HVD_SUM, &t->options), t->name);
    }
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &tensors[(i + rank * 7) % TENSORS];
        must(
            hvd_allreduce_async(t->name, t->in, t->out, t->count, t->dtype, HVD_SUM, &t->options, &t->handle),
            t->name);
    }
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &tensors[i];
        must(hvd_wait(t->handle), t->name);
        if (memcmp(t->out, t->alone, t->bytes) != 0)
            wrong("%s has other bits than alone", t->name);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;

    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    for (int i = 0; i < TENSORS; i++)
        make(&tensors[i], i);
    for (worker_round = 0; worker_round < rounds; worker_round++)
        one_round(worker_round);
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
