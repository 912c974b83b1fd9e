/* Allreduce of large tensors: every host owns a segment, gets all others' parts of it, sums them in host
 * order, sends the result to all. See allreduce_direct.c. */
#ifndef HVD_COLLECTIVES_ALGORITHMS_ALLREDUCE_DIRECT_H
#define HVD_COLLECTIVES_ALGORITHMS_ALLREDUCE_DIRECT_H

#include "collectives/algorithms/endpoint.h"

extern const struct algorithm allreduce_direct;

#endif
