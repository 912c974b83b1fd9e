/* Allreduce of small tensors, and the barrier (of no bytes): everybody sends everything to everybody at once
 * and sums in host order. One exchange, no asking. The bits are those of allreduce_direct. */
#ifndef HVD_ALGORITHMS_ALLREDUCE_EAGER_H
#define HVD_ALGORITHMS_ALLREDUCE_EAGER_H

#include "collectives/algorithms/exchange.h"

#define EAGER_BYTES_DEFAULT (16u << 10)
#define EAGER_BYTES_MAX     (256u << 10) /* one frame */

extern const struct algorithm allreduce_eager;

/* Is it worth it? Every host sends bytes * (hosts - 1), and stages as much. */
bool allreduce_eager_fits(uint64_t bytes, uint32_t hosts, uint64_t eager_bytes);

#endif
