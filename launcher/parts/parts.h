/* The parts of a job, in the order in which the job calls their hooks (launcher/job/part.h). */
#ifndef HVD_LAUNCHER_PARTS_PARTS_H
#define HVD_LAUNCHER_PARTS_PARTS_H

#include "launcher/job/part.h"

/* clang-format off */
#define JOB_PARTS(X)   \
    X(preflight)       \
    X(preload)         \
    X(endpoints)       \
    X(dns_wait)        \
    X(lease_order)     \
    X(start_timeout)   \
    X(progress)        \
    X(pty)             \
    X(links)           \
    X(rank_ends)       \
    X(stack_dump)      \
    X(debugger)        \
    X(sweep)           \
    X(leftovers)
/* clang-format on */

#define AS_DECLARATION(name) extern const struct job_part part_##name;
JOB_PARTS(AS_DECLARATION)
#undef AS_DECLARATION

#endif
