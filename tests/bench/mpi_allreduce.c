/* mpi_allreduce LABEL BYTES[,BYTES ...]|resnet50 [LIMIT_MS] - what hvd_bench measures, in the same way, for
 * an MPI: an in-place f32 sum, checked, then timed with a barrier before each iteration; the slowest rank's
 * time counts; about LIMIT_MS (1000) a size.
 *
 * resnet50: the gradients lie one after the other, so that nothing has to be packed, and are summed in each
 * of four ways: an MPI_Iallreduce for each and a wait for all, an MPI_Allreduce for each, one for buckets of
 * 25 MiB, one for all of it. The fastest is reported, and which it was. */
#include <mpi.h>

#include "tests/bench/resnet50.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEWEST 3 /* iterations, however long one takes */
#define BUCKET ((25 << 20) / (int)sizeof(float))

/* Elements summed by one call each, in order. */
struct plan {
    const char *name;
    int calls, at_once; /* at_once: started all, then waited for */
    int count[RESNET50_TENSORS];
};

static int rank, ranks;
static double limit_us = 1e6;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sum(float *buffer, const struct plan *plan)
{
    static MPI_Request request[RESNET50_TENSORS];
    static MPI_Status status[RESNET50_TENSORS];

    for (int i = 0; i < plan->calls; i++) {
        if (plan->at_once)
            MPI_Iallreduce(MPI_IN_PLACE, buffer, plan->count[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                           &request[i]);
        else
            MPI_Allreduce(MPI_IN_PLACE, buffer, plan->count[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        buffer += plan->count[i];
    }
    if (plan->at_once)
        MPI_Waitall(plan->calls, request, status);
}

static int elements(const struct plan *plan)
{
    int n = 0;

    for (int i = 0; i < plan->calls; i++)
        n += plan->count[i];
    return n;
}

static void check_data(float *buffer, const struct plan *plan)
{
    const int count = elements(plan);

    for (int i = 0; i < count; i++)
        buffer[i] = (float)(i % 61 + rank + 1);
    sum(buffer, plan);
    for (int i = 0; i < count; i++)
        if (buffer[i] != (float)(ranks * (i % 61) + ranks * (ranks + 1) / 2)) {
            fprintf(stderr, "mpi_allreduce: element %d of %d is wrong\n", i, count);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    memset(buffer, 0, (size_t)count * sizeof *buffer);
}

/* us[i]: the slowest rank's time of iteration i, on every rank; us[n]: all of it, barriers included. */
static void repeat(float *buffer, const struct plan *plan, int n, double *us)
{
    const double start = MPI_Wtime();

    for (int i = 0; i < n; i++) {
        double before;

        MPI_Barrier(MPI_COMM_WORLD);
        before = MPI_Wtime();
        sum(buffer, plan);
        us[i] = (MPI_Wtime() - before) * 1e6;
    }
    us[n] = (MPI_Wtime() - start) * 1e6;
    MPI_Allreduce(MPI_IN_PLACE, us, n + 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

/* The times of *n iterations, sorted; *n is chosen by the size and the time they take. To be freed. */
static double *measure(const struct plan *plan, int *iterations)
{
    const size_t bytes = (size_t)elements(plan) * sizeof(float);
    float *buffer = calloc(1, bytes);
    int n = bytes <= 65536 ? 2000 : bytes <= (1 << 20) ? 400 : bytes <= (16 << 20) ? 60 : 20;
    const int most = n;
    const int warmup = n / 20 + 2;
    double *us = calloc((size_t)n + 1, sizeof *us);

    if (buffer == NULL || us == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    check_data(buffer, plan);
    repeat(buffer, plan, 2, us); /* with more ranks than cores an MPI may take 16 ms for each */
    us[warmup] = (us[0] < us[1] ? us[0] : us[1]) * warmup;
    if (us[warmup] < limit_us)
        repeat(buffer, plan, warmup, us);
    if (us[warmup] / warmup * n > limit_us)
        n = (int)(limit_us / (us[warmup] / warmup));
    n = n < FEWEST ? FEWEST : n;
    n = n < most ? n : most;
    repeat(buffer, plan, n, us);
    qsort(us, (size_t)n, sizeof *us, compare);
    free(buffer);
    *iterations = n;
    return us;
}

static void report(const char *op, const char *label, const struct plan *plan, const double *us, int n)
{
    if (rank != 0)
        return;
    printf(
        "{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"hosts\":1,\"buffer\":\"%s\",\"dtype\":\"f32\",\"way\":"
        "\"%s\",\"iterations\":%d,\"median_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}\n",
        op, (size_t)elements(plan) * sizeof(float), ranks, label, plan->name, n, us[n / 2], us[0], us[n - 1]);
    fflush(stdout);
}

static void bench_size(const char *label, size_t bytes)
{
    const struct plan plan = {"one", 1, 0, {(int)(bytes / sizeof(float))}};
    int n;
    double *us = measure(&plan, &n);

    report("allreduce", label, &plan, us, n);
    free(us);
}

static void bench_resnet50(const char *label)
{
    static struct plan plan[4] = {{.name = "MPI_Iallreduce of each", .calls = RESNET50_TENSORS, .at_once = 1},
                                  {.name = "MPI_Allreduce of each", .calls = RESNET50_TENSORS},
                                  {.name = "buckets of 25 MiB"},
                                  {.name = "one buffer", .calls = 1, .count = {RESNET50_PARAMETERS}}};
    size_t count[RESNET50_TENSORS];
    double *best = NULL;
    int best_way = 0, best_n = 0;

    if (resnet50(count) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < RESNET50_TENSORS; i++)
        plan[0].count[i] = plan[1].count[i] = (int)count[i];
    for (int left = RESNET50_PARAMETERS; left > 0; left -= BUCKET)
        plan[2].count[plan[2].calls++] = left < BUCKET ? left : BUCKET;
    for (int way = 0; way < 4; way++) {
        int n;
        double *us = measure(&plan[way], &n);

        if (best == NULL || us[n / 2] < best[best_n / 2]) {
            free(best);
            best = us;
            best_way = way;
            best_n = n;
        } else {
            free(us);
        }
    }
    report("resnet50", label, &plan[best_way], best, best_n);
    free(best);
}

int main(int argc, char **argv)
{
    const char *at = argc >= 3 && argc <= 4 ? argv[2] : "";

    if (*at == '\0') {
        fprintf(stderr, "usage: mpi_allreduce LABEL BYTES[,BYTES ...]|resnet50 [LIMIT_MS]\n");
        return 2;
    }
    if (argc == 4)
        limit_us = strtod(argv[3], NULL) * 1e3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (strcmp(at, "resnet50") == 0) {
        bench_resnet50(argv[1]);
        at = "";
    }
    while (*at != '\0') {
        char *end;

        bench_size(argv[1], strtoull(at, &end, 10));
        at = *end == ',' ? end + 1 : "";
    }
    MPI_Finalize();
    return 0;
}
