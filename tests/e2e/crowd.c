/* crowd TRIALS: two ranks for each processor that they may run on. In each trial the first processor begins
 * with three ranks, the last one with one; then all ranks may run on all. They pass barriers for a while.
 * Rank 0 prints in how many trials each processor has two ranks then. */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/e2e/worker.h"

#define BARRIERS       20000 /* about 60 ms */
#define PROCESSORS_MAX 16

static cpu_set_t all;
static int processor[PROCESSORS_MAX], processors;

static void find_processors(void)
{
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        wrong("sched_getaffinity");
    for (int p = 0; p < CPU_SETSIZE && processors < PROCESSORS_MAX; p++)
        if (CPU_ISSET((unsigned)p, &all))
            processor[processors++] = p;
    if (hvd_size() != 2 * processors)
        wrong("%d processors", processors);
}

static void begin_on(int p)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((unsigned)p, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        wrong("sched_setaffinity");
    must(hvd_barrier(NULL), "hvd_barrier");
    if (sched_setaffinity(0, sizeof all, &all) != 0)
        wrong("sched_setaffinity");
}

/* A rank that has moved may run on all of them again. */
static void check_processors(void)
{
    cpu_set_t now;

    if (sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, &all))
        wrong("it may no longer run on all processors");
}

static bool is_even(void)
{
    int32_t ranks[PROCESSORS_MAX] = {0};
    const int here = sched_getcpu();

    for (int i = 0; i < processors; i++)
        ranks[i] = processor[i] == here;
    must(hvd_allreduce("ranks", ranks, ranks, (size_t)processors, HVD_INT32, HVD_SUM, NULL), "hvd_allreduce");
    for (int i = 0; i < processors; i++)
        if (ranks[i] != 2)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    const long trials = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    int even = 0;

    if (trials < 1)
        return 2;
    must(hvd_init(), "hvd_init");
    find_processors();
    for (long i = 0; i < trials; i++) {
        begin_on(processor[hvd_rank() == hvd_size() - 1 ? 0 : hvd_rank() % processors]);
        for (int k = 0; k < BARRIERS; k++)
            must(hvd_barrier(NULL), "hvd_barrier");
        even += is_even();
        check_processors();
    }
    if (hvd_rank() == 0)
        printf("even in %d of %ld\n", even, trials);
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
