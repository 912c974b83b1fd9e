/* hvd_bench - how long the engine takes for one operation. Runs under hvdrun; rank 0 prints one line per
 * size.
 *
 * For each size: the result is checked, then the operation is repeated in place with a barrier before each
 * iteration. Every rank times its own part; an iteration took as long as its slowest rank (the largest of the
 * ranks' times, collected afterwards). Without --iterations their number falls with the size, and again when
 * the warm-up shows that they would take more than about a second. */
#include <hvd.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZES_MAX      64
#define BYTES_MAX      (UINT64_C(1) << 34)
#define ITERATIONS_MAX 1000000

enum operation { ALLREDUCE, BROADCAST, BARRIER };

struct choice {
    const char *name;
    int value;
};

static const struct choice operations[] = {
    {"allreduce", ALLREDUCE}, {"broadcast", BROADCAST}, {"barrier", BARRIER}, {NULL, 0}};
static const struct choice buffers[] = {{"malloc", 0}, {"arena", 1}, {NULL, 0}};
static const struct choice dtypes[] = {
    {"f32", HVD_FLOAT32}, {"f64", HVD_FLOAT64}, {"i32", HVD_INT32}, {"i64", HVD_INT64}, {NULL, 0}};

struct options {
    const struct choice *op, *buffer, *dtype;
    size_t bytes[SIZES_MAX];
    int sizes;
    int iterations, warmup; /* -1: chosen by the size */
    bool json, help;
    char fault[256];
};

static int rank, size;

/* ---- command line -------------------------------------------------------------------------------------- */

static const struct choice *choose(struct options *o, const char *option, const struct choice *list,
                                   const char *value)
{
    char names[128] = "";
    size_t used = 0;

    for (const struct choice *c = list; c->name != NULL; c++) {
        if (strcmp(c->name, value) == 0)
            return c;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", c->name);
    }
    snprintf(o->fault, sizeof o->fault, "%s is one of %s, not '%.64s'", option, names, value);
    return NULL;
}

static int count_of(struct options *o, const char *option, const char *value, int low, int *to)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || n < low || n > ITERATIONS_MAX) {
        snprintf(o->fault, sizeof o->fault, "%s is %d to %d, not '%.64s'", option, low, ITERATIONS_MAX,
                 value);
        return -1;
    }
    *to = (int)n;
    return 0;
}

/* "4,64K,1M": powers of 1024. */
static int sizes_of(struct options *o, const char *value)
{
    const char *at = value;

    o->sizes = 0;
    for (;;) {
        char *end;
        unsigned long long n;
        int shift = 0;

        errno = 0;
        n = strtoull(at, &end, 10);
        if (*end == 'K' || *end == 'M' || *end == 'G')
            shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
        if (*at < '0' || *at > '9' || errno != 0 || n == 0 || n > BYTES_MAX >> shift || o->sizes == SIZES_MAX)
            break;
        o->bytes[o->sizes++] = (size_t)(n << shift);
        end += shift > 0;
        if (*end == '\0')
            return 0;
        if (*end != ',')
            break;
        at = end + 1;
    }
    snprintf(o->fault, sizeof o->fault, "--bytes is up to %d sizes from 1 to 16G like 4,64K,1M, not '%.64s'",
             SIZES_MAX, value);
    return -1;
}

static int set_option(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "--op") == 0)
        return (o->op = choose(o, name, operations, value)) != NULL ? 0 : -1;
    if (strcmp(name, "--buffer") == 0)
        return (o->buffer = choose(o, name, buffers, value)) != NULL ? 0 : -1;
    if (strcmp(name, "--dtype") == 0)
        return (o->dtype = choose(o, name, dtypes, value)) != NULL ? 0 : -1;
    if (strcmp(name, "--bytes") == 0)
        return sizes_of(o, value);
    if (strcmp(name, "--iterations") == 0)
        return count_of(o, name, value, 1, &o->iterations);
    if (strcmp(name, "--warmup") == 0)
        return count_of(o, name, value, 0, &o->warmup);
    snprintf(o->fault, sizeof o->fault, "unknown option '%.64s' (--help lists them)", name);
    return -1;
}

static size_t element_size(const struct choice *dtype)
{
    return dtype->value == HVD_FLOAT64 || dtype->value == HVD_INT64 ? 8 : 4;
}

static int parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){
        .op = operations, .buffer = buffers, .dtype = dtypes, .iterations = -1, .warmup = -1};
    if (sizes_of(o, "4,4K,64K,1M,16M,64M") != 0)
        return -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            o->help = true;
        } else if (i + 1 == argc) {
            snprintf(o->fault, sizeof o->fault,
                     "'%.64s' is unknown or needs a value (--help lists the options)", argv[i]);
            return -1;
        } else {
            if (set_option(o, argv[i], argv[i + 1]) != 0)
                return -1;
            i++;
        }
    }
    for (int i = 0; i < o->sizes; i++)
        if (o->bytes[i] % element_size(o->dtype) != 0) {
            snprintf(o->fault, sizeof o->fault, "--bytes %zu is not a multiple of %zu (%s)", o->bytes[i],
                     element_size(o->dtype), o->dtype->name);
            return -1;
        }
    return 0;
}

static void help(void)
{
    puts("usage: hvdrun -np N hvd_bench [option ...]\n"
         "  --op allreduce|broadcast|barrier  (allreduce)\n"
         "  --bytes N[K|M|G],...              (4,4K,64K,1M,16M,64M)\n"
         "  --buffer malloc|arena             ordinary memory or hvd_alloc's (malloc)\n"
         "  --dtype f32|f64|i32|i64           (f32)\n"
         "  --iterations N, --warmup N        (by size, about a second each)\n"
         "  --json                            one object per size, a line each");
}

/* ---- one size ------------------------------------------------------------------------------------------ */

static void check(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "hvd_bench: rank %d: %s: %s\n", rank, what, hvd_last_error());
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void run_once(const struct options *o, void *buffer, size_t count)
{
    hvd_dtype dtype = (hvd_dtype)o->dtype->value;

    if (o->op->value == ALLREDUCE)
        check(hvd_allreduce("bench", buffer, buffer, count, dtype, HVD_SUM, NULL), "hvd_allreduce");
    else if (o->op->value == BROADCAST)
        check(hvd_broadcast("bench", buffer, count, dtype, 0, NULL), "hvd_broadcast");
    else
        check(hvd_barrier(NULL), "hvd_barrier");
}

static double get(const void *buffer, size_t i, int dtype)
{
    switch (dtype) {
    case HVD_FLOAT32:
        return ((const float *)buffer)[i];
    case HVD_FLOAT64:
        return ((const double *)buffer)[i];
    case HVD_INT32:
        return ((const int32_t *)buffer)[i];
    default:
        return (double)((const int64_t *)buffer)[i];
    }
}

static void put(void *buffer, size_t i, int dtype, int value)
{
    switch (dtype) {
    case HVD_FLOAT32:
        ((float *)buffer)[i] = (float)value;
        break;
    case HVD_FLOAT64:
        ((double *)buffer)[i] = value;
        break;
    case HVD_INT32:
        ((int32_t *)buffer)[i] = value;
        break;
    default:
        ((int64_t *)buffer)[i] = value;
        break;
    }
}

/* What rank r has at i: small whole numbers that change along the buffer and from rank to rank, so sums are
 * exact and a chunk that went missing or to another place shows. */
static int value_of(int r, size_t i)
{
    return (int)(i % 61) + r + 1;
}

static void check_data(const struct options *o, void *buffer, size_t count)
{
    const int dtype = o->dtype->value;

    for (size_t i = 0; i < count; i++)
        put(buffer, i, dtype, value_of(rank, i));
    run_once(o, buffer, count);
    for (size_t i = 0; i < count; i++) {
        double want = value_of(0, i), have = get(buffer, i, dtype);

        if (o->op->value == ALLREDUCE)
            want = (double)size * (double)(i % 61) + (double)size * (size + 1) / 2;
        if (have != want) {
            fprintf(stderr, "hvd_bench: rank %d: %s of %zu elements is wrong: element %zu is %g, not %g\n",
                    rank, o->op->name, count, i, have, want);
            exit(1);
        }
    }
}

/* The last rank comes 50 ms late: everybody else must have been held for most of that. A rank that was itself
 * kept from running that long may try again. */
static void check_barrier(void)
{
    for (int try = 0; try < 5; try++) {
        const bool late = rank == size - 1;
        int32_t held = 1;
        double before;

        check(hvd_barrier(NULL), "hvd_barrier");
        before = now_us();
        if (late)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        check(hvd_barrier(NULL), "hvd_barrier");
        if (!late)
            held = now_us() - before > 10000;
        check(hvd_allreduce("bench.held", &held, &held, 1, HVD_INT32, HVD_MIN, NULL), "hvd_allreduce");
        if (held)
            return;
    }
    fprintf(stderr,
            "hvd_bench: rank %d: hvd_barrier is wrong: it does not hold ranks until the last one comes\n",
            rank);
    exit(1);
}

static int iterations_for(const struct options *o, size_t bytes)
{
    if (o->iterations > 0)
        return o->iterations;
    return bytes <= 65536 ? 2000 : bytes <= (1 << 20) ? 400 : bytes <= (16 << 20) ? 60 : 20;
}

/* Times `n` iterations into us[]: the slowest rank's. Zeros are reduced: they stay zeros in place, however
 * often. */
static void measure(const struct options *o, void *buffer, size_t count, int n, double *us)
{
    const double start = now_us();

    memset(buffer, 0, count * element_size(o->dtype));
    for (int i = 0; i < n; i++) {
        double before;

        check(hvd_barrier(NULL), "hvd_barrier");
        before = now_us();
        run_once(o, buffer, count);
        us[i] = now_us() - before;
    }
    us[n] = now_us() - start;
    check(hvd_allreduce("bench.times", us, us, (size_t)n + 1, HVD_FLOAT64, HVD_MAX, NULL), "hvd_allreduce");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(const struct options *o, size_t bytes, int n, double *us)
{
    double median;

    qsort(us, (size_t)n, sizeof *us, compare);
    median = n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
    if (o->json)
        printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"hosts\":%d,\"buffer\":\"%s\",\"dtype\":\"%s\","
               "\"iterations\":%d,"
               "\"median_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}\n",
               o->op->name, bytes, size, hvd_cross_size(), o->buffer->name, o->dtype->name, n, median, us[0],
               us[n - 1]);
    else
        printf("%-10s %12zu %10d %12.2f %12.2f %12.2f %9.3f\n", o->op->name, bytes, n, median, us[0],
               us[n - 1], (double)bytes / median / 1e3);
    fflush(stdout);
}

static void bench_size(const struct options *o, size_t bytes)
{
    const size_t count = bytes / element_size(o->dtype), room = bytes > 0 ? bytes : 1;
    void *buffer = o->buffer->value ? hvd_alloc(room) : calloc(1, room);
    int n = iterations_for(o, bytes);
    int warmup = o->warmup >= 0 ? o->warmup : n / 10 + 2;
    double *us = calloc((size_t)(n > warmup ? n : warmup) + 1, sizeof *us);

    if (buffer == NULL || us == NULL) {
        fprintf(stderr, "hvd_bench: rank %d: no memory for %zu bytes%s%s\n", rank, bytes,
                buffer == NULL ? ": " : "", buffer == NULL && o->buffer->value ? hvd_last_error() : "");
        exit(1);
    }
    if (o->op->value == BARRIER)
        check_barrier();
    else
        check_data(o, buffer, count);
    if (warmup > 0) {
        measure(o, buffer, count, warmup, us); /* the same numbers on every rank, so all choose the same n */
        if (o->iterations < 0 && us[warmup] / warmup * n > 1e6)
            n = (int)(1e6 / (us[warmup] / warmup)) + 5;
    }
    if (n > iterations_for(o, bytes))
        n = iterations_for(o, bytes);
    measure(o, buffer, count, n, us);
    if (rank == 0)
        report(o, bytes, n, us);
    free(us);
    if (o->buffer->value)
        hvd_free(buffer);
    else
        free(buffer);
}

int main(int argc, char **argv)
{
    struct options o;
    int bad = parse(argc, argv, &o);

    if (!bad && o.help) {
        help();
        return 0;
    }
    check(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    if (bad && rank == 0)
        fprintf(stderr, "hvd_bench: %s\n", o.fault);
    if (!bad) {
        if (o.op->value == BARRIER) {
            o.sizes = 1;
            o.bytes[0] = 0;
        }
        if (rank == 0 && !o.json)
            printf("ranks %d, hosts %d, buffer %s, dtype %s\n%-10s %12s %10s %12s %12s %12s %9s\n", size,
                   hvd_cross_size(), o.buffer->name, o.dtype->name, "op", "bytes", "iterations", "median us",
                   "min us", "max us", "GB/s");
        for (int i = 0; i < o.sizes; i++)
            bench_size(&o, o.bytes[i]);
    }
    check(hvd_shutdown(), "hvd_shutdown");
    return bad ? 2 : 0;
}
