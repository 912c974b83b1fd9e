/* The inner loops for processors with AVX-512 (F, BW, DQ, VL); the Makefile compiles this file for them. */
#ifdef __x86_64__
#include <immintrin.h>

#define LANES 16
#define WIDEN_LANES(to, from)                                                                                \
    _mm512_storeu_ps((to), _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(from))))
#define NARROW_LANES(to, from)                                                                               \
    _mm256_storeu_si256((__m256i_u *)(to), _mm512_cvtps_ph(_mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT))
#include "collectives/kernels/reduce_half.h"

#define KERNELS      reduce_avx512
#define KERNELS_NAME "avx512"
#include "collectives/kernels/reduce_loops.h"
#endif
