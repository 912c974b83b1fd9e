/* Allreduce of small tensors, and the barrier (of no bytes): everybody sends everything to everybody at once
 * and sums in host order. One exchange, no asking. The bits are those of allreduce_direct. */
#ifndef HVD_COLLECTIVES_ALGORITHMS_ALLREDUCE_EAGER_H
#define HVD_COLLECTIVES_ALGORITHMS_ALLREDUCE_EAGER_H

#include "collectives/algorithms/endpoint.h"

extern const struct algorithm allreduce_eager;

#endif
