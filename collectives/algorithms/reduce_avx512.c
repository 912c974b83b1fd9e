/* The inner loops for processors with AVX-512 (F, BW, DQ, VL); the Makefile compiles this file for them. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "collectives/algorithms/half.h"

#define LANES 16

static void widen_float16(float *to, const void *from, size_t count)
{
    const char *x = from;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(x + 2 * i))));
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
        _mm256_storeu_si256((__m256i_u *)(t + 2 * i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < count; i++) {
        uint16_t h = float16_narrow(from[i]);
        memcpy(t + 2 * i, &h, sizeof h);
    }
}

#define KERNELS      reduce_avx512
#define KERNELS_NAME "avx512"
#define OWN_FLOAT16
#include "collectives/algorithms/reduce_loops.h"
#endif
