/* Alltoall: data holds what I send, out what I get, both in host order, one behind the other. My own part is
 * copied; a caller that has done so already gives it no elements in either. */
#ifndef HVD_COLLECTIVES_ALGORITHMS_ALLTOALL_H
#define HVD_COLLECTIVES_ALGORITHMS_ALLTOALL_H

#include "collectives/algorithms/endpoint.h"

extern const struct algorithm alltoall;

#endif
