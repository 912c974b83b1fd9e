/* A worker whose results are to be the same bits wherever its ranks are: rank 0 prints a line with a number
 * of all results for each case, to be compared between jobs of other placements. Every rank's result is
 * checked: the same bits on all ranks, and near what long double gives.
 *
 *   placed adasum|flat|sums     flat: 16-bit types are rounded once, whatever the placement
 *
 * The elements are made to show an order: large ones that cancel, and small ones beside them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/half.h"
#include "tests/e2e/worker.h"

#define SIZE_MAX_HERE 16

static int rank, size;
static int rounded_once;
static uint64_t digest; /* of this rank's results in the case */

static const struct type {
    hvd_dtype dtype;
    const char *name;
    size_t size;
    double error; /* of one rounding */
    double large;
} types[] = {{HVD_FLOAT16, "float16", 2, 0x1p-11, 2048},
             {HVD_BFLOAT16, "bfloat16", 2, 0x1p-8, 1e8},
             {HVD_FLOAT32, "float32", 4, 0x1p-24, 1e8},
             {HVD_FLOAT64, "float64", 8, 0x1p-53, 1e17}};

static void put(void *to, size_t i, hvd_dtype t, double x)
{
    if (t == HVD_FLOAT64)
        ((double *)to)[i] = x;
    else if (t == HVD_FLOAT32)
        ((float *)to)[i] = (float)x;
    else
        ((uint16_t *)to)[i] = t == HVD_FLOAT16 ? float16_narrow((float)x) : bfloat16_narrow((float)x);
}

static double get(const void *from, size_t i, hvd_dtype t)
{
    if (t == HVD_FLOAT64)
        return ((const double *)from)[i];
    if (t == HVD_FLOAT32)
        return (double)((const float *)from)[i];
    uint16_t h = ((const uint16_t *)from)[i];
    return (double)(t == HVD_FLOAT16 ? float16_widen(h) : bfloat16_widen(h));
}

/* ---- the results --------------------------------------------------------------------------------------- */

static void add_digest(const void *data, size_t bytes)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ p[i]) * 0x100000001b3;
}

/* All ranks have their results of the case in `digest`; `same`: the results are equal. */
static void end_case(const char *what, const char *type, size_t count, int same)
{
    uint64_t all[SIZE_MAX_HERE];

    must(hvd_allgather("digests", &digest, 1, 1, HVD_UINT64, all, (size_t)size, NULL, NULL), "digests");
    digest = 0xcbf29ce484222325;
    for (int i = 0; i < size; i++) {
        if (same && all[i] != all[0])
            wrong("%s of %zu %s: rank %d has other bits than rank 0", what, count, type, i);
        add_digest(&all[i], sizeof all[i]);
    }
    if (rank == 0)
        printf("%s of %zu %s: %016llx\n", what, count, type, (unsigned long long)digest);
    digest = 0xcbf29ce484222325;
}

/* ---- adasum -------------------------------------------------------------------------------------------- */

/* Element i of the gradient that rank r of the set gives. */
static double gradient(int r, size_t i)
{
    uint32_t h = ((uint32_t)i + 1) * 2654435761u * (uint32_t)(2 * r + 3);

    return (double)(h >> 12) / (1 << 19) - 1 + (r == 2 ? 0 : 0.25);
}

static void reference(long double **v, int vectors, size_t count)
{
    for (int d = 1; d < vectors; d *= 2)
        for (int k = 0; k + d < vectors; k += 2 * d) {
            long double ab = 0, aa = 0, bb = 0, *a = v[k], *b = v[k + d];
            for (size_t i = 0; i < count; i++) {
                ab += a[i] * b[i];
                aa += a[i] * a[i];
                bb += b[i] * b[i];
            }
            for (size_t i = 0; i < count; i++)
                a[i] = (aa > 0 ? 1 - ab / aa / 2 : 1) * a[i] + (bb > 0 ? 1 - ab / bb / 2 : 1) * b[i];
        }
}

static void check_adasum(const struct type *t, size_t count, const void *got, const int *member, int n)
{
    long double *v[SIZE_MAX_HERE];
    void *one = malloc(8);

    for (int r = 0; r < n; r++) {
        if (!(v[r] = malloc(count * sizeof *v[r])) || !one)
            wrong("no memory");
        for (size_t i = 0; i < count; i++) {
            put(one, 0, t->dtype, gradient(member[r], i));
            v[r][i] = (long double)get(one, 0, t->dtype);
        }
    }
    reference(v, n, count);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(get(got, i, t->dtype) - (double)v[0][i]) <= t->error * 8 * n))
            wrong("adasum of %zu %s: element %zu is %g, not %Lg", count, t->name, i, get(got, i, t->dtype),
                  v[0][i]);
    for (int r = 0; r < n; r++)
        free(v[r]);
    free(one);
}

static void release(void *in, void *out, unsigned form)
{
    if (out != in)
        free(out);
    if (form & 1)
        hvd_free(in);
    else
        free(in);
}

static void adasum(const struct type *t, size_t count, unsigned form, const int *member, int n, hvd_set set)
{
    size_t bytes = count * t->size;
    void *in = form & 1 ? hvd_alloc(bytes) : malloc(bytes), *out = form & 2 ? malloc(bytes) : in;
    const hvd_options options = {.set = set};
    hvd_handle h;

    if (!in || !out)
        wrong("no memory");
    for (size_t i = 0; i < count; i++)
        put(in, i, t->dtype, gradient(rank, i));
    if (form & 4) {
        must(hvd_allreduce_async("adasum", in, out, count, t->dtype, HVD_ADASUM, &options, &h), "adasum");
        must(hvd_wait(h), "wait");
    } else {
        must(hvd_allreduce("adasum", in, out, count, t->dtype, HVD_ADASUM, &options), "adasum");
    }
    check_adasum(t, count, out, member, n);
    add_digest(out, bytes);
    release(in, out, form);
}

static void all_adasums(void)
{
    static const size_t counts[] = {1, 37, 513, 8192, 8193, 40001, 100000};
    int everybody[SIZE_MAX_HERE], outer[] = {1, 2};
    unsigned form = 0;
    hvd_set set;

    for (int i = 0; i < size; i++)
        everybody[i] = i;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            adasum(&types[t], counts[c], form++, everybody, size, HVD_WORLD);
            end_case("adasum", types[t].name, counts[c], 1);
        }
    must(hvd_set_add(outer, 2, &set), "a set");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (rank == 1 || rank == 2)
            adasum(&types[t], 20000, form++, outer, 2, set);
        end_case("adasum in a set", types[t].name, 20000, 0);
    }
    must(hvd_set_add((const int[]){0, 1, 3}, 3, &set), "a set of three");
    const hvd_options options = {.set = set};
    float x = 1;
    if (rank != 2 && (hvd_allreduce("odd", &x, &x, 1, HVD_FLOAT32, HVD_ADASUM, &options) != HVD_ERR_INVALID ||
                      !strstr(hvd_last_error(), "adasum needs a power of two of ranks")))
        wrong("adasum of three ranks");
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* In the order of ranks the large ones cancel one by one, in another order they swallow the small ones at
 * another place. Values that the type holds exactly. */
static double addend(const struct type *t, int r, size_t i)
{
    double small = (double)((i * 7 + (size_t)r * 5) % 13 + 1) / 8;
    unsigned at = ((unsigned)i + (unsigned)r) % (unsigned)size;

    return at == 0 ? t->large : at == 2 ? -t->large : small;
}

static void check_sum(const struct type *t, const void *got, size_t first, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++) {
        long double want = 0;
        for (int r = 0; r < size; r++)
            want += (long double)addend(t, r, first + i);
        want *= (long double)scale;
        long double off = fabsl((long double)get(got, i, t->dtype) - want);
        /* Partial sums are as large as the large ones. */
        long double sums = t->size == 2 && rounded_once ? 0x1p-24L : (long double)t->error;
        if (!(off <= (long double)scale * sums * size * (long double)t->large * 2 +
                         fabsl(want) * (long double)t->error))
            wrong("sum of %s: element %zu is %g, not %Lg", t->name, first + i, get(got, i, t->dtype), want);
    }
}

static void sum(const struct type *t, size_t count, unsigned form)
{
    size_t bytes = count * t->size;
    void *in = form & 1 ? hvd_alloc(bytes) : malloc(bytes), *out = form & 2 ? malloc(bytes) : in;
    const hvd_options options = {.prescale = form & 4 ? 0.5 : 0, .postscale = form & 4 ? 0.25 : 0};
    hvd_op op = form & 8 ? HVD_AVERAGE : HVD_SUM;
    double scale = (form & 4 ? 0.125 : 1) / (op == HVD_AVERAGE ? size : 1);

    if (!in || !out)
        wrong("no memory");
    for (size_t i = 0; i < count; i++)
        put(in, i, t->dtype, addend(t, rank, i));
    must(hvd_allreduce("sum", in, out, count, t->dtype, op, &options), "sum");
    check_sum(t, out, 0, count, scale);
    add_digest(out, bytes);
    end_case(op == HVD_AVERAGE ? "average" : "sum", t->name, count, 1);
    release(in, out, form);
}

/* A group, and many tensors at once. */
static void several(const struct type *t)
{
    enum { TENSORS = 6 };
    static const size_t count[TENSORS] = {3, 700, 5000, 1, 64, 9000};
    void *data[TENSORS], *copy[TENSORS];
    hvd_handle h[TENSORS];

    for (int k = 0; k < TENSORS; k++) {
        data[k] = malloc(count[k] * t->size);
        copy[k] = malloc(count[k] * t->size);
        if (!data[k] || !copy[k])
            wrong("no memory");
        for (size_t i = 0; i < count[k]; i++)
            put(data[k], i, t->dtype, addend(t, rank, i));
        memcpy(copy[k], data[k], count[k] * t->size);
    }
    must(hvd_grouped_allreduce("group", TENSORS, (const void *const *)data, data, count, t->dtype, HVD_SUM,
                               NULL),
         "group");
    for (int k = 0; k < TENSORS; k++) {
        char name[16];
        snprintf(name, sizeof name, "one.%d", k);
        must(hvd_allreduce_async(name, copy[k], copy[k], count[k], t->dtype, HVD_SUM, NULL, &h[k]), "async");
    }
    for (int k = 0; k < TENSORS; k++) {
        must(hvd_wait(h[k]), "wait");
        check_sum(t, data[k], 0, count[k], 1);
        if (memcmp(data[k], copy[k], count[k] * t->size) != 0)
            wrong("a group has other bits than its tensors");
        add_digest(data[k], count[k] * t->size);
        free(data[k]);
        free(copy[k]);
    }
    end_case("six", t->name, 0, 1);
}

static void scattered(const struct type *t, size_t rows)
{
    size_t n = (size_t)size, me = (size_t)rank, mine = rows / n + (me < rows % n);
    size_t first = rows / n * me + (me < rows % n ? me : rows % n);
    char *in = malloc(rows * t->size), *out = malloc(mine * t->size + 1);
    const void *shared;

    if (!in || !out)
        wrong("no memory");
    for (size_t i = 0; i < rows; i++)
        put(in, i, t->dtype, addend(t, rank, i));
    must(hvd_reducescatter("scatter", in, rows, 1, t->dtype, HVD_SUM, out, NULL), "reducescatter");
    check_sum(t, out, first, mine, 1);
    add_digest(out, mine * t->size);
    end_case("reducescatter", t->name, rows, 0);
    must(hvd_allreduce_shared("shared", in, rows, t->dtype, HVD_SUM, NULL, &shared), "shared");
    check_sum(t, shared, 0, rows, 1);
    add_digest(shared, rows * t->size);
    end_case("shared", t->name, rows, 1);
    free(in);
    free(out);
}

static void all_sums(void)
{
    static const size_t counts[] = {1, 37, 600, 5000, 70001, 600000};
    unsigned form = 0;

    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            sum(&types[t], counts[c], form += 7);
        several(&types[t]);
        scattered(&types[t], 13);
        scattered(&types[t], 50003);
    }
}

int main(int argc, char **argv)
{
    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    digest = 0xcbf29ce484222325;
    if (size > SIZE_MAX_HERE)
        wrong("at most %d ranks", SIZE_MAX_HERE);
    rounded_once = argc > 1 && strcmp(argv[1], "flat") == 0;
    if (argc > 1 && strcmp(argv[1], "adasum") == 0)
        all_adasums();
    else
        all_sums();
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
