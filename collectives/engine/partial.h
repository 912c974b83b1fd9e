/* A host's part of a reduction, to which its ranks reduce, as it travels to the other hosts (pure).
 *
 * Within a host 16-bit floats are reduced as float32. The part travels in two bytes where that costs nothing.
 * The element of a host's only rank is a number of its type already; so is the least or greatest of several.
 *
 * For an average, or a sum that the scales make as small, of hosts with equally many ranks, the part is the
 * host's own average, rounded. That is no larger than the ranks' elements, so the result is infinite only
 * where that of one host is. All hosts' roundings together lose at most half of the smallest number.
 *
 * Any other part travels as float32, and the result is rounded once, where it is made.
 *
 * With compression, float32 travels as the type asked for: a host's average if the result is an average or is
 * scaled to be as small, else its sum. */
#pragma once

#include <stdint.h>

#include "collectives/hvd.h"
#include "collectives/shm/op.h"

/* How the ranks of a set lie on hosts. */
struct partial_shape {
    uint32_t hosts, ranks;
    uint32_t most; /* of those on one host */
};

struct partial {
    hvd_dtype dtype;
    double scale; /* it is multiplied by this, and the result divided; 1: neither */
};

struct partial partial_of(const struct tensor_op *op, const struct partial_shape *shape);
