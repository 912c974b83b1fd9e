/* A worker whose tensors lie in memory of hvd_alloc_device, or in the way that the word says. Each is summed,
 * with other numbers each time. Prints "rank N: all right" at the end, and what the case wants to know.
 *
 *   gpu_arena alike      at the same places on all ranks: NCCL is to know it
 *   gpu_arena mixed      at other places, beside other memory, not on all ranks: then never
 *   gpu_arena pending    freed between a call and its wait
 *   gpu_arena late       freed while the stream has yet to come to the operation
 *   gpu_arena left       left for hvd_shutdown, one piece freed while a rank lacks
 *   gpu_arena small      a thousand small ones at once
 *   gpu_arena none       says why there is none */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"

#define COUNT 1000
#define BYTES sizeof(int32_t[COUNT])
#define LARGE (64 << 10) /* from here on NCCL is told of it */
#define SMALL 1000       /* tensors */

static hvd_options options;
static int rank, size, calls;

/* It is zeroed. */
static int32_t *memory(size_t bytes)
{
    int32_t x[COUNT], *p = hvd_alloc_device(bytes);

    if (!p)
        wrong("no memory: %s", hvd_last_error());
    gpu_get(x, p, bytes < sizeof x ? bytes : sizeof x);
    for (size_t i = 0; i < COUNT && i < bytes / 4; i++)
        if (x[i] != 0)
            wrong("element %zu of new memory is %d", i, x[i]);
    return p;
}

static int32_t *arena(size_t bytes)
{
    return memory(bytes + LARGE);
}

static void fill(int32_t *gpu, int32_t x[COUNT])
{
    calls++;
    for (int i = 0; i < COUNT; i++)
        x[i] = i + calls * (rank + 1);
    gpu_put(gpu, x, BYTES);
}

static void compare(const int32_t *gpu)
{
    int32_t x[COUNT];

    gpu_get(x, gpu, sizeof x);
    for (int i = 0; i < COUNT; i++)
        if (x[i] != size * i + calls * size * (size + 1) / 2)
            wrong("call %d: element %d is %d", calls, i, x[i]);
}

static void sum(int32_t *in, int32_t *out)
{
    int32_t x[COUNT];

    fill(in, x);
    must(hvd_allreduce("x", in, out, COUNT, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    compare(out);
}

/* After the first one the ranks have a communicator; small groups may come by other memory. */
static void alike(void)
{
    int32_t *in = arena(4 * BYTES), *out = arena(3 * BYTES);

    sum(in, out);
    for (int i = 0; i < 4; i++)
        sum(in + i * COUNT, i % 2 ? out + COUNT : in + i * COUNT);
    hvd_free(in);
    in = arena(2 * BYTES);
    sum(in + COUNT, out);
    hvd_free(in);
    hvd_free(out);
    must(hvd_barrier(NULL), "hvd_barrier");
    gpu_pause(0); /* the case looks what was before */
}

static void mixed(void)
{
    int32_t *known = arena(4 * BYTES), *other = gpu_alloc(4 * BYTES);

    sum(other, other);
    for (int i = 0; i < 3; i++) {
        sum(rank == 0 ? known : other, rank == 0 ? known : other);
        sum(known, other);
        sum(known + (rank == 0 ? 0 : COUNT), known + (rank == 0 ? 0 : COUNT));
        sum(known, known + (rank == 0 ? COUNT : 2 * COUNT));
    }
    hvd_free(known);
    gpu_free(other);
}

static hvd_handle begin(int32_t *at, int32_t x[COUNT])
{
    hvd_handle handle;

    fill(at, x);
    must(hvd_allreduce_async("x", at, at, COUNT, HVD_INT32, HVD_SUM, &options, &handle),
         "hvd_allreduce_async");
    return handle;
}

static void pending(void)
{
    int32_t x[COUNT], *other = arena(BYTES);

    for (int i = 0; i < 4; i++) {
        int32_t *at = arena(BYTES), *idle = arena(BYTES);
        sum(idle, at);
        usleep(rank == 1 ? 30000 : 0); /* so that it lacks */
        hvd_handle handle = begin(at, x);
        hvd_free(at);
        hvd_free(at); /* is ignored */
        usleep(i % 2 ? 2000 : 0);
        hvd_free(idle); /* while NCCL may be told of the other one */
        must(hvd_wait(handle), "hvd_wait");
        gpu_wait();
    }
    sum(other, other);
    hvd_free(other);
}

/* The worker's stream does nothing with it, but the library's waits for that stream. */
static void late(void)
{
    for (int i = 0; i < 3; i++) {
        int32_t x[COUNT], *at = arena(BYTES);
        sum(at, at);
        fill(at, x);
        gpu_wait();
        gpu_pause(30);
        must(hvd_allreduce("x", at, at, COUNT, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
        hvd_free(at);
    }
}

static void left(void)
{
    int32_t *at = arena(BYTES), *more = arena(BYTES);

    sum(at, at);
    sum(more, at);
}

static void small(void)
{
    int32_t *at[SMALL];

    for (int i = 0; i < SMALL; i++)
        at[i] = memory(i % 100 ? BYTES : LARGE - 1);
    sum(at[1], at[2]);
    sum(at[100], at[0]);
    for (int i = 0; i < SMALL; i++)
        hvd_free(at[i]);
}

int main(int argc, char **argv)
{
    const char *word = argc == 2 ? argv[1] : "";

    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    if (strcmp(word, "none") == 0) {
        if (hvd_alloc_device(100))
            wrong("there is memory");
        printf("rank %d: %s\n", rank, hvd_last_error());
        must(hvd_shutdown(), "hvd_shutdown");
        return 0;
    }
    gpu_open();
    options.stream = gpu_stream();
    if (strcmp(word, "alike") == 0)
        alike();
    else if (strcmp(word, "mixed") == 0)
        mixed();
    else if (strcmp(word, "pending") == 0)
        pending();
    else if (strcmp(word, "late") == 0)
        late();
    else if (strcmp(word, "left") == 0)
        left();
    else if (strcmp(word, "small") == 0)
        small();
    else
        wrong("usage: gpu_arena alike | mixed | pending | late | left | small | none");
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
