/* Adasum against its definition, in long double, and what it promises: orthogonal vectors add up, equal ones
 * stay. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/adasum.h"
#include "collectives/kernels/dtype.h"
#include "collectives/kernels/half.h"

#define VECTORS 8
#define MOST    1003

static const hvd_dtype dtypes[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};

static void put(void *array, size_t i, hvd_dtype t, double v)
{
    switch (t) {
    case HVD_FLOAT16:
        ((uint16_t *)array)[i] = float16_narrow((float)v);
        break;
    case HVD_BFLOAT16:
        ((uint16_t *)array)[i] = bfloat16_narrow((float)v);
        break;
    case HVD_FLOAT32:
        ((float *)array)[i] = (float)v;
        break;
    default:
        ((double *)array)[i] = v;
    }
}

static double get(const void *array, size_t i, hvd_dtype t)
{
    return t == HVD_FLOAT16    ? float16_widen(((const uint16_t *)array)[i])
           : t == HVD_BFLOAT16 ? bfloat16_widen(((const uint16_t *)array)[i])
           : t == HVD_FLOAT32  ? (double)((const float *)array)[i]
                               : ((const double *)array)[i];
}

static void reference(long double (*v)[MOST], size_t vectors, size_t count)
{
    for (size_t step = 1; step < vectors; step *= 2) {
        for (size_t k = 0; k < vectors; k += 2 * step) {
            long double *a = v[k], *b = v[k + step], ab = 0, aa = 0, bb = 0;
            for (size_t i = 0; i < count; i++) {
                ab += a[i] * b[i];
                aa += a[i] * a[i];
                bb += b[i] * b[i];
            }
            for (size_t i = 0; i < count; i++)
                a[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
        }
    }
}

static long double expected[VECTORS][MOST];
static double memory[VECTORS][MOST], out[MOST];

static void run(hvd_dtype t, size_t vectors, size_t count, void *result)
{
    const void *in[VECTORS];
    void *scratch = malloc(adasum_scratch(t, vectors, count) + 1);

    for (size_t k = 0; k < vectors; k++)
        in[k] = memory[k];
    ck_assert_ptr_null(adasum_refused(t, vectors));
    adasum(in, vectors, result, count, t, scratch);
    free(scratch);
}

START_TEST(as_defined)
{
    static const double error[] = {0x1p-10, 0x1p-7, 0x1p-20, 0x1p-48};
    hvd_dtype t = dtypes[_i];

    for (size_t vectors = 1; vectors <= VECTORS; vectors *= 2) {
        for (size_t count = 0; count <= MOST; count = count * 3 + 1) {
            for (size_t k = 0; k < vectors; k++)
                for (size_t i = 0; i < count; i++) {
                    put(memory[k], i, t, sin((double)(i * (k + 3) + k)) + (k == 2 ? 0 : 0.25));
                    expected[k][i] = get(memory[k], i, t);
                }
            reference(expected, vectors, count);
            run(t, vectors, count, out);
            for (size_t i = 0; i < count; i++)
                if (fabs(get(out, i, t) - (double)expected[0][i]) > error[_i] * 4)
                    ck_abort_msg("%s, %zu vectors of %zu, element %zu: %g, not %Lg", dtype_name(t), vectors,
                                 count, i, get(out, i, t), expected[0][i]);
            /* In place, and again: the same bits. */
            run(t, vectors, count, memory[0]);
            ck_assert_int_eq(memcmp(out, memory[0], count * dtype_size(t)), 0);
        }
    }
}
END_TEST

START_TEST(orthogonal_add_equal_stay_zero_is_nothing)
{
    hvd_dtype t = dtypes[_i];

    for (size_t i = 0; i < 4; i++) {
        put(memory[0], i, t, i < 2 ? 3 : 0);
        put(memory[1], i, t, i < 2 ? 0 : 5);
    }
    run(t, 2, 4, out);
    ck_assert(get(out, 0, t) == 3 && get(out, 3, t) == 5);
    memcpy(memory[1], memory[0], sizeof memory[0]);
    run(t, 2, 4, out);
    ck_assert(get(out, 0, t) == 3 && get(out, 3, t) == 0);
    memset(memory[1], 0, sizeof memory[1]);
    run(t, 2, 4, out);
    ck_assert(get(out, 0, t) == 3 && get(out, 3, t) == 0);
    put(memory[1], 2, t, NAN);
    run(t, 2, 4, out);
    ck_assert(isnan(get(out, 0, t)));
}
END_TEST

/* As hosts do it that have the vectors in parts: the same bits, however the blocks are dealt out. */
START_TEST(in_parts)
{
    static char vector[4][(3 * ADASUM_BLOCK + 77) * 8], whole[sizeof vector[0]], work[4][sizeof vector[0]];
    const size_t count = 3 * ADASUM_BLOCK + 77, cuts[] = {0, ADASUM_BLOCK, 3 * ADASUM_BLOCK, count};
    hvd_dtype t = dtypes[_i];
    size_t lane = adasum_lane(t), size = dtype_size(t);
    void *scratch = malloc(adasum_scratch(t, 4, count));

    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < count; i++)
            put(vector[k], i, t, sin((double)(i * (k + 3) + k)) + 0.25);
        adasum_load(work[k], vector[k], count, t);
    }
    adasum((const void *const[]){vector[0], vector[1], vector[2], vector[3]}, 4, whole, count, t, scratch);
    for (size_t d = 1; d < 4; d *= 2)
        for (size_t k = 0; k < 4; k += 2 * d) {
            struct adasum_products sum = {0, 0, 0};
            for (size_t at = 0; at < count; at += ADASUM_BLOCK) {
                size_t n = count - at < ADASUM_BLOCK ? count - at : ADASUM_BLOCK;
                struct adasum_products block =
                    adasum_products(work[k] + at * lane, work[k + d] + at * lane, n, t);
                adasum_add(&sum, &block);
            }
            for (int c = 3; c-- > 0;)
                adasum_join(work[k] + cuts[c] * lane, work[k + d] + cuts[c] * lane, cuts[c + 1] - cuts[c], t,
                            &sum);
        }
    adasum_store(work[1], work[0], count, t);
    ck_assert_int_eq(memcmp(work[1], whole, count * size), 0);
    free(scratch);
}
END_TEST

START_TEST(refusals)
{
    for (size_t n = 0; n < 40; n++) {
        bool fits = n == 1 || n == 2 || n == 4 || n == 8 || n == 16 || n == 32;
        ck_assert_int_eq(adasum_refused(HVD_FLOAT32, n) == NULL, fits);
    }
    ck_assert_str_eq(adasum_refused(HVD_FLOAT16, 6), "adasum needs a power of two of ranks");
    ck_assert_str_eq(adasum_refused(HVD_INT32, 4), "adasum needs floating-point numbers");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adasum");
    TCase *tc = tcase_create("adasum");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tc, as_defined, 0, 4);
    tcase_add_loop_test(tc, orthogonal_add_equal_stay_zero_is_nothing, 0, 4);
    tcase_add_loop_test(tc, in_parts, 0, 4);
    tcase_add_test(tc, refusals);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
