/* mpi_ops LABEL LIMIT_MS OP BYTES[,BYTES ...] | LABEL LIMIT_MS resnet50 - what hvd_bench measures, in the
 * same way, for an MPI: f32, checked, then timed with a barrier before each iteration, then in a loop
 * without; the slowest rank's time counts; about LIMIT_MS a size. OP is allreduce (in place), allgather,
 * broadcast, alltoall or reducescatter, and BYTES what a rank gives, in an alltoall to each.
 *
 * resnet50: the gradients lie one after the other, so that nothing has to be packed, and are summed in each
 * of four ways: an MPI_Iallreduce for each and a wait for all, an MPI_Allreduce for each, one for buckets of
 * 25 MiB, one for all of it. The fastest is reported, and which it was. */
#include <mpi.h>

#include "tests/bench/resnet50.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FEWEST    3 /* iterations, however long one takes */
#define RANKS_MAX 1024
#define PERIOD    61 /* of what a rank gives */
#define BUCKET    ((25 << 20) / (int)sizeof(float))

/* Elements taken by one call each, in order. */
struct plan {
    const char *name;
    int calls, at_once; /* at_once: started all, then waited for */
    int count[RESNET50_TENSORS];
};

struct op {
    const char *name;
    void (*once)(float *in, float *out, const struct plan *plan);
    size_t (*gives)(size_t count), (*gets)(size_t count); /* elements of the buffers, of `count` of a plan */
    float (*want)(size_t i, size_t count);
};

static int rank, ranks;
static double limit_us;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void allreduce(float *in, float *buffer, const struct plan *plan)
{
    static MPI_Request request[RESNET50_TENSORS];
    static MPI_Status status[RESNET50_TENSORS];

    (void)in;
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

static void allgather(float *in, float *out, const struct plan *plan)
{
    MPI_Allgather(in, plan->count[0], MPI_FLOAT, out, plan->count[0], MPI_FLOAT, MPI_COMM_WORLD);
}

static void broadcast(float *in, float *out, const struct plan *plan)
{
    (void)in;
    MPI_Bcast(out, plan->count[0], MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void alltoall(float *in, float *out, const struct plan *plan)
{
    MPI_Alltoall(in, plan->count[0], MPI_FLOAT, out, plan->count[0], MPI_FLOAT, MPI_COMM_WORLD);
}

/* The first count % ranks ranks have one element more, as in hvd_reducescatter. */
static int part(size_t count, int r)
{
    return (int)(count / (size_t)ranks + ((size_t)r < count % (size_t)ranks));
}

static void reducescatter(float *in, float *out, const struct plan *plan)
{
    int parts[RANKS_MAX];

    for (int r = 0; r < ranks; r++)
        parts[r] = part((size_t)plan->count[0], r);
    MPI_Reduce_scatter(in, out, parts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static size_t one(size_t count)
{
    return count;
}

static size_t each(size_t count)
{
    return count * (size_t)ranks;
}

static size_t my_part(size_t count)
{
    return (size_t)part(count, rank);
}

static float value(size_t i, int of)
{
    return (float)(i % PERIOD + (size_t)of + 1);
}

static float sum(size_t i, size_t count)
{
    const size_t n = (size_t)ranks;

    (void)count;
    return (float)(n * (i % PERIOD) + n * (n + 1) / 2);
}

static float part_of_sum(size_t i, size_t count)
{
    for (int r = 0; r < rank; r++)
        i += (size_t)part(count, r);
    return sum(i, count);
}

static float gathered(size_t i, size_t count)
{
    return value(i % count, (int)(i / count));
}

static float roots(size_t i, size_t count)
{
    (void)count;
    return value(i, 0);
}

static float sent_to_me(size_t i, size_t count)
{
    return value((size_t)rank * count + i % count, (int)(i / count));
}

static const struct op ops[] = {{"allreduce", allreduce, NULL, one, sum}, /* the model's, too: the first */
                                {"allgather", allgather, one, each, gathered},
                                {"broadcast", broadcast, NULL, one, roots},
                                {"alltoall", alltoall, each, each, sent_to_me},
                                {"reducescatter", reducescatter, one, my_part, part_of_sum}};

static size_t elements(const struct plan *plan)
{
    size_t n = 0;

    for (int i = 0; i < plan->calls; i++)
        n += (size_t)plan->count[i];
    return n;
}

struct buffers {
    float *in, *out; /* one of them where an operation is in place */
    size_t gives, gets;
};

static struct buffers buffers_of(const struct op *op, size_t count)
{
    struct buffers b = {.gives = op->gives != NULL ? op->gives(count) : count, .gets = op->gets(count)};

    b.out = calloc(b.gets + 1, sizeof *b.out);
    b.in = op->gives != NULL ? calloc(b.gives + 1, sizeof *b.in) : b.out;
    if (b.in == NULL || b.out == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return b;
}

/* How long it took, in microseconds, the slowest rank's. */
static double check_data(const struct op *op, const struct buffers *b, const struct plan *plan)
{
    const size_t count = elements(plan);
    size_t looked_at = b->gets;
    double us;

    for (size_t i = 0; i < b->gives; i++)
        b->in[i] = value(i, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    us = MPI_Wtime();
    op->once(b->in, b->out, plan);
    us = (MPI_Wtime() - us) * 1e6;
    /* A result that repeats its first PERIOD elements to the end is checked in those only. */
    if (op->gets == one && count > PERIOD &&
        memcmp(b->out, b->out + PERIOD, (count - PERIOD) * sizeof *b->out) == 0)
        looked_at = PERIOD;
    for (size_t i = 0; i < looked_at; i++)
        if (b->out[i] != op->want(i, count)) {
            fprintf(stderr, "mpi_ops: %s: element %zu of %zu is wrong\n", op->name, i, b->gets);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    memset(b->in, 0, b->gives * sizeof *b->in);
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

/* us[i]: the slowest rank's time of iteration i, on every rank; us[n]: all of it, barriers included. */
static void repeat(const struct op *op, const struct buffers *b, const struct plan *plan, int n, double *us)
{
    const double start = MPI_Wtime();

    for (int i = 0; i < n; i++) {
        double before;

        MPI_Barrier(MPI_COMM_WORLD);
        before = MPI_Wtime();
        op->once(b->in, b->out, plan);
        us[i] = (MPI_Wtime() - before) * 1e6;
    }
    us[n] = (MPI_Wtime() - start) * 1e6;
    MPI_Allreduce(MPI_IN_PLACE, us, n + 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

/* One call after another: the time of each, the slowest rank's. */
static double time_loop(const struct op *op, const struct buffers *b, const struct plan *plan, int n)
{
    double us;

    MPI_Barrier(MPI_COMM_WORLD);
    us = MPI_Wtime();
    for (int i = 0; i < n; i++)
        op->once(b->in, b->out, plan);
    us = (MPI_Wtime() - us) * 1e6 / n;
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

/* The times of *n iterations, sorted, and behind them the time of one in a loop; *n is chosen by the size and
 * the time they take. To be freed. */
static double *measure(const struct op *op, const struct plan *plan, int *iterations)
{
    const size_t bytes = elements(plan) * sizeof(float);
    struct buffers b = buffers_of(op, elements(plan));
    int n = bytes <= 65536 ? 200000 : bytes <= (1 << 20) ? 400 : bytes <= (16 << 20) ? 60 : 20;
    const int most = n;
    const int warmup = (n < 20000 ? n : 20000) / 20 + 2;
    double *us = calloc((size_t)n + 1, sizeof *us);
    double took; /* by one */

    if (us == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    took = check_data(op, &b, plan);
    if (took * 2 < limit_us || took < 20e3) { /* else one was warm-up enough */
        repeat(op, &b, plan, 2, us);          /* with more ranks than cores an MPI may take 16 ms for each */
        took = us[0] < us[1] ? us[0] : us[1];
    }
    if (took * warmup < limit_us) {
        repeat(op, &b, plan, warmup, us);
        took = us[warmup] / warmup;
    }
    if (took * n > limit_us)
        n = (int)(limit_us / took);
    n = n < FEWEST ? FEWEST : n;
    n = n < most ? n : most;
    repeat(op, &b, plan, n, us);
    qsort(us, (size_t)n, sizeof *us, compare);
    us[n] = time_loop(op, &b, plan, n);
    free(b.out);
    if (b.in != b.out)
        free(b.in);
    *iterations = n;
    return us;
}

static void print_line(const char *name, const char *label, const struct plan *plan, const double *us, int n)
{
    if (rank != 0)
        return;
    printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"buffer\":\"%s\",\"dtype\":\"f32\",\"way\":\"%s\","
           "\"iterations\":%d,\"median_us\":%.2f,\"p10_us\":%.2f,\"p90_us\":%.2f,\"min_us\":%.2f,\"max_us\":%"
           ".2f,\"loop_us\":%.2f}\n",
           name, elements(plan) * sizeof(float), ranks, label, plan->name, n, us[n / 2], us[n / 10],
           us[n - 1 - n / 10], us[0], us[n - 1], us[n]);
    fflush(stdout);
}

static void bench_size(const struct op *op, const char *label, size_t bytes)
{
    const struct plan plan = {"one", 1, 0, {(int)(bytes / sizeof(float))}};
    int n;
    double *us = measure(op, &plan, &n);

    print_line(op->name, label, &plan, us, n);
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
        double *us = measure(ops, &plan[way], &n);

        if (best == NULL || us[n / 2] < best[best_n / 2]) {
            free(best);
            best = us;
            best_way = way;
            best_n = n;
        } else {
            free(us);
        }
    }
    print_line("resnet50", label, &plan[best_way], best, best_n);
    free(best);
}

static const struct op *op_named(const char *name)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].name, name) == 0)
            return &ops[i];
    return NULL;
}

/* All figures are out: an MPI that does not come to an end then (MPICH's often does not, across hosts) is
 * left. */
static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    const int model = argc == 4 && strcmp(argv[3], "resnet50") == 0;
    const struct op *op = argc == 5 ? op_named(argv[3]) : NULL;
    const char *at = op != NULL ? argv[4] : "";

    if (!model && op == NULL) {
        fprintf(stderr, "usage: mpi_ops LABEL LIMIT_MS OP BYTES[,BYTES ...] | LABEL LIMIT_MS resnet50\n"
                        "OP is allreduce, allgather, broadcast, alltoall or reducescatter\n");
        return 2;
    }
    limit_us = strtod(argv[2], NULL) * 1e3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (model)
        bench_resnet50(argv[1]);
    while (*at != '\0') {
        char *end;

        bench_size(op, argv[1], strtoull(at, &end, 10));
        at = *end == ',' ? end + 1 : "";
    }
    signal(SIGALRM, leave);
    alarm(1);
    MPI_Finalize();
    return 0;
}
