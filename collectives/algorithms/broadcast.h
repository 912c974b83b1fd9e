/* Broadcast between hosts: a binomial tree for small tensors (few rounds), a chain for large ones (every host
 * sends the data once, in pieces that flow through). */
#ifndef HVD_COLLECTIVES_ALGORITHMS_BROADCAST_H
#define HVD_COLLECTIVES_ALGORITHMS_BROADCAST_H

#include "collectives/algorithms/endpoint.h"

#define BROADCAST_CHILDREN_MAX 32

struct broadcast_tree {
    uint32_t parent; /* self at the root */
    uint32_t children;
    uint32_t child[BROADCAST_CHILDREN_MAX]; /* those with the larger subtrees first */
};

extern const struct algorithm broadcast;

struct broadcast_tree broadcast_tree_of(uint32_t self, uint32_t hosts, uint32_t root, uint64_t bytes);

#endif
