/* float16 and bfloat16 as bits, to float and back.
 *
 * To float is exact. Back rounds to the nearest, ties to even; too large a number becomes infinity, any NaN
 * the quiet one without a sign. No branches and no arithmetic on subnormal floats that traps to microcode, so
 * a loop of these becomes vector code. */
#pragma once

#include <stdint.h>

static inline uint32_t half_bits_of(float f)
{
    union {
        float f;
        uint32_t bits;
    } u = {.f = f};
    return u.bits;
}

static inline float half_float_of(uint32_t bits)
{
    union {
        uint32_t bits;
        float f;
    } u = {.bits = bits};
    return u.f;
}

static inline float float16_widen(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t normal = magnitude + ((127u - 15) << 23);
    uint32_t special = magnitude + ((255u - 31) << 23); /* infinity and NaN */
    /* A subnormal is its mantissa times 2^-24: put under the exponent of 2^-14, whose one is taken off. */
    uint32_t tiny = half_bits_of(half_float_of(magnitude + (113u << 23)) - 0x1p-14f);
    uint32_t bits = magnitude >= (31u << 23) ? special : normal;

    bits = magnitude < (1u << 23) ? tiny : bits;
    return half_float_of(sign | bits);
}

static inline uint16_t float16_narrow(float f)
{
    uint32_t all = half_bits_of(f), magnitude = all & 0x7fffffff, sign = all >> 16 & 0x8000;
    uint32_t normal = (magnitude - ((127u - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* Below 2^-14 the sum with 0.5 rounds to what a subnormal can hold: its mantissa is the result. */
    uint32_t tiny = half_bits_of(half_float_of(magnitude) + 0.5f) - half_bits_of(0.5f);
    uint32_t bits = magnitude < (113u << 23) ? tiny : normal;

    bits = magnitude >= (143u << 23) ? 0x7c00 : bits; /* 2^16 and more */
    return (uint16_t)(magnitude > (255u << 23) ? 0x7e00 : sign | bits);
}

static inline float bfloat16_widen(uint16_t h)
{
    return half_float_of((uint32_t)h << 16);
}

static inline uint16_t bfloat16_narrow(float f)
{
    uint32_t bits = half_bits_of(f);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

    return (uint16_t)((bits & 0x7fffffff) > (255u << 23) ? 0x7fc0 : rounded);
}
