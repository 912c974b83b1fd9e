/* The arithmetic of the reductions, one element at a time: floats through double and rounded once, integers
 * modulo their width. Slow, and exact enough to compare with. */
#include "tests/gpu/double/nccl_double.h"

#include <math.h>
#include <string.h>

/* A float of `e` bits of exponent and `m` of mantissa; `most` is the largest number, `infinite`: has
 * infinities. */
static const struct small {
    int e, m;
    double most;
    bool infinite;
} smalls[] = {
    [ncclFloat16] = {5, 10, 65504, true},
    [ncclBfloat16] = {8, 7, 0x1.fep127, true},
    [ncclFloat8e4m3] = {4, 3, 448, false},
    [ncclFloat8e5m2] = {5, 2, 57344, true},
};

bool nccl_is_float(int type)
{
    return type >= ncclFloat16;
}

size_t nccl_width(int type)
{
    static const unsigned char widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return widths[type];
}

static double widen(const struct small *s, unsigned bits)
{
    int exponent = (int)(bits >> s->m & ((1u << s->e) - 1)), bias = (1 << (s->e - 1)) - 1;
    unsigned mantissa = bits & ((1u << s->m) - 1);
    double sign = bits >> (s->e + s->m) & 1 ? -1 : 1;

    if (s->infinite && exponent == (1 << s->e) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (!s->infinite && exponent == (1 << s->e) - 1 && mantissa == (1u << s->m) - 1)
        return NAN;
    if (!exponent)
        return sign * ldexp(mantissa, 1 - bias - s->m);
    return sign * ldexp(mantissa | 1u << s->m, exponent - bias - s->m);
}

/* 8 bit floats stop at the largest number, as NCCL's conversions do. */
static unsigned narrow(const struct small *s, double value)
{
    int bias = (1 << (s->e - 1)) - 1, exponent;
    unsigned sign = signbit(value) ? 1u << (s->e + s->m) : 0, top = ((1u << s->e) - 1) << s->m;
    double magnitude = fabs(value), unit;
    unsigned bits;

    if (isnan(value))
        return s->infinite ? top | 1u << (s->m - 1) : top | ((1u << s->m) - 1);
    if (magnitude == 0)
        return sign;
    exponent = isinf(magnitude) ? 2000 : ilogb(magnitude);
    if (exponent > bias + 1)
        return sign | (s->e + s->m == 7 ? narrow(s, s->most) : top);
    exponent = exponent < 1 - bias ? 1 - bias : exponent;
    unit = nearbyint(ldexp(magnitude, s->m - exponent));
    if (ldexp(unit, exponent - s->m) > s->most)
        return sign | (s->e + s->m == 7 ? narrow(s, s->most) : top);
    /* A rounding up to the next power of two carries into the exponent by itself. */
    bits = (unsigned)unit;
    if (bits >> s->m)
        bits += (unsigned)(exponent + bias - 1) << s->m;
    return sign | bits;
}

union number nccl_read(int type, const void *at)
{
    union number n = {.i = 0};
    uint16_t half = 0;
    float single;

    switch (type) {
    case ncclInt8:
        n.i = *(const int8_t *)at;
        break;
    case ncclUint8:
        n.i = *(const uint8_t *)at;
        break;
    case ncclInt32:
        n.i = *(const int32_t *)at;
        break;
    case ncclUint32:
        n.i = *(const uint32_t *)at;
        break;
    case ncclInt64:
    case ncclUint64:
        memcpy(&n.i, at, 8);
        break;
    case ncclFloat32:
        memcpy(&single, at, 4);
        n.f = (double)single;
        break;
    case ncclFloat64:
        memcpy(&n.f, at, 8);
        break;
    default:
        memcpy(&half, at, nccl_width(type));
        n.f = widen(&smalls[type], half);
    }
    return n;
}

void nccl_write(int type, void *at, union number value)
{
    float single = (float)value.f;
    unsigned bits;

    if (type == ncclFloat32) {
        memcpy(at, &single, 4);
    } else if (type == ncclFloat64 || !nccl_is_float(type)) {
        memcpy(at, &value, nccl_width(type)); /* the low bytes of an integer */
    } else {
        bits = narrow(&smalls[type], value.f);
        memcpy(at, &bits, nccl_width(type));
    }
}

union number nccl_scaled(const struct op *op, union number value)
{
    if (op->reduce != REDUCE_PREMULSUM)
        return value;
    if (nccl_is_float(op->type))
        value.f *= op->scale.f;
    else
        value.i = (int64_t)((uint64_t)value.i * (uint64_t)op->scale.i);
    return value;
}

static int64_t combined_integers(int reduce, int type, int64_t a, int64_t b)
{
    bool less = type == ncclUint64 ? (uint64_t)a < (uint64_t)b : a < b;

    switch (reduce) {
    case ncclProd:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case ncclMax:
        return less ? b : a;
    case ncclMin:
        return less ? a : b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

void nccl_combine(const struct op *op, union number *into, union number value)
{
    if (!nccl_is_float(op->type)) {
        into->i = combined_integers(op->reduce, op->type, into->i, value.i);
        return;
    }
    switch (op->reduce) {
    case ncclProd:
        into->f *= value.f;
        break;
    case ncclMax:
        into->f = fmax(into->f, value.f);
        break;
    case ncclMin:
        into->f = fmin(into->f, value.f);
        break;
    default:
        into->f += value.f;
    }
}

void nccl_finish(const struct op *op, union number *value, int ranks)
{
    if (op->reduce != ncclAvg)
        return;
    if (nccl_is_float(op->type))
        value->f /= ranks;
    else if (op->type == ncclUint64)
        value->i = (int64_t)((uint64_t)value->i / (uint64_t)ranks);
    else
        value->i /= ranks;
}
