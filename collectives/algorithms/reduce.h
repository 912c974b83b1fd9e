/* Reductions of arrays in memory.
 *
 * The order is part of the result: inputs are taken from the first to the last, element by element, whatever
 * part of the arrays a call covers. So who reduces which chunk never shows in the bits. Integers wrap.
 * HVD_AVERAGE sums here; the division comes once, at the end (reduce_divide, or `divisor` below). Pointers
 * are aligned to their elements. */
#ifndef HVD_ALGORITHMS_REDUCE_H
#define HVD_ALGORITHMS_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"

/* to[i] = to[i] op from[i]. The arrays are the same or do not overlap. */
void reduce_into(void *to, const void *from, size_t count, hvd_dtype dtype, hvd_op op);
/* data[i] = data[i] / divisor; integers toward zero. */
void reduce_divide(void *data, size_t count, hvd_dtype dtype, uint32_t divisor);

struct reduce_job {
    const void *const *in; /* [inputs], at least one */
    size_t inputs;
    void *const *out; /* [outputs]; each is one of the inputs' arrays or overlaps none of them */
    size_t outputs;
    hvd_dtype dtype;
    hvd_op op;
    uint32_t divisor; /* 0 or 1: none */
};

/* out[*][i] = (in[0][i] op in[1][i] op ...) / divisor for first <= i < first + count. */
void reduce_range(const struct reduce_job *job, size_t first, size_t count);

#endif
