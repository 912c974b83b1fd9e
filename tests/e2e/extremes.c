/* A worker that combines numbers at the ends of their types' ranges, and such as show in which order and how
 * often they were rounded: 4 ranks get the bits that hvd.h promises, wherever they are. Prints "rank N: all
 * right" at the end; the first difference ends it with status 1.
 *
 *   extremes LARGEST     elements of the largest tensors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/worker.h"

#define RANKS   4
#define AT_ONCE 6

static const struct sample {
    const char *what;
    hvd_dtype dtype;
    hvd_op op;
    uint64_t in[RANKS], want; /* bits */
    double prescale, postscale;
    hvd_compression compression;
} samples[] = {
    {"average of 65504", HVD_FLOAT16, HVD_AVERAGE, {0x7bff, 0x7bff, 0x7bff, 0x7bff}, 0x7bff, 0, 0, 0},
    {"average of -65504", HVD_FLOAT16, HVD_AVERAGE, {0xfbff, 0xfbff, 0xfbff, 0xfbff}, 0xfbff, 0, 0, 0},
    {"average of 2^-24", HVD_FLOAT16, HVD_AVERAGE, {1, 1, 1, 1}, 1, 0, 0, 0},
    {"half of the average of 40000",
     HVD_FLOAT16,
     HVD_AVERAGE,
     {0x78e2, 0x78e2, 0x78e2, 0x78e2},
     0x74e2,
     0,
     0.5,
     0},
    {"average of 2 times 65504, halved",
     HVD_FLOAT16,
     HVD_AVERAGE,
     {0x7bff, 0x7bff, 0x7bff, 0x7bff},
     0x7bff,
     2,
     0.5,
     0},
    {"half of 40000 and 40000", HVD_FLOAT16, HVD_SUM, {0x78e2, 0x78e2, 0, 0}, 0x78e2, 0, 0.5, 0},
    {"sum of a quarter of 65504", HVD_FLOAT16, HVD_SUM, {0x7bff, 0x7bff, 0x7bff, 0x7bff}, 0x7bff, 0.25, 0, 0},
    {"2048 + 1 + 1 + 1", HVD_FLOAT16, HVD_SUM, {0x6800, 0x3c00, 0x3c00, 0x3c00}, 0x6802, 0, 0, 0},
    {"65504 + 65504 - 65504 - 65504", HVD_FLOAT16, HVD_SUM, {0x7bff, 0x7bff, 0xfbff, 0xfbff}, 0, 0, 0, 0},
    {"sum of 2^-24", HVD_FLOAT16, HVD_SUM, {1, 0, 1, 1}, 3, 0, 0, 0},
    {"65504 four times", HVD_FLOAT16, HVD_SUM, {0x7bff, 0x7bff, 0x7bff, 0x7bff}, 0x7c00, 0, 0, 0},
    {"300 * 300 / 512 / 256", HVD_FLOAT16, HVD_PRODUCT, {0x5cb0, 0x5cb0, 0x1800, 0x1c00}, 0x397e, 0, 0, 0},
    {"least of 2 times 65504, halved",
     HVD_FLOAT16,
     HVD_MIN,
     {0x7bff, 0x7bff, 0x7bff, 0x7bff},
     0x7bff,
     2,
     0.5,
     0},
    {"a NaN in an average", HVD_FLOAT16, HVD_AVERAGE, {0x3c00, 0xfd01, 0x3c00, 0x3c00}, 0x7e00, 0, 0, 0},
    {"a NaN in a greatest", HVD_FLOAT16, HVD_MAX, {0x3c00, 0x3c00, 0xfd01, 0x3c00}, 0x7e00, 0, 0, 0},
    {"least of 0 and -0", HVD_FLOAT16, HVD_MIN, {0x8000, 0, 0x8000, 0}, 0, 0, 0, 0},
    {"greatest of 0 and -0", HVD_FLOAT16, HVD_MAX, {0, 0x8000, 0, 0x8000}, 0x8000, 0, 0, 0},
    {"average of 2^125", HVD_BFLOAT16, HVD_AVERAGE, {0x7e00, 0x7e00, 0x7e00, 0x7e00}, 0x7e00, 0, 0, 0},
    {"average of the smallest", HVD_BFLOAT16, HVD_AVERAGE, {1, 1, 1, 1}, 1, 0, 0, 0},
    {"256 + 1 + 1 + 1", HVD_BFLOAT16, HVD_SUM, {0x4380, 0x3f80, 0x3f80, 0x3f80}, 0x4382, 0, 0, 0},
    {"least of 0 and -0", HVD_FLOAT32, HVD_MIN, {0, 0x80000000, 0, 0x80000000}, 0x80000000, 0, 0, 0},
    {"greatest of 0 and -0", HVD_FLOAT32, HVD_MAX, {0x80000000, 0, 0x80000000, 0}, 0, 0, 0, 0},
    {"a NaN in a sum", HVD_FLOAT32, HVD_SUM, {0x3f800000, 0x3f800000, 0xffc12345, 0}, 0x7fc00000, 0, 0, 0},
    {"a NaN in a least", HVD_FLOAT32, HVD_MIN, {0xffc12345, 0x3f800000, 0, 0}, 0x7fc00000, 0, 0, 0},
    {"average of 65504, compressed",
     HVD_FLOAT32,
     HVD_AVERAGE,
     {0x477fe000, 0x477fe000, 0x477fe000, 0x477fe000},
     0x477fe000,
     0,
     0,
     HVD_COMPRESSION_FLOAT16},
    {"half of 40000 and 40000, compressed",
     HVD_FLOAT32,
     HVD_SUM,
     {0x471c4000, 0x471c4000, 0, 0},
     0x471c4000,
     0,
     0.5,
     HVD_COMPRESSION_FLOAT16},
    {"average that wraps", HVD_UINT8, HVD_AVERAGE, {200, 200, 200, 200}, 8, 0, 0, 0},
    {"average that wraps", HVD_INT8, HVD_AVERAGE, {100, 100, 100, 100}, 0xe4, 0, 0, 0},
    {"average below 0", HVD_INT8, HVD_AVERAGE, {0xff, 0xff, 0xff, 0}, 0, 0, 0, 0},
    {"product that wraps", HVD_INT8, HVD_PRODUCT, {100, 1, 2, 1}, 0xc8, 0, 0, 0},
    {"sum of halves of 3", HVD_INT32, HVD_SUM, {3, 3, 3, 3}, 4, 0.5, 0, 0},
    {"4 times a sum of 100", HVD_UINT8, HVD_SUM, {50, 0, 50, 0}, 255, 0, 4, 0},
};

static int rank;

static size_t size_of(hvd_dtype dtype)
{
    return dtype == HVD_UINT8 || dtype == HVD_INT8         ? 1
           : dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 ? 2
                                                           : 4;
}

static void *filled(const struct sample *s, size_t n)
{
    size_t size = size_of(s->dtype);
    char *p = malloc(n * size);

    if (!p)
        wrong("no memory");
    for (size_t i = 0; i < n; i++)
        memcpy(p + i * size, &s->in[rank], size);
    return p;
}

static void check(const struct sample *s, const char *kind, const void *got, size_t n)
{
    size_t size = size_of(s->dtype);

    for (size_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)got + i * size, size);
        if (bits != s->want)
            wrong("%s (%s): element %zu of %zu is %#llx, not %#llx", s->what, kind, i, n,
                  (unsigned long long)bits, (unsigned long long)s->want);
    }
}

static void allreduce(const struct sample *s, const hvd_options *o, size_t n)
{
    void *in = filled(s, n), *out = filled(s, n);

    must(hvd_allreduce("one", in, out, n, s->dtype, s->op, o), s->what);
    check(s, "allreduce", out, n);
    must(hvd_allreduce("in place", in, in, n, s->dtype, s->op, o), s->what);
    check(s, "allreduce in place", in, n);
    free(in);
    free(out);
}

/* They travel as one where they may. */
static void many_at_once(const struct sample *s, const hvd_options *o, size_t n)
{
    hvd_handle handle[AT_ONCE];
    void *in = filled(s, n), *out[AT_ONCE];
    char name[16];

    for (int i = 0; i < AT_ONCE; i++) {
        out[i] = filled(s, n);
        snprintf(name, sizeof name, "many %d", i);
        must(hvd_allreduce_async(name, in, out[i], n, s->dtype, s->op, o, &handle[i]), s->what);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        must(hvd_wait(handle[i]), s->what);
        check(s, "several at once", out[i], n);
        free(out[i]);
    }
    free(in);
}

static void group_and_shared(const struct sample *s, const hvd_options *o, size_t n)
{
    void *in[2] = {filled(s, n), filled(s, 3)}, *out[2] = {filled(s, n), filled(s, 3)};
    const size_t counts[2] = {n, 3};
    const void *shared;

    must(hvd_grouped_allreduce("group", 2, (const void *const *)in, out, counts, s->dtype, s->op, o),
         s->what);
    check(s, "grouped", out[0], n);
    check(s, "grouped", out[1], 3);
    must(hvd_allreduce_shared("shared", in[0], n, s->dtype, s->op, o, &shared), s->what);
    check(s, "shared", shared, n);
    must(hvd_barrier(NULL), "barrier");
    for (int i = 0; i < 2; i++) {
        free(in[i]);
        free(out[i]);
    }
}

static void reducescatter(const struct sample *s, const hvd_options *o, size_t n)
{
    void *in = filled(s, n * RANKS), *out = filled(s, n);

    must(hvd_reducescatter("parts", in, n * RANKS, 1, s->dtype, s->op, out, o), s->what);
    check(s, "reducescatter", out, n);
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 300000;

    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    if (hvd_size() != RANKS)
        wrong("it takes %d ranks", RANKS);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *s = &samples[i];
        const hvd_options options = {
            .prescale = s->prescale, .postscale = s->postscale, .compression = s->compression};
        for (size_t n = 1; n <= largest; n = n * 60 + 1) { /* with the list, all at once, by pieces */
            allreduce(s, &options, n);
            reducescatter(s, &options, n);
        }
        many_at_once(s, &options, 5000);
        group_and_shared(s, &options, 9000);
    }
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
