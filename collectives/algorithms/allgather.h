/* Allgather: data holds the parts of all hosts, one behind the other, in host order; mine is there before,
 * all are there in the end. Every host sends its part to every other one, straight into its place. */
#ifndef HVD_COLLECTIVES_ALGORITHMS_ALLGATHER_H
#define HVD_COLLECTIVES_ALGORITHMS_ALLGATHER_H

#include "collectives/algorithms/endpoint.h"

extern const struct algorithm allgather;

#endif
