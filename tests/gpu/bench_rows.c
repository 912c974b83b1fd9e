/* The rows of hvd_gpu_bench. Direct NCCL and hvd take turns, so that what else happens on the machine meets
 * both; a row is the median of its pairs. The times are rank 0's: an operation ends for all ranks alike. */
#include "tests/gpu/bench.h"

#include <stdio.h>
#include <stdlib.h>

#define LAYERS     16           /* of a step */
#define LAYER_MB   2            /* of each one's gradient */
#define TURNS      20000        /* of the kernel that computes a layer */
#define ADDED_US   10           /* the most that hvd may add to a call of NCCL */
#define SMALL_RUNS 200          /* 4 B operations of a pair */
#define RUN_BYTES  (1ull << 30) /* of a pair, about */
#define WARM_RUNS  8            /* before the first pair: blocks of host memory are made at their first use */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *of, int n)
{
    qsort(of, (size_t)n, sizeof *of, by_size);
    return n % 2 ? of[n / 2] : (of[n / 2 - 1] + of[n / 2]) / 2;
}

double bench_compare(struct bench *b, bench_timed *direct, bench_timed *hvd, size_t bytes, int runs,
                     double *of_direct, double *of_hvd)
{
    double d[PAIRS_MAX] = {0}, h[PAIRS_MAX] = {0}, ratio[PAIRS_MAX] = {0};

    if (b->few)
        runs = (runs + 9) / 10;
    int before = runs < WARM_RUNS ? runs : WARM_RUNS;
    bench_begin_row(b);
    direct(b, bytes, before);
    hvd(b, bytes, before);
    for (int i = 0; i < b->pairs; i++) {
        d[i] = direct(b, bytes, runs);
        h[i] = hvd(b, bytes, runs);
        ratio[i] = h[i] / d[i];
    }
    *of_direct = median(d, b->pairs) / runs;
    *of_hvd = median(h, b->pairs) / runs;
    return median(ratio, b->pairs);
}

void bench_start(struct bench *b)
{
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    bench_check(hvd_barrier(NULL), "hvd_barrier");
}

void *bench_at(const struct bench *b, size_t offset)
{
    return (void *)(uintptr_t)(b->memory + offset);
}

void bench_in_stream(struct bench *b)
{
    nccl_result state = NCCL_IN_PROGRESS;

    while (state == NCCL_IN_PROGRESS)
        bench_nccl(b, b->nccl->ncclCommGetAsyncError(b->comm, &state), "ncclAllReduce");
    bench_nccl(b, state, "ncclAllReduce");
}

static void reduce_direct(struct bench *b, size_t offset, size_t bytes, cu_stream stream)
{
    bench_nccl(b,
               b->nccl->ncclAllReduce(bench_at(b, offset), bench_at(b, offset), bytes / sizeof(float),
                                      NCCL_FLOAT32, NCCL_SUM, b->comm, stream),
               "ncclAllReduce");
    bench_in_stream(b);
}

/* ---- allreduce by size --------------------------------------------------------------------------------- */

static double many_direct(struct bench *b, size_t bytes, int runs)
{
    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++)
        reduce_direct(b, 0, bytes, b->work);
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    return bench_now_us() - since;
}

static double many_in(struct bench *b, void *at, size_t bytes, int runs)
{
    hvd_options options = {.stream = b->work};

    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++)
        bench_check(
            hvd_allreduce("bench.many", at, at, bytes / sizeof(float), HVD_FLOAT32, HVD_SUM, &options),
            "hvd_allreduce");
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    return bench_now_us() - since;
}

static double many_hvd(struct bench *b, size_t bytes, int runs)
{
    return many_in(b, bench_at(b, 0), bytes, runs);
}

static double many_known(struct bench *b, size_t bytes, int runs)
{
    return many_in(b, b->known, bytes, runs);
}

/* Direct NCCL's is the driver's memory both times; hvd's that, or hvd_alloc_device's. */
void row_allreduce(struct bench *b, size_t bytes, bool known)
{
    int runs = (int)(RUN_BYTES / bytes);
    double direct, hvd, bus = 2.0 * (b->size - 1) / b->size * (double)bytes / 1e3; /* us to GB/s */
    double ratio = bench_compare(b, many_direct, known ? many_known : many_hvd, bytes,
                                 runs < 4     ? 4
                                 : runs > 400 ? 400
                                              : runs,
                                 &direct, &hvd);
    char what[64];

    /* With one rank NCCL has nothing to do in place, so no ratio says anything. */
    bool alone = b->size == 1;
    snprintf(what, sizeof what, known ? "%zu KiB, hvd_alloc_device" : "allreduce %zu KiB", bytes >> 10);
    bench_line(b, what, direct, hvd, "us", alone ? hvd - direct : ratio, alone ? "us added" : "times as long",
               alone                ? ADDED_US
               : bytes >= 64u << 20 ? 1 / 0.97
                                    : 2);
    if (b->rank == 0 && b->size > 1)
        printf("%-28s %10.2f %10.2f %-5s\n", "  bus bandwidth", bus / direct, bus / hvd, "GB/s");
}

/* ---- time added to 4 B --------------------------------------------------------------------------------- */

static double each_direct(struct bench *b, size_t bytes, int runs)
{
    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++) {
        reduce_direct(b, 0, bytes, b->work);
        bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    }
    return bench_now_us() - since;
}

/* NCCL says when it is in the stream by returning. */
static double each_blocking(struct bench *b, size_t bytes, int runs)
{
    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++) {
        bench_nccl(b,
                   b->nccl->ncclAllReduce(bench_at(b, 0), bench_at(b, 0), bytes / sizeof(float), NCCL_FLOAT32,
                                          NCCL_SUM, b->blocking, b->work),
                   "ncclAllReduce");
        bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    }
    return bench_now_us() - since;
}

static double each_hvd(struct bench *b, size_t bytes, int runs)
{
    hvd_options options = {.stream = b->work};

    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++) {
        bench_check(hvd_allreduce("bench.each", bench_at(b, 0), bench_at(b, 0), bytes / sizeof(float),
                                  HVD_FLOAT32, HVD_SUM, &options),
                    "hvd_allreduce");
        bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    }
    return bench_now_us() - since;
}

void row_latency(struct bench *b)
{
    double direct, hvd;

    bench_compare(b, each_direct, each_hvd, sizeof(float), SMALL_RUNS, &direct, &hvd);
    bench_line(b, "4 B, each waited for", direct, hvd, "us", hvd - direct, "us added", ADDED_US);
    bench_compare(b, each_blocking, each_hvd, sizeof(float), SMALL_RUNS, &direct, &hvd);
    bench_line(b, "4 B, beside blocking NCCL", direct, hvd, "us", hvd - direct, "us added", ADDED_US);
}

/* ---- a training step ----------------------------------------------------------------------------------- */

static void compute_layer(struct bench *b)
{
    unsigned long long out = b->memory, turns = TURNS;
    void *parameter[] = {&out, &turns};

    bench_cuda(b,
               b->driver->cuLaunchKernel(b->compute, (unsigned)b->processors * 4, 1, 1, 256, 1, 1, 0, b->work,
                                         parameter, NULL),
               "cuLaunchKernel");
}

/* As a trainer without hvd does it: a second stream that follows the first layer by layer. */
static double step_direct(struct bench *b, size_t bytes, int runs)
{
    const struct driver *d = b->driver;
    cu_event event;

    bench_cuda(b, d->cuEventCreate(&event, CU_EVENT_NO_TIMING), "cuEventCreate");
    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++) {
        for (size_t layer = 0; layer < LAYERS; layer++) {
            compute_layer(b);
            bench_cuda(b, d->cuEventRecord(event, b->work), "cuEventRecord");
            bench_cuda(b, d->cuStreamWaitEvent(b->aside, event, 0), "cuStreamWaitEvent");
            reduce_direct(b, layer * bytes, bytes, b->aside);
        }
        bench_cuda(b, d->cuEventRecord(event, b->aside), "cuEventRecord");
        bench_cuda(b, d->cuStreamWaitEvent(b->work, event, 0), "cuStreamWaitEvent");
    }
    bench_cuda(b, d->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    d->cuEventDestroy(event);
    return bench_now_us() - since;
}

static double step_hvd(struct bench *b, size_t bytes, int runs)
{
    static const char *const name[LAYERS] = {"l0", "l1", "l2",  "l3",  "l4",  "l5",  "l6",  "l7",
                                             "l8", "l9", "l10", "l11", "l12", "l13", "l14", "l15"};
    hvd_options options = {.stream = b->work};
    hvd_handle handle[LAYERS];

    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++) {
        for (size_t layer = 0; layer < LAYERS; layer++) {
            compute_layer(b);
            bench_check(hvd_allreduce_async(name[layer], bench_at(b, layer * bytes),
                                            bench_at(b, layer * bytes), bytes / sizeof(float), HVD_FLOAT32,
                                            HVD_SUM, &options, &handle[layer]),
                        "hvd_allreduce_async");
        }
        for (size_t layer = 0; layer < LAYERS; layer++)
            bench_check(hvd_wait(handle[layer]), "hvd_wait");
    }
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    return bench_now_us() - since;
}

void row_overlap(struct bench *b)
{
    double direct, hvd, ratio;

    if (!b->compute) {
        bench_skipped(b, "a step with overlap", b->why);
        return;
    }
    ratio = bench_compare(b, step_direct, step_hvd, LAYER_MB << 20, 10, &direct, &hvd);
    bench_line(b, "a step, 16 x 2 MiB, overlap", direct, hvd, "us", ratio, "times as long", 1);
}
