/* One measurement of hvd_bench: repeated with a barrier before each iteration. Every rank times its own part;
 * an iteration took as long as its slowest rank (the largest of the ranks' times, collected afterwards).
 * Then as many calls follow each other without barriers (the loop).
 * Without --iterations their number falls with the size, and again when the warm-up shows that they would
 * take longer than --limit-ms. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

#define FEWEST 3  /* iterations, however long one takes */
#define WARMUP 33 /* at least; hosts of one rank exchange a name themselves from its 32nd operation on */

int bench_size;

void *bench_alloc(const struct options *o, size_t bytes)
{
    const size_t room = bytes > 0 ? bytes : 1;
    void *memory = o->buffer->value ? hvd_alloc(room) : calloc(1, room);

    if (memory == NULL)
        bench_fail("no memory for %zu bytes%s%s", bytes, o->buffer->value ? ": " : "",
                   o->buffer->value ? hvd_last_error() : "");
    return memory;
}

void bench_free(const struct options *o, void *memory)
{
    if (o->buffer->value)
        hvd_free(memory);
    else
        free(memory);
}

static int iterations_for(size_t bytes)
{
    return bytes <= 65536 ? 200000 : bytes <= (1 << 20) ? 400 : bytes <= (16 << 20) ? 60 : 20;
}

/* Times `n` iterations into us[], the slowest rank's; us[n] is all of it, barriers included. */
static void repeat(const struct measurement *m, int n, double *us)
{
    const double start = bench_now_us();

    for (int i = 0; i < n; i++) {
        double before;

        bench_check(hvd_barrier(NULL), "hvd_barrier");
        before = bench_now_us();
        m->once(m->context);
        us[i] = bench_now_us() - before;
    }
    us[n] = bench_now_us() - start;
    bench_check(hvd_allreduce("bench.times", us, us, (size_t)n + 1, HVD_FLOAT64, HVD_MAX, NULL),
                "hvd_allreduce");
}

/* One call after another: the time of each, the slowest rank's. */
static double time_loop(const struct measurement *m, int n)
{
    double us;

    bench_check(hvd_barrier(NULL), "hvd_barrier");
    us = bench_now_us();
    for (int i = 0; i < n; i++)
        m->once(m->context);
    us = (bench_now_us() - us) / n;
    bench_check(hvd_allreduce("bench.times", &us, &us, 1, HVD_FLOAT64, HVD_MAX, NULL), "hvd_allreduce");
    return us;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_line(const struct options *o, const struct measurement *m, int n, double *us,
                       double loop_us)
{
    const double each = m->names > 0 ? (double)m->names : 1;
    double median, low, high, least, most;

    qsort(us, (size_t)n, sizeof *us, compare);
    median = (n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2) / each;
    low = us[n / 10] / each;
    high = us[n - 1 - n / 10] / each;
    least = us[0] / each;
    most = us[n - 1] / each;
    if (o->json) {
        printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"hosts\":%d,\"buffer\":\"%s\",\"dtype\":\"%s\",",
               m->label, m->bytes, bench_size, hvd_cross_size(), o->buffer->name, o->dtype->name);
        if (m->names > 0)
            printf("\"names\":%zu,", m->names);
        printf("\"iterations\":%d,\"median_us\":%.2f,\"p10_us\":%.2f,\"p90_us\":%.2f,\"min_us\":%.2f,"
               "\"max_us\":%.2f,\"loop_us\":%.2f}\n",
               n, median, low, high, least, most, loop_us / each);
    } else {
        printf("%-13s %12zu %10d %12.2f %12.2f %12.2f %12.2f %12.2f %12.2f %9.3f\n", m->label,
               m->names > 0 ? m->names : m->bytes, n, median, low, high, least, most, loop_us / each,
               (double)m->bytes / median / 1e3);
    }
    fflush(stdout);
}

void bench_measure(const struct options *o, const struct measurement *m)
{
    const double limit_us = o->limit_ms * 1e3;
    int n = o->iterations > 0 ? o->iterations : m->iterations > 0 ? m->iterations : iterations_for(m->bytes);
    const int most = n;
    const int few = (n < 20000 ? n : 20000) / 20 + 2;
    const int warmup = o->warmup >= 0 ? o->warmup : few > WARMUP ? few : WARMUP;
    double *us = calloc((size_t)(n > warmup ? n : warmup) + 1, sizeof *us), loop_us;

    if (us == NULL)
        bench_fail("no memory for %d times", n);
    if (warmup > 0) {
        repeat(m, warmup, us); /* the same numbers on every rank, so all choose the same n */
        if (o->iterations < 0 && us[warmup] / warmup * n > limit_us)
            n = (int)(limit_us / (us[warmup] / warmup));
        n = n < FEWEST ? FEWEST : n;
        n = n < most ? n : most;
    }
    repeat(m, n, us);
    loop_us = time_loop(m, n);
    if (bench_rank == 0)
        print_line(o, m, n, us, loop_us);
    free(us);
}

void bench_heading(const struct options *o)
{
    if (bench_rank == 0 && !o->json)
        printf("ranks %d, hosts %d, buffer %s, dtype %s\n%-13s %12s %10s %12s %12s %12s %12s %12s %12s %9s\n",
               bench_size, hvd_cross_size(), o->buffer->name, o->dtype->name, "op",
               o->growths > 0 ? "names" : "bytes", "iterations", "median us", "p10 us", "p90 us", "min us",
               "max us", "loop us", "GB/s");
}
