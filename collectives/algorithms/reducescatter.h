/* Reducescatter: data is cut into the parts of all hosts, in host order; in the end mine is the reduction
 * over all hosts. Large ones in a pipeline (scatter.h), small ones at once. Where mine is not final, data is
 * as it was. The bits are those of an allreduce. */
#ifndef HVD_COLLECTIVES_ALGORITHMS_REDUCESCATTER_H
#define HVD_COLLECTIVES_ALGORITHMS_REDUCESCATTER_H

#include "collectives/algorithms/endpoint.h"

extern const struct algorithm reducescatter_direct, reducescatter_eager;

#endif
