/* The algorithms between hosts, one file each. endpoint.h has their interface. */
#pragma once

#include "collectives/algorithms/endpoint.h"

/* Allreduce of large tensors: every host owns a segment, gets all others' parts of it, sums them in host
 * order, sends the result to all. */
extern const struct algorithm allreduce_direct;

/* Allreduce of small tensors, and the barrier (of no bytes): everybody sends everything to everybody at once
 * and sums in host order. One exchange, no asking. The bits are those of allreduce_direct. */
extern const struct algorithm allreduce_eager;
/* Is that the faster way? It needs one trip between hosts, where allreduce_direct needs three. But of three
 * and more hosts each sends more bytes. */
bool eager_allreduce_fits(uint64_t bytes, const struct exchange *x);

/* Allgather: data holds the parts of all hosts, one behind the other, in host order; mine is there before,
 * all are there in the end. Every host sends its part to every other one, straight into its place. */
extern const struct algorithm allgather;

/* Alltoall: data holds what I send, out what I get, both in host order, one behind the other. My own part is
 * copied; a caller that has done so already gives it no elements in either. */
extern const struct algorithm alltoall;

/* Reducescatter: data is cut into the parts of all hosts, in host order; in the end mine is the reduction
 * over all hosts. Large ones in a pipeline (scatter.h), small ones at once. Data of a part that is
 * not final stays as it was. The bits are those of an allreduce. */
extern const struct algorithm reducescatter_direct, reducescatter_eager;

/* Broadcast between hosts: a binomial tree for small tensors (few rounds), a chain for large ones (every host
 * sends the data once, in pieces that flow through). */
#define BROADCAST_CHILDREN_MAX 32

struct broadcast_tree {
    uint32_t parent; /* self at the root */
    uint32_t children;
    uint32_t child[BROADCAST_CHILDREN_MAX]; /* those with the larger subtrees first */
};

extern const struct algorithm broadcast;

struct broadcast_tree broadcast_tree_of(uint32_t self, uint32_t hosts, uint32_t root, uint64_t bytes);
