/* A worker that does every kind of operation with ragged sizes and compares each result with what it computes
 * itself. Prints "rank N: all right" at the end; the first difference ends it with status 1.
 *
 *   kinds ROUNDS BYTES     BYTES: about the largest contribution of a rank */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/rows.h"
#include "tests/e2e/worker.h"

#define ROW 3

static int rank, size;
static size_t largest; /* rows */

static void *memory(size_t bytes)
{
    void *p = worker_round % 2 ? hvd_alloc(bytes ? bytes : 1) : calloc(1, bytes ? bytes : 1);

    if (!p)
        wrong("no memory");
    return p;
}

static void release(void *p)
{
    if (worker_round % 2)
        hvd_free(p);
    else
        free(p);
}

static size_t rows_of(int a, int b)
{
    return rows_up_to(largest, a, b);
}

static void allgather(void)
{
    size_t mine = rows_of(rank, 0), total = 0, *rows = calloc((size_t)size, sizeof *rows), at = 0;

    for (int i = 0; i < size; i++)
        total += rows_of(i, 0);
    int32_t *in = memory(mine * ROW * 4), *out = memory(total * ROW * 4);
    for (size_t k = 0; k < mine * ROW; k++)
        in[k] = element(rank, 0, k);
    must(hvd_allgather("gather", in, mine, ROW, HVD_INT32, out, total, rows, NULL), "allgather");
    for (int i = 0; i < size; i++) {
        if (rows[i] != rows_of(i, 0))
            wrong("allgather: rank %d gave %zu rows, not %zu", i, rows_of(i, 0), rows[i]);
        for (size_t k = 0; k < rows[i] * ROW; k++, at++)
            check("allgather", out, at, element(i, 0, k));
    }
    release(in);
    release(out);
    free(rows);
}

static void alltoall(void)
{
    size_t *splits = calloc((size_t)size, sizeof *splits), *received = calloc((size_t)size, sizeof *received);
    size_t send = 0, get = 0, at = 0;

    for (int i = 0; i < size; i++) {
        send += splits[i] = rows_of(rank, i);
        get += rows_of(i, rank);
    }
    int32_t *in = memory(send * ROW * 4), *out = memory(get * ROW * 4);
    for (int i = 0; i < size; i++)
        for (size_t k = 0; k < splits[i] * ROW; k++)
            in[at++] = element(rank, i, k);
    must(hvd_alltoall("pairs", in, send, splits, ROW, HVD_INT32, out, get, received, NULL), "alltoall");
    at = 0;
    for (int i = 0; i < size; i++) {
        if (received[i] != rows_of(i, rank))
            wrong("alltoall: rank %d gave me %zu rows, not %zu", i, rows_of(i, rank), received[i]);
        for (size_t k = 0; k < received[i] * ROW; k++, at++)
            check("alltoall", out, at, element(i, rank, k));
    }
    release(in);
    release(out);
    free(splits);
    free(received);
}

static int32_t sum_at(size_t k)
{
    int32_t sum = 0;

    for (int i = 0; i < size; i++)
        sum += element(i, 0, k);
    return sum;
}

static void reducescatter(void)
{
    size_t rows = rows_of(0, 0), n = (size_t)size, mine = rows / n + ((size_t)rank < rows % n), first = 0;
    int32_t *in = memory(rows * ROW * 4), *out = memory(mine * ROW * 4);

    for (int i = 0; i < rank; i++)
        first += rows / n + ((size_t)i < rows % n);
    for (size_t k = 0; k < rows * ROW; k++)
        in[k] = element(rank, 0, k);
    must(hvd_reducescatter("scatter", in, rows, ROW, HVD_INT32, HVD_SUM, out, NULL), "reducescatter");
    for (size_t k = 0; k < mine * ROW; k++)
        check("reducescatter", out, k, sum_at(first * ROW + k));
    for (size_t k = 0; k < rows * ROW; k++)
        check("reducescatter's input", in, k, element(rank, 0, k));
    release(in);
    release(out);
}

/* Whole numbers that float16 holds: the same with compression and without. The scales are powers of two. */
static void allreduce(hvd_compression compression, const char *name)
{
    const hvd_options options = {.prescale = 0.5, .postscale = 4, .compression = compression};
    size_t n = rows_of(0, 1) * ROW;
    float *in = memory(n * 4), *out = memory(n * 4);

    for (size_t k = 0; k < n; k++)
        in[k] = (float)element(rank, 0, k);
    must(hvd_allreduce(name, in, out, n, HVD_FLOAT32, HVD_SUM, &options), name);
    for (size_t k = 0; k < n; k++)
        if (out[k] != 2 * (float)sum_at(k))
            wrong("%s: element %zu is %g, not %d", name, k, (double)out[k], 2 * sum_at(k));
    release(in);
    release(out);
}

static void broadcast(void)
{
    int root = worker_round % size;
    size_t n = rows_of(root, 2) * ROW;
    int32_t *data = memory(n * 4);

    for (size_t k = 0; k < n; k++)
        data[k] = element(rank, 1, k);
    must(hvd_broadcast("cast", data, n, HVD_INT32, root, NULL), "broadcast");
    for (size_t k = 0; k < n; k++)
        check("broadcast", data, k, element(root, 1, k));
    release(data);
}

/* Nothing is combined: the root's elements come as they are, and stay as they are, whatever is asked for. */
static void exact_broadcast(void)
{
    const hvd_options options = {.compression = HVD_COMPRESSION_FLOAT16};
    int root = worker_round % size;
    size_t n = rows_of(root, 2) * ROW;
    float *data = memory(n * 4);

    for (size_t k = 0; k < n; k++)
        data[k] = (float)element(rank, 1, k) / 3;
    must(hvd_broadcast("exact", data, n, HVD_FLOAT32, root, &options), "broadcast with compression");
    for (size_t k = 0; k < n; k++)
        if (data[k] != (float)element(root, 1, k) / 3)
            wrong("broadcast with compression: element %zu is %g", k, (double)data[k]);
    release(data);
}

/* Thirds, which nothing holds exactly: near enough, and the same bits on every rank. */
static void lossy(hvd_compression compression, const char *name)
{
    const hvd_options options = {.compression = compression};
    const float step = compression == HVD_COMPRESSION_FLOAT16 ? 1.0f / 1024 : 1.0f / 128;
    size_t n = rows_of(0, 2) * ROW;
    float *in = memory(n * 4), *out = memory(n * 4);
    int32_t *low = memory(n * 4), *high = memory(n * 4);

    for (size_t k = 0; k < n; k++)
        in[k] = (float)(element(rank, 0, k) + 31) / 3;
    must(hvd_allreduce(name, in, out, n, HVD_FLOAT32, HVD_AVERAGE, &options), name);
    for (size_t k = 0; k < n; k++) {
        float want = ((float)sum_at(k) / (float)size + 31) / 3;
        if (!(out[k] > want * (1 - 2 * step) && out[k] < want * (1 + 2 * step)))
            wrong("%s: element %zu is %g, not about %g", name, k, (double)out[k], (double)want);
    }
    must(hvd_allreduce("low", (int32_t *)(void *)out, low, n, HVD_INT32, HVD_MIN, NULL), "low");
    must(hvd_allreduce("high", (int32_t *)(void *)out, high, n, HVD_INT32, HVD_MAX, NULL), "high");
    if (n > 0 && memcmp(low, high, n * 4) != 0)
        wrong("%s: the ranks' bits differ", name);
    release(in);
    release(out);
    release(low);
    release(high);
}

/* The same of a reducescatter, whose parts were on the wire what allreduce's elements are: nothing finer is
 * left. */
static void lossy_scatter(hvd_compression compression)
{
    const hvd_options options = {.compression = compression};
    const bool half = compression == HVD_COMPRESSION_FLOAT16;
    const float step = half ? 1.0f / 1024 : 1.0f / 128;
    const uint32_t fine = half ? (1u << 13) - 1 : (1u << 16) - 1;
    size_t rows = rows_of(2, 0), n = (size_t)size, me = (size_t)rank, mine = rows / n + (me < rows % n);
    size_t first = rows / n * me + (me < rows % n ? me : rows % n);
    float *in = memory(rows * ROW * 4), *out = memory(mine * ROW * 4);

    for (size_t k = 0; k < rows * ROW; k++)
        in[k] = (float)(element(rank, 0, k) + 31) / 3;
    must(hvd_reducescatter("lossy parts", in, rows, ROW, HVD_FLOAT32, HVD_AVERAGE, out, &options),
         "lossy parts");
    for (size_t k = 0; k < mine * ROW; k++) {
        float want = ((float)sum_at(first * ROW + k) / (float)size + 31) / 3;
        uint32_t bits;
        memcpy(&bits, &out[k], sizeof bits);
        if (!(out[k] > want * (1 - 2 * step) && out[k] < want * (1 + 2 * step)))
            wrong("lossy parts: element %zu is %g, not about %g", k, (double)out[k], (double)want);
        if (hvd_local_size() != size && (bits & fine))
            wrong("lossy parts: element %zu was not compressed: %08x", k, bits);
    }
    release(in);
    release(out);
}

static void shared_result(void)
{
    size_t n = rows_of(1, 2) * ROW;
    int32_t *in = memory(n * 4);
    const void *result;

    for (size_t k = 0; k < n; k++)
        in[k] = element(rank, 0, k);
    must(hvd_allreduce_shared("shared", in, n, HVD_INT32, HVD_SUM, NULL, &result), "a shared result");
    for (size_t k = 0; k < n; k++)
        check("a shared result", result, k, sum_at(k));
    must(hvd_barrier(NULL), "barrier");
    release(in);
}

static void group(void)
{
    size_t counts[3] = {rows_of(1, 1), 5, rows_of(2, 1)};
    int32_t *in[3], *out[3];

    for (int i = 0; i < 3; i++) {
        in[i] = memory(counts[i] * 4);
        out[i] = memory(counts[i] * 4);
        for (size_t k = 0; k < counts[i]; k++)
            in[i][k] = element(rank, 0, k + (size_t)i);
    }
    must(hvd_grouped_allreduce("group", 3, (const void *const *)in, (void *const *)out, counts, HVD_INT32,
                               HVD_SUM, NULL),
         "a group");
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < counts[i]; k++)
            check("a group", out[i], k, sum_at(k + (size_t)i));
        release(in[i]);
        release(out[i]);
    }
}

/* One rank has no room: everybody is told so, in the same words, and goes on. */
static void no_room(void)
{
    int32_t in[2 * ROW] = {0}, out[64 * ROW];
    size_t room = rank == size - 1 ? 1 : 64, splits[64] = {0};
    char want[80];

    for (int i = 0; i < size; i++)
        splits[i] = i == size - 1;
    snprintf(want, sizeof want, "rank %d has room for 1 rows", size - 1);
    if (hvd_allgather("full", in, 2, ROW, HVD_INT32, out, room, NULL, NULL) != HVD_ERR_MISMATCH ||
        !strstr(hvd_last_error(), want))
        wrong("an allgather without room");
    if (hvd_alltoall("crowded", in, 1, splits, ROW, HVD_INT32, out, room, NULL, NULL) != HVD_ERR_MISMATCH ||
        !strstr(hvd_last_error(), want))
        wrong("an alltoall without room");
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtoul(argv[1], NULL, 10) : 8;

    largest = (argc > 2 ? strtoul(argv[2], NULL, 10) : 100000) / (4 * ROW);
    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    for (worker_round = 0; worker_round < rounds; worker_round++) {
        allgather();
        alltoall();
        reducescatter();
        allreduce(HVD_COMPRESSION_NONE, "plain");
        allreduce(HVD_COMPRESSION_FLOAT16, "float16");
        allreduce(HVD_COMPRESSION_BFLOAT16, "bfloat16");
        lossy(HVD_COMPRESSION_FLOAT16, "half");
        lossy(HVD_COMPRESSION_BFLOAT16, "upper half");
        lossy_scatter(HVD_COMPRESSION_FLOAT16);
        lossy_scatter(HVD_COMPRESSION_BFLOAT16);
        broadcast();
        exact_broadcast();
        shared_result();
        group();
        no_room();
        must(hvd_barrier(NULL), "barrier");
        if (worker_round == 0 && rank == 0)
            printf("the first round is over\n"), fflush(stdout);
    }
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
