/* Adasum: a sum of gradients that does not count twice what they have in common. Two vectors a and b become
 *
 *   (1 - a.b / 2 a.a) a + (1 - a.b / 2 b.b) b
 *
 * so orthogonal ones add up and equal ones stay as they are. Of more vectors, neighbours are joined in pairs,
 * then the pairs, and so on: their number is a power of two. Not element by element: the dot products are
 * over the whole vectors.
 *
 * Dot products are summed in double, in an order that depends on the index alone: blocks for themselves, then
 * the blocks' sums from the first to the last. So the vectors may lie in parts, of whole blocks, on several
 * hosts, which tell one another what their blocks sum to: the bits are the same. Vectors between the steps
 * are double for float64 and float otherwise, so 16-bit types are rounded once, in the end. A vector of (next
 * to) no length has the factor 1. */
#pragma once

#include <stddef.h>

#include "collectives/hvd.h"

/* NULL, or why these cannot be joined, for the end of a sentence. */
const char *adasum_refused(int dtype, size_t vectors);
/* Bytes of scratch memory, aligned to 8, that adasum needs. */
size_t adasum_scratch(hvd_dtype dtype, size_t vectors, size_t count);
/* `out` may be one of in[vectors]; it is written when all of them have been read. */
void adasum(const void *const *in, size_t vectors, void *out, size_t count, hvd_dtype dtype, void *scratch);

/* The same step by step: load the vectors, join neighbours at the distances 1, 2, 4, ..., store the first. */
#define ADASUM_BLOCK 8192 /* elements; the last one may have fewer */

struct adasum_products {
    double ab, aa, bb;
};

/* Bytes of an element between the steps. */
size_t adasum_lane(hvd_dtype dtype);
void adasum_load(void *to, const void *from, size_t count, hvd_dtype dtype);
void adasum_store(void *to, const void *from, size_t count, hvd_dtype dtype);
/* Of one block. */
struct adasum_products adasum_products(const void *a, const void *b, size_t count, hvd_dtype dtype);
/* *sum grows by a block's, which is the next one. */
void adasum_add(struct adasum_products *sum, const struct adasum_products *block);
/* Any part of a becomes the joined one; the products are those of all blocks. */
void adasum_join(void *a, const void *b, size_t count, hvd_dtype dtype, const struct adasum_products *p);
