/* The inner loops of reduce.c, once for each kind of processor. reduce_loops.h is their text, reduce_base.c,
 * reduce_avx2.c and reduce_avx512.c are compiled from it with other vectors. All give the same bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce.h"

/* Arrays of one call are the same or do not overlap. */
struct reduce_combine {
    /* to = a op b */
    void (*one)(void *to, const void *a, const void *b, size_t count);
    /* The same into two places. */
    void (*two)(void *to, void *too, const void *a, const void *b, size_t count);
};

struct reduce_kernels {
    const char *name;
    /* [HVD_FLOAT16] and [HVD_BFLOAT16] are empty: they are reduced as floats. */
    struct reduce_combine combine[DTYPES][OPS];
    void (*divide[DTYPES])(void *data, size_t count, uint32_t divisor);
    /* to = too = (a + b) * factor. Of [HVD_FLOAT32] and [HVD_FLOAT64] only. `to` and `too` may be one. */
    void (*mean[DTYPES])(void *to, void *too, const void *a, const void *b, size_t count, double factor);
    void (*scale[DTYPES])(void *to, const void *from, size_t count, double factor);
    /* Of [HVD_FLOAT16] and [HVD_BFLOAT16] only. */
    void (*widen[DTYPES])(float *to, const void *from, size_t count);
    void (*narrow[DTYPES])(void *to, const float *from, size_t count);
};

extern const struct reduce_kernels reduce_base;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_avx2, reduce_avx512;
#endif

#define REDUCE_VERSIONS_MAX 3
/* Those that this processor runs, the best first; their number. */
unsigned reduce_versions(const struct reduce_kernels *version[REDUCE_VERSIONS_MAX]);
/* reduce_range by one of them. */
void reduce_range_by(const struct reduce_kernels *k, const struct reduce_job *job, size_t first,
                     size_t count);
