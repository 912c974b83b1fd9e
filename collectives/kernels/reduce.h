/* Reductions of arrays in memory.
 *
 * The order is part of the result: inputs are taken from the first to the last, element by element, whatever
 * part of the arrays a call covers and whatever vectors the processor has. So who reduces which chunk never
 * shows in the bits. Pointers need no alignment.
 *
 *   float16, bfloat16   every input becomes a float; the result is rounded once, in the end (half.h)
 *   floating point      as IEEE 754 says, to nearest; min and max of a NaN are NaN; a NaN that comes of two
 *                       or more inputs or of scaling is the quiet one without a sign
 *   integers            wrap; an average is the wrapped sum divided toward zero
 *   bool                a byte, true when it is not 0; results are 0 and 1. sum and max are or, product and
 *                       min are and
 *
 * Scaling: input * prescale, and result * postscale / divisor. float16, bfloat16 and float32 are multiplied
 * in double and rounded to float; integers are multiplied in double and cut toward zero, or to the nearest
 * end of their range; bool is not scaled. Without a postscale the division by `divisor` is exact. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"

struct reduce_job {
    const void *const *in; /* [inputs], at least one */
    size_t inputs;
    /* [outputs]; each is one of the inputs' arrays or overlaps none of them. Narrower elements may only begin
     * where the first input does. */
    void *const *out;
    size_t outputs;
    hvd_dtype dtype;
    hvd_op op;                  /* goes with dtype (op_refused) and is elementwise */
    uint32_t divisor;           /* of an average, otherwise ignored; 0 or 1: none */
    double prescale, postscale; /* 0 or 1: none */
    /* Of the outputs, where it is another one: of 16-bit inputs HVD_FLOAT32, which is what they are reduced
     * in and not rounded; of HVD_FLOAT32 a 16-bit one, so the result is rounded. 0: dtype. */
    hvd_dtype out_dtype;
};

/* out[*][i] = (in[0][i] * prescale op in[1][i] * prescale op ...) * postscale / divisor
 * for first <= i < first + count. */
void reduce_range(const struct reduce_job *job, size_t first, size_t count);
