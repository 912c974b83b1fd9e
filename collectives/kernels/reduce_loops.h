/* The text of the inner loops; a file that includes it is one version (reduce_kernels.h) and has defined
 * KERNELS, its table's name. Each loop is plain and of one fixed shape, so that the compiler makes vector
 * code of it for whatever that file is compiled for. Instructions that C cannot express
 * stand in the file itself, which then has defined OWN_FLOAT16. */
#include <limits.h>

#include "collectives/kernels/half.h"
#include "collectives/kernels/reduce_kernels.h"

/* `to` may be `a` or `b`: no element depends on another one, which the compiler cannot know. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Elements at any address. */
#define ELEMENT(name, type) typedef type name __attribute__((aligned(1), may_alias))
ELEMENT(u8, uint8_t);
ELEMENT(i8, int8_t);
ELEMENT(u16, uint16_t);
ELEMENT(i16, int16_t);
ELEMENT(u32, uint32_t);
ELEMENT(i32, int32_t);
ELEMENT(u64, uint64_t);
ELEMENT(i64, int64_t);
ELEMENT(f32, float);
ELEMENT(f64, double);

#define SAME(x)    (x)
#define QUIET32(x) ((x) == (x) ? (x) : __builtin_nanf(""))
#define QUIET64(x) ((x) == (x) ? (x) : __builtin_nan(""))

/* Sums and products of integers are taken of unsigned ones: they wrap, which signed ones may not. 1u keeps
 * small ones from becoming int. */
#define ADD(a, b)     ((a) + (b))
#define TIMES(a, b)   ((a) * (b))
#define WRAP(a, b)    (1u * (a) * (b))
#define LEAST(a, b)   ((b) < (a) ? (b) : (a))
#define MOST(a, b)    ((b) > (a) ? (b) : (a))
#define LEAST_F(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define MOST_F(a, b)  ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define BOTH(a, b)    ((a) & (b))
#define EITHER(a, b)  ((a) | (b))
#define ONE_OF(a, b)  ((a) ^ (b))
#define L_AND(a, b)   (((a) != 0) & ((b) != 0))
#define L_OR(a, b)    (((a) | (b)) != 0)
#define L_XOR(a, b)   (((a) != 0) ^ ((b) != 0))

#define COMBINE(name, type, expr, last)                                                                      \
    static void name(void *to, const void *a, const void *b, size_t count)                                   \
    {                                                                                                        \
        type *t = to;                                                                                        \
        const type *x = a, *y = b;                                                                           \
        INDEPENDENT                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                                 \
            const __typeof__(expr(x[i], y[i])) r = expr(x[i], y[i]);                                         \
            t[i] = (type)last(r);                                                                            \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_two(void *to, void *too, const void *a, const void *b, size_t count)                  \
    {                                                                                                        \
        type *t = to, *u = too;                                                                              \
        const type *x = a, *y = b;                                                                           \
        INDEPENDENT                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                                 \
            const __typeof__(expr(x[i], y[i])) r = expr(x[i], y[i]);                                         \
            t[i] = u[i] = (type)last(r);                                                                     \
        }                                                                                                    \
    }

#define COMBINE_UNSIGNED(type)                                                                               \
    COMBINE(sum_##type, type, ADD, SAME)                                                                     \
    COMBINE(product_##type, type, WRAP, SAME)                                                                \
    COMBINE(land_##type, type, L_AND, SAME)                                                                  \
    COMBINE(lor_##type, type, L_OR, SAME)                                                                    \
    COMBINE(lxor_##type, type, L_XOR, SAME)                                                                  \
    COMBINE(band_##type, type, BOTH, SAME)                                                                   \
    COMBINE(bor_##type, type, EITHER, SAME)                                                                  \
    COMBINE(bxor_##type, type, ONE_OF, SAME)
COMBINE_UNSIGNED(u8)
COMBINE_UNSIGNED(u16)
COMBINE_UNSIGNED(u32)
COMBINE_UNSIGNED(u64)

#define COMBINE_ORDERED(type)                                                                                \
    COMBINE(min_##type, type, LEAST, SAME)                                                                   \
    COMBINE(max_##type, type, MOST, SAME)
COMBINE_ORDERED(u8)
COMBINE_ORDERED(i8)
COMBINE_ORDERED(u16)
COMBINE_ORDERED(i16)
COMBINE_ORDERED(u32)
COMBINE_ORDERED(i32)
COMBINE_ORDERED(u64)
COMBINE_ORDERED(i64)

#define COMBINE_FLOATING(type, quiet)                                                                        \
    COMBINE(sum_##type, type, ADD, quiet)                                                                    \
    COMBINE(product_##type, type, TIMES, quiet)                                                              \
    COMBINE(min_##type, type, LEAST_F, quiet)                                                                \
    COMBINE(max_##type, type, MOST_F, quiet)
COMBINE_FLOATING(f32, QUIET32)
COMBINE_FLOATING(f64, QUIET64)

/* ---- division and scaling ------------------------------------------------------------------------------ */

/* `wide` holds every element and every divisor. Of at most 32 bits a quotient in double, cut toward zero, is
 * the exact one, and double has vectors. */
#define DIVIDE(type, wide, last)                                                                             \
    static void divide_##type(void *data, size_t count, uint32_t divisor)                                    \
    {                                                                                                        \
        type *t = data;                                                                                      \
        for (size_t i = 0; i < count; i++) {                                                                 \
            const wide r = (wide)t[i] / (wide)divisor;                                                       \
            t[i] = (type)last(r);                                                                            \
        }                                                                                                    \
    }
DIVIDE(u8, double, SAME)
DIVIDE(i8, double, SAME)
DIVIDE(u16, double, SAME)
DIVIDE(i16, double, SAME)
DIVIDE(u32, double, SAME)
DIVIDE(i32, double, SAME)
DIVIDE(u64, uint64_t, SAME)
DIVIDE(i64, int64_t, SAME)
DIVIDE(f32, float, QUIET32)
DIVIDE(f64, double, QUIET64)

#define MEAN(type, wide, quiet)                                                                              \
    static void mean_##type(void *to, void *too, const void *a, const void *b, size_t count, double factor)  \
    {                                                                                                        \
        type *t = to, *u = too;                                                                              \
        const type *x = a, *y = b;                                                                           \
        const wide by = (wide)factor;                                                                        \
        INDEPENDENT                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                                 \
            const wide r = (x[i] + y[i]) * by;                                                               \
            t[i] = u[i] = quiet(r);                                                                          \
        }                                                                                                    \
    }
MEAN(f32, float, QUIET32)
MEAN(f64, double, QUIET64)

#define SCALE_IN(name, wide, type, convert)                                                                  \
    static void name(void *to, const void *from, size_t count, wide factor)                                  \
    {                                                                                                        \
        type *t = to;                                                                                        \
        const type *x = from;                                                                                \
        INDEPENDENT                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                                 \
            const wide r = (wide)x[i] * factor;                                                              \
            t[i] = convert;                                                                                  \
        }                                                                                                    \
    }
#define SCALE(type, convert) SCALE_IN(scale_##type, double, type, convert)
#define INTO(type, least, most)                                                                              \
    (r >= (double)(most) ? (type)(most) : r > (double)(least) ? (type)r : r == r ? (type)(least) : (type)0)
SCALE(u8, INTO(u8, 0, UINT8_MAX))
SCALE(i8, INTO(i8, INT8_MIN, INT8_MAX))
SCALE(u16, INTO(u16, 0, UINT16_MAX))
SCALE(i16, INTO(i16, INT16_MIN, INT16_MAX))
SCALE(u32, INTO(u32, 0, UINT32_MAX))
SCALE(i32, INTO(i32, INT32_MIN, INT32_MAX))
SCALE(u64, INTO(u64, 0, UINT64_MAX))
SCALE(i64, INTO(i64, INT64_MIN, INT64_MAX))
SCALE_IN(scale_f32_by_float, float, f32, QUIET32(r))
SCALE_IN(scale_f32_by_double, double, f32, (float)QUIET64(r))
SCALE(f64, QUIET64(r))

/* By a factor that is a float, the product rounded to float is the same, and four times as fast. */
static void scale_f32(void *to, const void *from, size_t count, double factor)
{
    if ((double)(float)factor == factor)
        scale_f32_by_float(to, from, count, (float)factor);
    else
        scale_f32_by_double(to, from, count, factor);
}

/* ---- 16-bit floating point ----------------------------------------------------------------------------- */

#define HALF(name)                                                                                           \
    static void widen_##name(float *to, const void *from, size_t count)                                      \
    {                                                                                                        \
        const u16 *x = from;                                                                                 \
        INDEPENDENT                                                                                          \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = name##_widen(x[i]);                                                                      \
    }                                                                                                        \
    static void narrow_##name(void *to, const float *from, size_t count)                                     \
    {                                                                                                        \
        u16 *t = to;                                                                                         \
        INDEPENDENT                                                                                          \
        for (size_t i = 0; i < count; i++)                                                                   \
            t[i] = name##_narrow(from[i]);                                                                   \
    }
HALF(bfloat16)
#ifndef OWN_FLOAT16
HALF(float16)
#endif

/* ---- the table ----------------------------------------------------------------------------------------- */

#define BOTH_OF(name)                                                                                        \
    {                                                                                                        \
        name, name##_two                                                                                     \
    }
#define NUMBERS(type, wrapping)                                                                              \
    [HVD_AVERAGE] = BOTH_OF(sum_##wrapping), [HVD_SUM] = BOTH_OF(sum_##wrapping),                            \
    [HVD_MIN] = BOTH_OF(min_##type), [HVD_MAX] = BOTH_OF(max_##type),                                        \
    [HVD_PRODUCT] = BOTH_OF(product_##wrapping)
#define LOGIC(type)                                                                                          \
    [HVD_LAND] = BOTH_OF(land_##type), [HVD_LOR] = BOTH_OF(lor_##type), [HVD_LXOR] = BOTH_OF(lxor_##type)
#define INTEGERS(type, wrapping)                                                                             \
    {                                                                                                        \
        NUMBERS(type, wrapping),                                                                             \
            LOGIC(wrapping), [HVD_BAND] = BOTH_OF(band_##wrapping), [HVD_BOR] = BOTH_OF(bor_##wrapping),     \
                             [HVD_BXOR] = BOTH_OF(bxor_##wrapping)                                           \
    }
#define OF_EACH_NUMBER(verb)                                                                                 \
    {                                                                                                        \
        [HVD_UINT8] = verb##_u8, [HVD_INT8] = verb##_i8, [HVD_UINT16] = verb##_u16,                          \
        [HVD_INT16] = verb##_i16, [HVD_UINT32] = verb##_u32, [HVD_INT32] = verb##_i32,                       \
        [HVD_UINT64] = verb##_u64, [HVD_INT64] = verb##_i64, [HVD_FLOAT32] = verb##_f32,                     \
        [HVD_FLOAT64] = verb##_f64                                                                           \
    }

/* clang-format off */
const struct reduce_kernels KERNELS = {
    .name = KERNELS_NAME,
    .combine = {
        [HVD_UINT8] = INTEGERS(u8, u8),
        [HVD_INT8] = INTEGERS(i8, u8),
        [HVD_UINT16] = INTEGERS(u16, u16),
        [HVD_INT16] = INTEGERS(i16, u16),
        [HVD_UINT32] = INTEGERS(u32, u32),
        [HVD_INT32] = INTEGERS(i32, u32),
        [HVD_UINT64] = INTEGERS(u64, u64),
        [HVD_INT64] = INTEGERS(i64, u64),
        [HVD_FLOAT32] = {NUMBERS(f32, f32)},
        [HVD_FLOAT64] = {NUMBERS(f64, f64)},
        [HVD_BOOL] = {
            LOGIC(u8),
            [HVD_SUM] = BOTH_OF(lor_u8), [HVD_MAX] = BOTH_OF(lor_u8), [HVD_BOR] = BOTH_OF(lor_u8),
            [HVD_PRODUCT] = BOTH_OF(land_u8), [HVD_MIN] = BOTH_OF(land_u8), [HVD_BAND] = BOTH_OF(land_u8),
            [HVD_BXOR] = BOTH_OF(lxor_u8),
        },
    },
    .divide = OF_EACH_NUMBER(divide),
    .mean = {[HVD_FLOAT32] = mean_f32, [HVD_FLOAT64] = mean_f64},
    .scale = OF_EACH_NUMBER(scale),
    .widen = {[HVD_FLOAT16] = widen_float16, [HVD_BFLOAT16] = widen_bfloat16},
    .narrow = {[HVD_FLOAT16] = narrow_float16, [HVD_BFLOAT16] = narrow_bfloat16},
};
/* clang-format on */
