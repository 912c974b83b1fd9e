/* A worker whose tensors are on a GPU: every kind of operation, blocking, with results that it computes
 * itself. Inputs are put into the stream just before the call, and results read from it just after. Prints
 * "rank N: all right" at the end; the first difference ends it with status 1.
 *
 *   gpu_kinds ROUNDS ELEMENTS [WORD ...]    WORD: keeps what has it in its name */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/gpu.h"
#include "tests/e2e/rows.h"
#include "tests/e2e/worker.h"

#define ROW 3

static int rank, size;
static size_t largest;
static hvd_options options;

static size_t rows_of(int a, int b)
{
    return rows_up_to(largest, a, b);
}

static int32_t sum_at(size_t k)
{
    int32_t sum = 0;

    for (int i = 0; i < size; i++)
        sum += element(i, 0, k);
    return sum;
}

/* n elements on the host and on the GPU; what the operation gets there is garbage until the stream has put
 * it.
 */
struct both {
    int32_t *host;
    void *gpu;
    size_t bytes;
};

static struct both make(size_t n)
{
    struct both b = {malloc(n ? n * 4 : 4), gpu_alloc(n * 4), n * 4};

    return b;
}

static void drop(struct both b)
{
    gpu_free(b.gpu);
    free(b.host);
}

static void put(struct both b)
{
    gpu_put(b.gpu, b.host, b.bytes);
}

static void get(struct both b)
{
    memset(b.host, 99, b.bytes);
    gpu_get(b.host, b.gpu, b.bytes);
}

static void allreduce(const char *name, hvd_op op, bool in_place)
{
    size_t n = rows_of(0, 1) * ROW;
    struct both in = make(n), out = in_place ? in : make(n);

    for (size_t k = 0; k < n; k++)
        in.host[k] = element(rank, 0, k);
    put(in);
    must(hvd_allreduce(name, in.gpu, out.gpu, n, HVD_INT32, op, &options), name);
    get(out);
    for (size_t k = 0; k < n; k++) {
        int32_t want = element(0, 0, k);
        for (int i = 1; i < size; i++)
            want = op == HVD_SUM             ? want + element(i, 0, k)
                   : op == HVD_BXOR          ? want ^ element(i, 0, k)
                   : want > element(i, 0, k) ? want
                                             : element(i, 0, k);
        check(name, out.host, k, want);
    }
    drop(in);
    if (!in_place)
        drop(out);
}

static void sum(void)
{
    allreduce("sum", HVD_SUM, worker_round % 2);
}

static void max(void)
{
    allreduce("max", HVD_MAX, true);
}

static void xor (void) { allreduce("xor", HVD_BXOR, false); }

    static void floats(const char *name, hvd_op op, double prescale, double postscale)
{
    hvd_options o = options;
    size_t n = rows_of(1, 2) * ROW;
    struct both in = make(n);
    float *at = (float *)(void *)in.host;

    o.prescale = prescale;
    o.postscale = postscale;
    for (size_t k = 0; k < n; k++)
        at[k] = (float)element(rank, 0, k) * 4;
    put(in);
    must(hvd_allreduce(name, in.gpu, in.gpu, n, HVD_FLOAT32, op, &o), name);
    get(in);
    for (size_t k = 0; k < n; k++) {
        double want = sum_at(k) * 4 * prescale * postscale / (op == HVD_AVERAGE ? size : 1);
        if (at[k] < want - 0.001 || at[k] > want + 0.001)
            wrong("%s: element %zu is %g, not %g", name, k, at[k], want);
    }
    drop(in);
}

static void average(void)
{
    floats("average", HVD_AVERAGE, 1, 1);
}

static void scaled(void)
{
    floats("scaled", HVD_SUM, 0.5, 3);
}

static void broadcast(void)
{
    size_t n = rows_of(2, 1) * ROW;
    int root = worker_round % size;
    struct both b = make(n);

    for (size_t k = 0; k < n; k++)
        b.host[k] = rank == root ? element(root, 0, k) : -1;
    put(b);
    must(hvd_broadcast("broadcast", b.gpu, n, HVD_INT32, root, &options), "broadcast");
    get(b);
    for (size_t k = 0; k < n; k++)
        check("broadcast", b.host, k, element(root, 0, k));
    drop(b);
}

static void gather(void)
{
    size_t mine = rows_of(rank, 0), total = 0, *rows = calloc((size_t)size, sizeof *rows), at = 0;

    for (int i = 0; i < size; i++)
        total += rows_of(i, 0);
    struct both in = make(mine * ROW), out = make(total * ROW);
    for (size_t k = 0; k < mine * ROW; k++)
        in.host[k] = element(rank, 0, k);
    put(in);
    must(hvd_allgather("gather", in.gpu, mine, ROW, HVD_INT32, out.gpu, total, rows, &options), "gather");
    get(out);
    for (int i = 0; i < size; i++) {
        if (rows[i] != rows_of(i, 0))
            wrong("gather: rank %d gave %zu rows, not %zu", i, rows_of(i, 0), rows[i]);
        for (size_t k = 0; k < rows[i] * ROW; k++, at++)
            check("gather", out.host, at, element(i, 0, k));
    }
    drop(in);
    drop(out);
    free(rows);
}

static void pairs(void)
{
    size_t *splits = calloc((size_t)size, sizeof *splits), *received = calloc((size_t)size, sizeof *received);
    size_t send = 0, come = 0, at = 0;

    for (int i = 0; i < size; i++) {
        send += splits[i] = rows_of(rank, i);
        come += rows_of(i, rank);
    }
    struct both in = make(send * ROW), out = make(come * ROW);
    for (int i = 0; i < size; i++)
        for (size_t k = 0; k < splits[i] * ROW; k++)
            in.host[at++] = element(rank, i, k);
    put(in);
    must(hvd_alltoall("pairs", in.gpu, send, splits, ROW, HVD_INT32, out.gpu, come, received, &options),
         "pairs");
    get(out);
    at = 0;
    for (int i = 0; i < size; i++) {
        if (received[i] != rows_of(i, rank))
            wrong("pairs: rank %d gave me %zu rows, not %zu", i, rows_of(i, rank), received[i]);
        for (size_t k = 0; k < received[i] * ROW; k++, at++)
            check("pairs", out.host, at, element(i, rank, k));
    }
    drop(in);
    drop(out);
    free(splits);
    free(received);
}

static void scatter(void)
{
    size_t rows = rows_of(0, 0), n = (size_t)size, mine = rows / n + ((size_t)rank < rows % n), first = 0;
    struct both in = make(rows * ROW), out = make(mine * ROW);

    for (int i = 0; i < rank; i++)
        first += rows / n + ((size_t)i < rows % n);
    for (size_t k = 0; k < rows * ROW; k++)
        in.host[k] = element(rank, 0, k);
    put(in);
    must(hvd_reducescatter("scatter", in.gpu, rows, ROW, HVD_INT32, HVD_SUM, out.gpu, &options), "scatter");
    get(out);
    for (size_t k = 0; k < mine * ROW; k++)
        check("scatter", out.host, k, sum_at(first * ROW + k));
    drop(in);
    drop(out);
}

enum { MEMBERS = 5 };

static void grouped(void)
{
    struct both in[MEMBERS];
    const void *from[MEMBERS];
    void *to[MEMBERS];
    size_t count[MEMBERS];

    for (int i = 0; i < MEMBERS; i++) {
        in[i] = make(count[i] = rows_of(i, 3));
        from[i] = to[i] = in[i].gpu;
        for (size_t k = 0; k < count[i]; k++)
            in[i].host[k] = element(rank, 0, k + (size_t)i);
        put(in[i]);
    }
    must(hvd_grouped_allreduce("grouped", MEMBERS, from, to, count, HVD_INT32, HVD_SUM, &options), "grouped");
    for (int i = 0; i < MEMBERS; i++) {
        get(in[i]);
        for (size_t k = 0; k < count[i]; k++)
            check("grouped", in[i].host, k, sum_at(k + (size_t)i));
        drop(in[i]);
    }
}

/* Some small, at any address, and a large one between them: averages of halves. */
static void grouped_mixed(void)
{
    static const size_t count[MEMBERS] = {1, 7, 70000, 250, 3};
    struct both b = make(70000 + 250 + 7 + 3 + 1 + MEMBERS);
    float *host = (float *)(void *)b.host;
    hvd_options o = options;
    const void *from[MEMBERS];
    void *to[MEMBERS];

    o.prescale = 0.5;
    for (size_t k = 0; k < b.bytes / 4; k++)
        host[k] = (float)element(rank, 0, k);
    for (size_t i = 0, at = 1; i < MEMBERS; at += count[i++] + 1)
        from[i] = to[i] = (char *)b.gpu + at * 4;
    put(b);
    must(hvd_grouped_allreduce("grouped mixed", MEMBERS, from, to, count, HVD_FLOAT32, HVD_AVERAGE, &o),
         "grouped mixed");
    get(b);
    for (size_t i = 0, at = 0; i < MEMBERS; at += count[i++] + 1)
        for (size_t k = at; k <= at + count[i]; k++) {
            double want = k == at ? element(rank, 0, k) : sum_at(k) * 0.5 / size;
            if (host[k] < want - 0.001 || host[k] > want + 0.001)
                wrong("grouped mixed: element %zu is %g, not %g", k, host[k], want);
        }
    drop(b);
}

static void grouped_scatter(void)
{
    struct both in[MEMBERS], out[MEMBERS];
    const void *from[MEMBERS];
    void *to[MEMBERS];
    size_t rows[MEMBERS], row[MEMBERS], n = (size_t)size, r = (size_t)rank;

    for (int i = 0; i < MEMBERS; i++) {
        row[i] = (size_t)i + 1;
        rows[i] = rows_of(i, 4);
        in[i] = make(rows[i] * row[i]);
        out[i] = make((rows[i] / n + (r < rows[i] % n)) * row[i]);
        from[i] = in[i].gpu;
        to[i] = out[i].gpu;
        for (size_t k = 0; k < rows[i] * row[i]; k++)
            in[i].host[k] = element(rank, 0, k + (size_t)i);
        put(in[i]);
    }
    must(hvd_grouped_reducescatter("grouped scatter", MEMBERS, from, rows, row, HVD_INT32, HVD_SUM, to,
                                   &options),
         "grouped scatter");
    for (int i = 0; i < MEMBERS; i++) {
        size_t first = (rows[i] / n * r + (r < rows[i] % n ? r : rows[i] % n)) * row[i];
        get(out[i]);
        for (size_t k = 0; k < out[i].bytes / 4; k++)
            check("grouped scatter", out[i].host, k, sum_at(first + k + (size_t)i));
        drop(in[i]);
        drop(out[i]);
    }
}

/* Each rank to the next one of its pair. */
static void send(void)
{
    size_t n = rows_of(3, 3);
    struct both b = make(n);
    int other = rank ^ 1;

    if (other < size && rank < other) {
        for (size_t k = 0; k < n; k++)
            b.host[k] = element(rank, other, k);
        put(b);
        must(hvd_send("send", b.gpu, n, HVD_INT32, other, &options), "send");
        gpu_wait();
    } else if (other < size) {
        must(hvd_recv("send", b.gpu, n, HVD_INT32, other, &options), "receive");
        get(b);
        for (size_t k = 0; k < n; k++)
            check("receive", b.host, k, element(other, rank, k));
    }
    drop(b);
}

/* In a set of the odd ranks, or of the even ones. */
static void set(void)
{
    static hvd_set sets[2];
    int ranks[64], n = 0, first = rank % 2;

    if (size < 3 || size > 64)
        return;
    for (int half = 0; half < 2 && worker_round == 0; half++) {
        n = 0;
        for (int i = half; i < size; i += 2)
            ranks[n++] = i;
        must(hvd_set_add(ranks, n, &sets[half]), "hvd_set_add");
    }
    hvd_options o = options;
    o.set = sets[first];
    size_t count = 100;
    struct both b = make(count);
    for (size_t k = 0; k < count; k++)
        b.host[k] = element(rank, 0, k);
    put(b);
    must(hvd_allreduce("of a set", b.gpu, b.gpu, count, HVD_INT32, HVD_SUM, &o), "of a set");
    get(b);
    for (size_t k = 0; k < count; k++) {
        int32_t want = 0;
        for (int i = first; i < size; i += 2)
            want += element(i, 0, k);
        check("of a set", b.host, k, want);
    }
    drop(b);
}

/* Between them: host memory of the same job. */
static void host(void)
{
    int32_t x = rank + 1;

    must(hvd_allreduce("host", &x, &x, 1, HVD_INT32, HVD_SUM, &options), "host");
    check("host", &x, 0, size * (size + 1) / 2);
}

static const struct {
    const char *name;
    void (*run)(void);
} kinds[] = {{"sum", sum},
             {"max", max},
             {"xor", xor},
             {"average", average},
             {"scaled", scaled},
             {"broadcast", broadcast},
             {"gather", gather},
             {"pairs", pairs},
             {"scatter", scatter},
             {"grouped", grouped},
             {"grouped-mixed", grouped_mixed},
             {"grouped-scatter", grouped_scatter},
             {"send", send},
             {"set", set},
             {"host", host}};

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 3; i < argc; i++)
        if (strstr(name, argv[i]))
            return true;
    return argc <= 3;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        wrong("usage: gpu_kinds ROUNDS ELEMENTS [WORD ...]");
    gpu_begin(&rank, &size, &options);
    largest = strtoul(argv[2], NULL, 10) / ROW;
    for (worker_round = 0; worker_round < (int)strtol(argv[1], NULL, 10); worker_round++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (wanted(kinds[i].name, argc, argv))
                kinds[i].run();
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
