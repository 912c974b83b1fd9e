/* A group of tensors: hvd, which packs the small ones (collectives/gpu/fuse.h), beside NCCL's own group, in
 * which each tensor is an operation. Both rows of hvd contain the time that hvd adds to a single call. In a
 * build without nvcc they also contain the driver's copies, which replace kernels. Under hvdrun
 * --fusion-threshold-mb 0 hvd makes the same group as NCCL alone. */
#include <stdio.h>

#include "tests/bench/resnet50.h"
#include "tests/gpu/bench.h"

#define ALIGN 512 /* as allocators do */
#define SMALL 64
#define MOST  (RESNET50_TENSORS > SMALL ? RESNET50_TENSORS : SMALL)

static struct {
    size_t n, count[MOST];
    void *at[MOST];
} group;

static double group_direct(struct bench *b, size_t bytes, int runs)
{
    const struct nccl *n = b->nccl;

    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++) {
        bench_nccl(b, n->ncclGroupStart(), "ncclGroupStart");
        for (size_t k = 0; k < group.n; k++)
            bench_nccl(b,
                       n->ncclAllReduce(group.at[k], group.at[k], group.count[k], NCCL_FLOAT32, NCCL_SUM,
                                        b->comm, b->work),
                       "ncclAllReduce");
        bench_nccl(b, n->ncclGroupEnd(), "ncclGroupEnd");
        bench_in_stream(b);
    }
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    return bench_now_us() - since;
}

/* The name says how many, since what a name stands for stays as it is. */
static double group_hvd(struct bench *b, size_t bytes, int runs)
{
    hvd_options options = {.stream = b->work};
    const char *name = group.n == SMALL ? "bench.small" : "bench.model";

    bench_start(b);
    double since = bench_now_us();
    for (int i = 0; i < runs; i++)
        bench_check(hvd_grouped_allreduce(name, group.n, (const void *const *)group.at, group.at, group.count,
                                          HVD_FLOAT32, HVD_SUM, &options),
                    "hvd_grouped_allreduce");
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    return bench_now_us() - since;
}

static void row(struct bench *b, const char *what, int runs)
{
    double direct, hvd, ratio;

    for (size_t k = 0, at = 0; k < group.n; k++) {
        group.at[k] = bench_at(b, at);
        at += (group.count[k] * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
    }
    ratio = bench_compare(b, group_direct, group_hvd, 0, runs, &direct, &hvd);
    if (b->size == 1) /* NCCL has nothing to do then */
        bench_line(b, what, direct, hvd, "us", (hvd - direct) / (double)group.n, "us added a tensor", 1);
    else
        bench_line(b, what, direct, hvd, "us", ratio, "times as long", 1);
}

void rows_of_groups(struct bench *b)
{
    group.n = SMALL;
    for (size_t k = 0; k < SMALL; k++)
        group.count[k] = 4096 / sizeof(float);
    row(b, "a group, 64 x 4 KiB", 100);
    group.n = RESNET50_TENSORS;
    if (resnet50(group.count) != 0)
        bench_skipped(b, "ResNet-50's 161, one group", "its table is wrong");
    else
        row(b, "ResNet-50's 161, one group", 10);
}

size_t bytes_of_groups(void)
{
    return RESNET50_PARAMETERS * sizeof(float) + (size_t)RESNET50_TENSORS * ALIGN;
}
