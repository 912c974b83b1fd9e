/* Reductions and chunks against plain arithmetic. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/chunk.h"
#include "collectives/algorithms/dtype.h"
#include "collectives/algorithms/reduce.h"

#define INPUTS 5
#define MOST   3000 /* more than one block of the inner loop */

static const hvd_dtype dtypes[] = {HVD_INT32, HVD_INT64, HVD_FLOAT32, HVD_FLOAT64};
static const hvd_op ops[] = {HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX};

/* Small integers, so that a sum is exact in every type. */
static double value(int input, size_t i)
{
    return (double)((int)((i * 37 + (size_t)input * 101) % 199) - 99);
}

static void put(void *array, size_t i, hvd_dtype dtype, double v)
{
    switch (dtype) {
    case HVD_INT32:
        ((int32_t *)array)[i] = (int32_t)v;
        break;
    case HVD_INT64:
        ((int64_t *)array)[i] = (int64_t)v;
        break;
    case HVD_FLOAT32:
        ((float *)array)[i] = (float)v;
        break;
    case HVD_FLOAT64:
        ((double *)array)[i] = v;
        break;
    }
}

static double get(const void *array, size_t i, hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_INT32:
        return ((const int32_t *)array)[i];
    case HVD_INT64:
        return (double)((const int64_t *)array)[i];
    case HVD_FLOAT32:
        return ((const float *)array)[i];
    default:
        return ((const double *)array)[i];
    }
}

static double expected(size_t i, hvd_dtype dtype, hvd_op op, int inputs)
{
    double r = value(0, i);

    for (int k = 1; k < inputs; k++) {
        double v = value(k, i);
        r = op == HVD_MIN ? fmin(r, v) : op == HVD_MAX ? fmax(r, v) : r + v;
    }
    if (op != HVD_AVERAGE)
        return r;
    r /= inputs;
    return dtype == HVD_INT32 || dtype == HVD_INT64 ? trunc(r) : dtype == HVD_FLOAT32 ? (double)(float)r : r;
}

/* count elements from `first` on; output 0 is in place on input 0, output 1 is separate memory. */
static void check_range(hvd_dtype dtype, hvd_op op, int inputs, size_t first, size_t count)
{
    size_t size = dtype_size(dtype);
    void *memory[INPUTS], *apart = calloc(MOST, size);
    const void *in[INPUTS];

    for (int k = 0; k < inputs; k++) {
        in[k] = memory[k] = malloc(MOST * size);
        for (size_t i = 0; i < MOST; i++)
            put(memory[k], i, dtype, value(k, i));
    }
    void *out[] = {memory[0], apart};
    struct reduce_job job = {in, (size_t)inputs, out, 2, dtype, op, (uint32_t)inputs};
    reduce_range(&job, first, count);
    for (size_t i = 0; i < MOST; i++) {
        bool inside = i >= first && i < first + count;
        double want = expected(i, dtype, op, inputs);
        if (get(apart, i, dtype) != (inside ? want : 0))
            ck_abort_msg("%s %s of %d at %zu: %g, not %g", op_name(op), dtype_name(dtype), inputs, i,
                         get(apart, i, dtype), want);
        if (get(memory[0], i, dtype) != (inside ? want : value(0, i)))
            ck_abort_msg("in place at %zu: %g", i, get(memory[0], i, dtype));
        for (int k = 1; k < inputs; k++)
            if (get(memory[k], i, dtype) != value(k, i))
                ck_abort_msg("input %d has changed at %zu", k, i);
    }
    for (int k = 0; k < inputs; k++)
        free(memory[k]);
    free(apart);
}

START_TEST(every_op_of_every_type)
{
    hvd_dtype dtype = dtypes[_i % 4];
    hvd_op op = ops[_i / 4];

    for (int inputs = 1; inputs <= INPUTS; inputs += 2) {
        check_range(dtype, op, inputs, 0, MOST);
        check_range(dtype, op, inputs, 17, 1);
        check_range(dtype, op, inputs, 1000, 1777);
        check_range(dtype, op, inputs, 5, 0);
    }
}
END_TEST

START_TEST(into_and_divide)
{
    float a[3] = {1, -2, 8}, b[3] = {4, -5, 6};
    int32_t i[3] = {INT32_MAX, -7, 7}, one[3] = {1, 0, 0};
    int64_t l[2] = {-9, 9};

    reduce_into(a, b, 3, HVD_FLOAT32, HVD_MAX);
    ck_assert(a[0] == 4 && a[1] == -2 && a[2] == 8);
    reduce_into(a, b, 3, HVD_FLOAT32, HVD_AVERAGE);
    ck_assert(a[0] == 8 && a[1] == -7 && a[2] == 14);
    reduce_divide(a, 3, HVD_FLOAT32, 2);
    ck_assert(a[0] == 4 && a[1] == -3.5f && a[2] == 7);
    reduce_into(i, one, 3, HVD_INT32, HVD_SUM);
    ck_assert_int_eq(i[0], INT32_MIN); /* wraps */
    reduce_divide(i + 1, 2, HVD_INT32, 2);
    ck_assert(i[1] == -3 && i[2] == 3); /* toward zero */
    reduce_divide(l, 2, HVD_INT64, 2);
    ck_assert(l[0] == -4 && l[1] == 4);
}
END_TEST

/* The order is part of the result: 1e8 + 1 - 1e8 in f32 depends on it. */
START_TEST(the_order_of_inputs_is_kept)
{
    float x[20000], y[20000], z[20000], out[20000], again[20000];
    const void *in[] = {x, y, z};
    void *first[] = {out}, *second[] = {again};

    for (int i = 0; i < 20000; i++) {
        x[i] = 1e8f;
        y[i] = -1e8f;
        z[i] = 1;
    }
    struct reduce_job job = {in, 3, first, 1, HVD_FLOAT32, HVD_SUM, 0};
    reduce_range(&job, 0, 20000);
    job.out = second;
    for (size_t i = 0; i < 20000; i += 1250) /* other chunks, same bits */
        reduce_range(&job, i, 1250);
    ck_assert_int_eq(memcmp(out, again, sizeof out), 0);
    ck_assert(out[0] == 1 && out[19999] == 1);
    in[1] = z;
    in[2] = y;
    reduce_range(&job, 0, 20000);
    ck_assert(again[7] == 0);
}
END_TEST

START_TEST(chunks_cover_everything_once)
{
    static const size_t counts[] = {
        0, 1, 15, 16, 17, 1023, 4096, 100000, 1 << 20, (64 << 20) + 3, (size_t)1 << 40};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t size = 4; size <= 8; size *= 2) {
            for (uint32_t workers = 1; workers <= 64; workers = workers * 3 + 1) {
                struct chunks k = chunks_cut(counts[c], size, workers);
                size_t next = 0, first, count;
                for (uint32_t i = 0; i < k.number && i < 3000; i++) {
                    chunks_range(&k, i, &first, &count);
                    if (first != next || count == 0 || first * size % 64 != 0)
                        ck_abort_msg("chunk %u of %zu: %zu elements at %zu", i, counts[c], count, first);
                    next = first + count;
                }
                if (k.number) {
                    chunks_range(&k, k.number - 1, &first, &count);
                    next = first + count;
                }
                ck_assert_uint_eq(next, counts[c]);
                ck_assert(counts[c] * size < 1 << 20 || k.number >= 1);
            }
        }
    }
    /* Large ones give everybody something to do. */
    ck_assert_uint_ge(chunks_cut(1 << 20, 4, 8).number, 8);
    ck_assert_uint_eq(chunks_cut(2048, 4, 2).number, 2);
}
END_TEST

START_TEST(numbers_from_outside)
{
    for (int i = -3; i < 300; i++) {
        bool dtype = i == 4 || i == 5 || i == 7 || i == 8, op = i == 0 || i == 1 || i == 3 || i == 4;
        ck_assert_int_eq(dtype_size(i) != 0, dtype);
        ck_assert_int_eq(op_valid(i), op);
        ck_assert_int_eq(strcmp(dtype_name(i), "unknown") != 0, dtype);
        ck_assert_int_eq(strcmp(op_name(i), "unknown") != 0, op);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reduce");
    TCase *tc = tcase_create("reduce");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tc, every_op_of_every_type, 0, 16);
    tcase_add_test(tc, into_and_divide);
    tcase_add_test(tc, the_order_of_inputs_is_kept);
    tcase_add_test(tc, chunks_cover_everything_once);
    tcase_add_test(tc, numbers_from_outside);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
