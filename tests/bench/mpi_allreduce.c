/* mpi_allreduce LABEL BYTES[,BYTES ...] - what hvd_bench measures, in the same way, for an MPI: an in-place
 * f32 sum, checked, then timed with a barrier before each iteration; the slowest rank's time counts; about a
 * second a size at most. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sum(float *buffer, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void check_data(float *buffer, int count)
{
    for (int i = 0; i < count; i++)
        buffer[i] = (float)(i % 61 + rank + 1);
    sum(buffer, count);
    for (int i = 0; i < count; i++)
        if (buffer[i] != (float)(ranks * (i % 61) + ranks * (ranks + 1) / 2)) {
            fprintf(stderr, "mpi_allreduce: element %d of %d is wrong\n", i, count);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    memset(buffer, 0, (size_t)count * sizeof *buffer);
}

/* us[i]: the slowest rank's time of iteration i, on every rank; us[n]: all of it, barriers included. */
static void measure(float *buffer, int count, int n, double *us)
{
    const double start = MPI_Wtime();

    for (int i = 0; i < n; i++) {
        double before;

        MPI_Barrier(MPI_COMM_WORLD);
        before = MPI_Wtime();
        sum(buffer, count);
        us[i] = (MPI_Wtime() - before) * 1e6;
    }
    us[n] = (MPI_Wtime() - start) * 1e6;
    MPI_Allreduce(MPI_IN_PLACE, us, n + 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void bench_size(const char *label, size_t bytes)
{
    const int count = (int)(bytes / sizeof(float));
    float *buffer = calloc(1, bytes);
    int n = bytes <= 65536 ? 2000 : bytes <= (1 << 20) ? 400 : bytes <= (16 << 20) ? 60 : 20;
    const int most = n;
    /* Fewer to begin with than hvd_bench: with more ranks than cores an MPI may take 16 ms for each. */
    const int warmup = n / 20 + 2;
    double *us = calloc((size_t)n + 1, sizeof *us);

    if (buffer == NULL || us == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    check_data(buffer, count);
    measure(buffer, count, warmup, us);
    if (us[warmup] / warmup * n > 1e6)
        n = (int)(1e6 / (us[warmup] / warmup)) + 5;
    n = n < most ? n : most;
    measure(buffer, count, n, us);
    if (rank == 0) {
        qsort(us, (size_t)n, sizeof *us, compare);
        printf("{\"op\":\"allreduce\",\"bytes\":%zu,\"ranks\":%d,\"hosts\":1,\"buffer\":\"%s\",\"dtype\":"
               "\"f32\",\"iterations\":%d,"
               "\"median_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}\n",
               bytes, ranks, label, n, us[n / 2], us[0], us[n - 1]);
        fflush(stdout);
    }
    free(us);
    free(buffer);
}

int main(int argc, char **argv)
{
    const char *at = argc == 3 ? argv[2] : "";

    if (*at == '\0') {
        fprintf(stderr, "usage: mpi_allreduce LABEL BYTES[,BYTES ...]\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while (*at != '\0') {
        char *end;

        bench_size(argv[1], strtoull(at, &end, 10));
        at = *end == ',' ? end + 1 : "";
    }
    MPI_Finalize();
    return 0;
}
