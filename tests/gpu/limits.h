/* How long tests of GPUs wait, in one table: on the doubles, whose limits are sharp, and on a GPU (REAL_GPU,
 * of tests/gpu/run). There each process opens driver and NCCL for seconds, ranks that share a GPU take turns
 * of milliseconds, and an abort of NCCL takes its time. tests/e2e/lib.sh and tests/run.sh read the table too
 * (gpu_limit).
 *
 * HVD_DOUBLE_REAL=1 makes the doubles as slow as that (tests/gpu/double/double.h). */
#pragma once

#include <stdlib.h>

/* clang-format off */
/*    name       doubles    GPU */
#define GPU_LIMITS(X) \
    X(program_s,     120,   280) /* a program of unit tests */ \
    X(test_s,         60,   270) /* one of its tests */ \
    X(rank_s,         25,    90) /* a process of that test */ \
    X(connect_ms,  10000, 60000) /* the next state of a communicator, the end of a stream's work */ \
    X(abort_ms,     1000, 10000) /* an abort, and the end of what was in the stream */ \
    X(free_ms,      1000, 10000) /* from a death to the error and free streams on the other ranks */ \
    X(shared_ranks,    4,     2) /* the most ranks of a test that does the same with more and more */ \
    X(topic_times,     1,     4) /* a topic's own limit, times this */
/* clang-format on */

#define GPU_LIMIT_FIELD(name, doubles, real) int name;
struct gpu_limits {
    GPU_LIMITS(GPU_LIMIT_FIELD)
};
#undef GPU_LIMIT_FIELD

/* Of the mode that tests run in. */
static inline const struct gpu_limits *gpu_limits(void)
{
#define GPU_LIMIT_DOUBLES(name, doubles, real) doubles,
#define GPU_LIMIT_REAL(name, doubles, real)    real,
    static const struct gpu_limits doubled = {GPU_LIMITS(GPU_LIMIT_DOUBLES)};
    static const struct gpu_limits real = {GPU_LIMITS(GPU_LIMIT_REAL)};
#undef GPU_LIMIT_DOUBLES
#undef GPU_LIMIT_REAL
    return getenv("REAL_GPU") && !getenv("HVD_TEST_WITH_DOUBLES") ? &real : &doubled;
}
