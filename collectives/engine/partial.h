/* What a host's ranks reduce to, on its way to the other hosts (pure).
 *
 * Within a host 16-bit floats are reduced as float32. What travels keeps two bytes where that costs nothing:
 * a host's only rank gives what is one of its type's numbers anyhow, and so is the least or greatest of
 * several. On the way to an average (or a sum that is made smaller afterwards) of hosts with equally many
 * ranks it is the host's own average, rounded: no larger than the ranks' elements, so the result is infinite
 * only where that of one host is, and what is lost at the other end is half of the smallest number. Anything
 * else travels as float32, and is rounded once, where the result is made.
 *
 * With compression, float32 travels as the type asked for: a host's average where the result is one or made
 * smaller, else its sum. */
#ifndef HVD_ENGINE_PARTIAL_H
#define HVD_ENGINE_PARTIAL_H

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

#endif
