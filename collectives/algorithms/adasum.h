/* Adasum: a sum of gradients that does not count twice what they have in common. Two vectors a and b become
 *
 *   (1 - a.b / 2 a.a) a + (1 - a.b / 2 b.b) b
 *
 * so orthogonal ones add up and equal ones stay as they are. Of more vectors, neighbours are joined in pairs,
 * then the pairs, and so on: their number is a power of two. Not element by element: the dot products are
 * over the whole vectors.
 *
 * Dot products are summed in double, in an order that depends on the index alone; vectors between the steps
 * are double for float64 and float otherwise, so 16-bit types are rounded once, in the end. A vector of (next
 * to) no length has the factor 1. */
#ifndef HVD_ALGORITHMS_ADASUM_H
#define HVD_ALGORITHMS_ADASUM_H

#include <stddef.h>

#include "collectives/hvd.h"

/* NULL, or why these cannot be joined, for the end of a sentence. */
const char *adasum_refused(int dtype, size_t vectors);
/* Bytes of scratch memory, aligned to 8, that adasum needs. */
size_t adasum_scratch(hvd_dtype dtype, size_t vectors, size_t count);
/* `out` may be one of in[vectors]; it is written when all of them have been read. */
void adasum(const void *const *in, size_t vectors, void *out, size_t count, hvd_dtype dtype, void *scratch);

#endif
