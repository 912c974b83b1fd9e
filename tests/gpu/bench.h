/* The parts of hvd_gpu_bench share this. The bench compares hvd's operations on GPU memory with direct calls
 * of NCCL. The same processes make both, interleaved, over the same transport; rank 0 prints a line for each.
 *
 *   bench.c        command line, set-up, the table
 *   bench_rows.c   allreduce by size, time added at 4 B to NCCL of both modes, a training step with overlap
 *   bench_groups.c groups of tensors */
#pragma once

#include <hvd.h>

#include <stdbool.h>
#include <stddef.h>

#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"
#include "tests/bench/bench_call.h"
#include "tests/gpu/witness.h"

#define PAIRS_MAX 101

struct bench {
    const struct driver *driver;
    const struct nccl *nccl;
    nccl_comm comm;      /* the direct one, non-blocking as hvd's */
    nccl_comm blocking;  /* one as programs mostly have it */
    cu_stream work;      /* of the worker's kernels */
    cu_stream aside;     /* of direct NCCL, beside `work` */
    cu_pointer memory;   /* of all rows */
    void *known;         /* the same, of hvd_alloc_device */
    size_t bytes;        /* of `memory` and `known` */
    cu_function compute; /* NULL: this driver has no such kernel */
    char why[800];       /* then */
    int processors;
    int rank, size;
    int pairs;
    bool few;                   /* a tenth of the runs */
    bool sharing;               /* several ranks on a GPU */
    const struct witness *ways; /* counts of hvd's operations; NULL: nobody counts */
};

/* Both end the program when they fail, as bench_fail does. */
void bench_cuda(const struct bench *b, cu_result result, const char *what);
void bench_nccl(const struct bench *b, nccl_result result, const char *what);

/* A line of the table: a ratio with its goal; not above it: met. `unit` is of the two times. bench_compare
 * has seen which way hvd's operations went. */
void bench_line(const struct bench *b, const char *what, double direct, double hvd, const char *unit,
                double value, const char *means, double goal);
void bench_skipped(const struct bench *b, const char *what, const char *why);

void bench_begin_row(const struct bench *b);

/* One run of something; microseconds. */
typedef double bench_timed(struct bench *b, size_t bytes, int runs);
/* Medians of both, each after runs that are not counted, and of their ratio by pairs. With few
 * runs it makes a tenth of `runs`. */
double bench_compare(struct bench *b, bench_timed *direct, bench_timed *hvd, size_t bytes, int runs,
                     double *of_direct, double *of_hvd);
/* Nothing is under way, and all ranks are here. */
void bench_start(struct bench *b);
void *bench_at(const struct bench *b, size_t offset);
/* Waits until NCCL has put a direct call into its stream. In non-blocking mode the call returns earlier. */
void bench_in_stream(struct bench *b);

void row_allreduce(struct bench *b, size_t bytes, bool known);
void row_latency(struct bench *b);
void row_overlap(struct bench *b);
void rows_of_groups(struct bench *b);
size_t bytes_of_groups(void); /* of `memory` */
