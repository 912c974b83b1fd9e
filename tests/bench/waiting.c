/* waiting - what ranks that wait leave to others.
 *
 * Every rank but the last waits in an allreduce. The last one counts for a second, then joins them. It prints
 * a line of JSON: the microseconds that a round of its arithmetic took. Compiled for libhvd, and with
 * WITH_MPI for an MPI. */
#include <stdio.h>
#include <time.h>

#define COUNT_S 1.0

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rounds of arithmetic in COUNT_S seconds. */
static unsigned long count_rounds(void)
{
    unsigned long rounds = 0;
    volatile double x = 1;

    for (double until = now_s() + COUNT_S; now_s() < until; rounds++)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
    return rounds;
}

#ifdef WITH_MPI
#include <mpi.h>

static void join_ranks(int *rank, int *size)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
}

static void sum_value(int *value)
{
    MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void leave_ranks(void)
{
    MPI_Finalize();
}
#else
#include <hvd.h>

#include "tests/bench/bench_call.h"

static void join_ranks(int *rank, int *size)
{
    bench_check(hvd_init(), "hvd_init");
    *rank = bench_rank = hvd_rank();
    *size = hvd_size();
}

static void sum_value(int *value)
{
    bench_check(hvd_allreduce("waiting", value, value, 1, HVD_INT32, HVD_SUM, NULL), "hvd_allreduce");
}

static void leave_ranks(void)
{
    bench_check(hvd_shutdown(), "hvd_shutdown");
}
#endif

int main(void)
{
    int rank, size, value = 1;
    unsigned long rounds = 0;

    join_ranks(&rank, &size);
    sum_value(&value);
    if (rank == size - 1)
        rounds = count_rounds();
    sum_value(&value);
    if (rank == size - 1)
        printf("{\"op\":\"count\",\"bytes\":0,\"ranks\":%d,\"median_us\":%.4f}\n", size,
               1e6 / (double)(rounds + 1));
    fflush(stdout);
    leave_ranks();
    return 0;
}
