/* The inner loops for processors with AVX2 and F16C; the Makefile compiles this file for them. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "collectives/algorithms/half.h"

#define LANES 8

static void widen_float16(float *to, const void *from, size_t count)
{
    const char *x = from;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(x + 2 * i))));
    for (; i < count; i++) {
        uint16_t h;
        memcpy(&h, x + 2 * i, sizeof h);
        to[i] = float16_widen(h);
    }
}

static void narrow_float16(void *to, const float *from, size_t count)
{
    char *t = to;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        _mm_storeu_si128((__m128i_u *)(t + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < count; i++) {
        uint16_t h = float16_narrow(from[i]);
        memcpy(t + 2 * i, &h, sizeof h);
    }
}

#define KERNELS      reduce_avx2
#define KERNELS_NAME "avx2"
#define OWN_FLOAT16
#include "collectives/algorithms/reduce_loops.h"
#endif
