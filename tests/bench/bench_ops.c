/* The operations of hvd_bench: a line each in the table. The result is checked before it is timed. */
#include "tests/bench/bench.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct tensor {
    const struct bench_op *op;
    void *data;
    size_t count;
    hvd_dtype dtype;
};

struct bench_op {
    const char *name;
    void (*once)(void *tensor);
    double (*want)(size_t i); /* the result's element i; NULL: there is no data */
};

static void allreduce(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_allreduce("bench", t->data, t->data, t->count, t->dtype, HVD_SUM, NULL), "hvd_allreduce");
}

static void broadcast(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_broadcast("bench", t->data, t->count, t->dtype, 0, NULL), "hvd_broadcast");
}

static void barrier(void *context)
{
    (void)context;
    bench_check(hvd_barrier(NULL), "hvd_barrier");
}

static double roots(size_t i)
{
    return bench_value(0, i);
}

static const struct bench_op operations[] = {
    {"allreduce", allreduce, bench_sum},
    {"broadcast", broadcast, roots},
    {"barrier", barrier, NULL},
};

#define OPERATIONS (sizeof operations / sizeof *operations)

const struct bench_op *bench_op_named(const char *name)
{
    for (size_t i = 0; i < OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

const char *bench_op_names(void)
{
    static char names[256];
    size_t used = 0;

    for (size_t i = 0; i < OPERATIONS; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 operations[i].name);
    return names;
}

static double get(const struct tensor *t, size_t i)
{
    switch (t->dtype) {
    case HVD_FLOAT32:
        return ((const float *)t->data)[i];
    case HVD_FLOAT64:
        return ((const double *)t->data)[i];
    case HVD_INT32:
        return ((const int32_t *)t->data)[i];
    default:
        return (double)((const int64_t *)t->data)[i];
    }
}

static void put(const struct tensor *t, size_t i, int value)
{
    switch (t->dtype) {
    case HVD_FLOAT32:
        ((float *)t->data)[i] = (float)value;
        break;
    case HVD_FLOAT64:
        ((double *)t->data)[i] = value;
        break;
    case HVD_INT32:
        ((int32_t *)t->data)[i] = value;
        break;
    default:
        ((int64_t *)t->data)[i] = value;
        break;
    }
}

static void check_data(struct tensor *t)
{
    for (size_t i = 0; i < t->count; i++)
        put(t, i, bench_value(bench_rank, i));
    t->op->once(t);
    for (size_t i = 0; i < t->count; i++)
        if (get(t, i) != t->op->want(i))
            bench_fail("%s of %zu elements is wrong: element %zu is %g, not %g", t->op->name, t->count, i,
                       get(t, i), t->op->want(i));
}

/* The last rank comes 50 ms late: everybody else must have been held for most of that. A rank that was itself
 * kept from running that long may try again. */
static void check_barrier(void)
{
    for (int try = 0; try < 5; try++) {
        const bool late = bench_rank == bench_size - 1;
        int32_t held = 1;
        double before;

        barrier(NULL);
        before = bench_now_us();
        if (late)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        barrier(NULL);
        if (!late)
            held = bench_now_us() - before > 10000;
        bench_check(hvd_allreduce("bench.held", &held, &held, 1, HVD_INT32, HVD_MIN, NULL), "hvd_allreduce");
        if (held)
            return;
    }
    bench_fail("hvd_barrier is wrong: it does not hold ranks until the last one comes");
}

static void run_size(const struct options *o, size_t bytes)
{
    struct tensor t = {o->op, bench_alloc(o, bytes), bytes / o->dtype->size, (hvd_dtype)o->dtype->value};

    if (t.op->want == NULL)
        check_barrier();
    else
        check_data(&t);
    memset(t.data, 0, bytes); /* in place, however often: sums of zeros stay zeros */
    bench_measure(o, &(struct measurement){t.op->name, t.op->once, &t, bytes, 0, 0});
    bench_free(o, t.data);
}

void bench_ops_run(const struct options *o)
{
    bench_heading(o);
    if (o->op->want == NULL)
        run_size(o, 0);
    else
        for (int i = 0; i < o->sizes; i++)
            run_size(o, o->bytes[i]);
}
