/* The operations of hvd_bench: a line each in the table. The result is checked before it is timed.
 *
 * For a size of N bytes each rank gives N bytes. In an alltoall it gives N bytes to every rank. In a
 * broadcast and between two ranks only the sender gives any. A buffer that is reduced in place holds zeros
 * while it is timed, so its sums stay zero. */
#include "tests/bench/bench.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define GROUP 8 /* tensors of a grouped allreduce, of the same size but for the last */

struct tensor {
    const struct bench_op *op;
    const struct choice *type;
    hvd_dtype dtype;
    char name[32];      /* of this size alone, as in training */
    size_t count;       /* elements of --bytes */
    size_t gives, gets; /* elements of the buffers */
    char *in, *out;     /* may be one buffer */
    const void *result; /* `out`, or the shared result in libhvd */
    hvd_handle handle;  /* persistent */
};

struct bench_op {
    const char *name, *what;
    void (*once)(void *tensor);
    size_t (*wrong)(
        const struct tensor *tensor);     /* the result's first wrong element; gets: none. NULL: no data */
    void (*sizes)(struct tensor *tensor); /* NULL: in place */
    void (*begin)(struct tensor *tensor), (*end)(struct tensor *tensor); /* NULL: nothing to do */
    bool adasum;
};

static void allreduce(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_allreduce(t->name, t->in, t->out, t->count, t->dtype, HVD_SUM, NULL), "hvd_allreduce");
}

static void adasum(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_allreduce(t->name, t->in, t->out, t->count, t->dtype, HVD_ADASUM, NULL), "hvd_allreduce");
}

static void grouped(void *context)
{
    const struct tensor *t = context;
    const size_t n = t->count < GROUP ? t->count : GROUP, each = t->count / n;
    void *part[GROUP];
    size_t count[GROUP];

    for (size_t k = 0; k < n; k++) {
        part[k] = t->in + k * each * t->type->size;
        count[k] = k < n - 1 ? each : t->count - k * each;
    }
    bench_check(
        hvd_grouped_allreduce(t->name, n, (const void *const *)part, part, count, t->dtype, HVD_SUM, NULL),
        "hvd_grouped_allreduce");
}

static void shared(void *context)
{
    struct tensor *t = context;

    bench_check(hvd_allreduce_shared(t->name, t->in, t->count, t->dtype, HVD_SUM, NULL, &t->result),
                "hvd_allreduce_shared");
}

static void persistent_begin(struct tensor *t)
{
    bench_check(hvd_allreduce_init(t->name, t->in, t->out, t->count, t->dtype, HVD_SUM, NULL, &t->handle),
                "hvd_allreduce_init");
}

static void persistent(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_start(t->handle), "hvd_start");
    bench_check(hvd_wait(t->handle), "hvd_wait");
}

static void persistent_end(struct tensor *t)
{
    bench_check(hvd_handle_free(t->handle), "hvd_handle_free");
}

static void allgather(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_allgather(t->name, t->in, t->count, 1, t->dtype, t->out, t->gets, NULL, NULL),
                "hvd_allgather");
}

static void broadcast(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_broadcast(t->name, t->out, t->count, t->dtype, 0, NULL), "hvd_broadcast");
}

static void alltoall(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_alltoall(t->name, t->in, (size_t)bench_size, NULL, t->count, t->dtype, t->out,
                             (size_t)bench_size, NULL, NULL),
                "hvd_alltoall");
}

static void reducescatter(void *context)
{
    const struct tensor *t = context;

    bench_check(hvd_reducescatter(t->name, t->in, t->count, 1, t->dtype, HVD_SUM, t->out, NULL),
                "hvd_reducescatter");
}

static void barrier(void *context)
{
    (void)context;
    bench_check(hvd_barrier(NULL), "hvd_barrier");
}

/* Rank 0 to 1, 2 to 3, ...; one that is left over does nothing. */
static void sendrecv(void *context)
{
    const struct tensor *t = context;

    if (bench_rank % 2 == 1)
        bench_check(hvd_recv(t->name, t->out, t->count, t->dtype, bench_rank - 1, NULL), "hvd_recv");
    else if (bench_rank + 1 < bench_size)
        bench_check(hvd_send(t->name, t->out, t->count, t->dtype, bench_rank + 1, NULL), "hvd_send");
}

static void gathered_sizes(struct tensor *t)
{
    t->gets = t->count * (size_t)bench_size;
}

static void exchanged_sizes(struct tensor *t)
{
    t->gives = t->gets = t->count * (size_t)bench_size;
}

/* The first count % size ranks have one element more. */
static void scattered_sizes(struct tensor *t)
{
    const size_t n = (size_t)bench_size;

    t->gets = t->count / n + ((size_t)bench_rank < t->count % n);
}

static size_t sums(const struct tensor *t)
{
    return bench_wrong(t->type, t->result, t->gets, BENCH_SUM, 0);
}

static size_t roots(const struct tensor *t)
{
    return bench_wrong(t->type, t->result, t->gets, 0, 0);
}

static size_t partners(const struct tensor *t)
{
    return bench_wrong(t->type, t->result, t->gets, bench_rank - bench_rank % 2, 0);
}

static size_t my_part_of_sums(const struct tensor *t)
{
    const size_t n = (size_t)bench_size, r = (size_t)bench_rank, more = t->count % n;

    return bench_wrong(t->type, t->result, t->gets, BENCH_SUM, t->count / n * r + (r < more ? r : more));
}

/* `count` elements of each rank, from its element `first` on, one behind the other. */
static size_t everybodys(const struct tensor *t, size_t first)
{
    for (int r = 0; r < bench_size; r++) {
        const size_t at = (size_t)r * t->count;
        const size_t wrong = bench_wrong(t->type, t->out + at * t->type->size, t->count, r, first);

        if (wrong < t->count)
            return at + wrong;
    }
    return t->gets;
}

static size_t gathered(const struct tensor *t)
{
    return everybodys(t, 0);
}

static size_t sent_to_me(const struct tensor *t)
{
    return everybodys(t, (size_t)bench_rank * t->count);
}

static const struct bench_op operations[] = {
    {"allreduce", "a sum, in place", allreduce, sums, NULL, NULL, NULL, false},
    {"grouped", "the same of up to 8 parts in one call", grouped, sums, NULL, NULL, NULL, false},
    {"shared", "one read-only result a host", shared, sums, NULL, NULL, NULL, false},
    {"persistent", "started from a persistent handle", persistent, sums, NULL, persistent_begin,
     persistent_end, false},
    {"adasum", "f16, bf16, f32, f64; of equal vectors", adasum, roots, NULL, NULL, NULL, true},
    {"allgather", "a rank gives --bytes", allgather, gathered, gathered_sizes, NULL, NULL, false},
    {"broadcast", "from rank 0", broadcast, roots, NULL, NULL, NULL, false},
    {"alltoall", "a rank gives --bytes to each", alltoall, sent_to_me, exchanged_sizes, NULL, NULL, false},
    {"reducescatter", "a rank gives --bytes", reducescatter, my_part_of_sums, scattered_sizes, NULL, NULL,
     false},
    {"barrier", "no bytes", barrier, NULL, NULL, NULL, NULL, false},
    {"sendrecv", "rank 0 to 1, 2 to 3, ...", sendrecv, partners, NULL, NULL, NULL, false},
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

    for (size_t i = 0; i < OPERATIONS && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 operations[i].name);
    return names;
}

void bench_op_help(void)
{
    for (size_t i = 0; i < OPERATIONS; i++)
        printf("      %-22s  %s\n", operations[i].name, operations[i].what);
}

const char *bench_op_name(const struct bench_op *op)
{
    return op->name;
}

bool bench_op_takes(const struct bench_op *op, const struct choice *dtype)
{
    return !op->adasum || dtype->value == HVD_FLOAT16 || dtype->value == HVD_BFLOAT16 ||
           dtype->value == HVD_FLOAT32 || dtype->value == HVD_FLOAT64;
}

static void check_data(struct tensor *t)
{
    size_t wrong;

    bench_fill(t->type, t->in, t->gives, t->op->adasum ? 0 : bench_rank, 0);
    t->op->once(t);
    wrong = t->op->wrong(t);
    if (wrong < t->gets)
        bench_fail("%s of %zu elements is wrong: element %zu", t->op->name, t->count, wrong);
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

static void run_barrier(const struct options *o)
{
    check_barrier();
    bench_measure(o, &(struct measurement){o->op->name, barrier, NULL, 0, 0, 0});
}

static void run_size(const struct options *o, size_t bytes)
{
    struct tensor t = {.op = o->op, .type = o->dtype, .dtype = (hvd_dtype)o->dtype->value};

    snprintf(t.name, sizeof t.name, "bench.%zu", bytes);
    t.gives = t.gets = t.count = bytes / o->dtype->size;
    if (t.op->sizes != NULL)
        t.op->sizes(&t);
    t.in = bench_alloc(o, t.gives * o->dtype->size);
    t.out = t.op->sizes != NULL ? bench_alloc(o, t.gets * o->dtype->size) : t.in;
    t.result = t.out;
    if (t.op->begin != NULL)
        t.op->begin(&t);
    check_data(&t);
    memset(t.in, 0, t.gives * o->dtype->size);
    bench_measure(o, &(struct measurement){t.op->name, t.op->once, &t, bytes, 0, 0});
    if (t.op->end != NULL)
        t.op->end(&t);
    if (t.out != t.in)
        bench_free(o, t.out);
    bench_free(o, t.in);
}

void bench_ops_run(const struct options *o)
{
    bench_heading(o);
    if (o->op->wrong == NULL)
        run_barrier(o);
    else
        for (int i = 0; i < o->sizes; i++)
            run_size(o, o->bytes[i]);
}
