/* The inner loops for processors with AVX2 and F16C; the Makefile compiles this file for them. */
#ifdef __x86_64__
#include <immintrin.h>

#define LANES 8
#define WIDEN_LANES(to, from)                                                                                \
    _mm256_storeu_ps((to), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(from))))
#define NARROW_LANES(to, from)                                                                               \
    _mm_storeu_si128((__m128i_u *)(to), _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT))
#include "collectives/kernels/reduce_half.h"

#define KERNELS      reduce_avx2
#define KERNELS_NAME "avx2"
#include "collectives/kernels/reduce_loops.h"
#endif
