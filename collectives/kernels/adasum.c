#include "collectives/kernels/adasum.h"

#include <stdint.h>
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/kernels/half.h"

#define LANES        8        /* partial sums of a dot product: element i belongs to i % LANES */
#define LENGTH_LEAST 0x1p-511 /* squares below have no bits left to divide by */

const char *adasum_refused(int dtype, size_t vectors)
{
    if (op_refused(dtype, HVD_ADASUM))
        return op_refused(dtype, HVD_ADASUM);
    return vectors > 0 && (vectors & (vectors - 1)) == 0 ? NULL : "adasum needs a power of two of ranks";
}

size_t adasum_lane(hvd_dtype dtype)
{
    return dtype == HVD_FLOAT64 ? sizeof(double) : sizeof(float);
}

/* Bytes of one vector between the steps. */
static size_t stride_of(hvd_dtype dtype, size_t count)
{
    return (count * adasum_lane(dtype) + 7) / 8 * 8;
}

size_t adasum_scratch(hvd_dtype dtype, size_t vectors, size_t count)
{
    size_t levels = 1;
    while (vectors > 1) {
        vectors /= 2;
        levels++;
    }
    return levels * stride_of(dtype, count);
}

static double sum_lanes(const double lane[LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double factor_of(double ab, double square)
{
    return square < LENGTH_LEAST ? 1 : 1 - ab / square / 2;
}

#define STEP(type)                                                                                           \
    static struct adasum_products products_##type(const type *a, const type *b, size_t count)                \
    {                                                                                                        \
        double ab[LANES] = {0}, aa[LANES] = {0}, bb[LANES] = {0};                                            \
        for (size_t i = 0; i < count; i += LANES) {                                                          \
            size_t n = count - i < LANES ? count - i : LANES;                                                \
            for (size_t l = 0; l < n; l++) {                                                                 \
                double x = a[i + l], y = b[i + l];                                                           \
                ab[l] += x * y;                                                                              \
                aa[l] += x * x;                                                                              \
                bb[l] += y * y;                                                                              \
            }                                                                                                \
        }                                                                                                    \
        return (struct adasum_products){sum_lanes(ab), sum_lanes(aa), sum_lanes(bb)};                        \
    }                                                                                                        \
    static void join_##type(type *a, const type *b, size_t count, double of_a, double of_b)                  \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                   \
            a[i] = (type)(of_a * a[i] + of_b * b[i]);                                                        \
    }
STEP(float)
STEP(double)
struct adasum_products adasum_products(const void *a, const void *b, size_t count, hvd_dtype dtype)
{
    return dtype == HVD_FLOAT64 ? products_double(a, b, count) : products_float(a, b, count);
}

void adasum_add(struct adasum_products *sum, const struct adasum_products *block)
{
    sum->ab += block->ab;
    sum->aa += block->aa;
    sum->bb += block->bb;
}

void adasum_join(void *a, const void *b, size_t count, hvd_dtype dtype, const struct adasum_products *p)
{
    double of_a = factor_of(p->ab, p->aa), of_b = factor_of(p->ab, p->bb);
    if (dtype == HVD_FLOAT64)
        join_double(a, b, count, of_a, of_b);
    else
        join_float(a, b, count, of_a, of_b);
}

static void widen_elements(float *to, const char *from, size_t count, hvd_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, sizeof h);
        to[i] = dtype == HVD_FLOAT16 ? float16_widen(h) : bfloat16_widen(h);
    }
}

static void narrow_elements(char *to, const float *from, size_t count, hvd_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t h = dtype == HVD_FLOAT16 ? float16_narrow(from[i]) : bfloat16_narrow(from[i]);
        memcpy(to + 2 * i, &h, sizeof h);
    }
}

static bool is_half(hvd_dtype dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16;
}

void adasum_load(void *to, const void *from, size_t count, hvd_dtype dtype)
{
    if (is_half(dtype))
        widen_elements(to, from, count, dtype);
    else
        memcpy(to, from, count * dtype_size(dtype));
}

void adasum_store(void *to, const void *from, size_t count, hvd_dtype dtype)
{
    if (is_half(dtype))
        narrow_elements(to, from, count, dtype);
    else
        memcpy(to, from, count * dtype_size(dtype));
}

static void join_lanes(void *a, const void *b, size_t count, hvd_dtype dtype)
{
    struct adasum_products sum = {0, 0, 0};
    size_t lane = adasum_lane(dtype);
    for (size_t i = 0; i < count; i += ADASUM_BLOCK) {
        size_t n = count - i < ADASUM_BLOCK ? count - i : ADASUM_BLOCK;
        struct adasum_products block =
            adasum_products((const char *)a + i * lane, (const char *)b + i * lane, n, dtype);
        adasum_add(&sum, &block);
    }
    adasum_join(a, b, count, dtype, &sum);
}

/* The result of `vectors` of them, in room; what lies behind it is used. As deep as their number has bits. */
static void join_all(const void *const *in, size_t vectors, void *room, size_t count, hvd_dtype dtype)
{
    void *other = (char *)room + stride_of(dtype, count);
    if (vectors == 1) {
        adasum_load(room, in[0], count, dtype);
        return;
    }
    join_all(in, vectors / 2, room, count, dtype);
    join_all(in + vectors / 2, vectors / 2, other, count, dtype);
    join_lanes(room, other, count, dtype);
}

void adasum(const void *const *in, size_t vectors, void *out, size_t count, hvd_dtype dtype, void *scratch)
{
    if (count == 0)
        return;
    join_all(in, vectors, scratch, count, dtype);
    adasum_store(out, scratch, count, dtype);
}
