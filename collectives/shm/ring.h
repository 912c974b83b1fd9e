/* Rings of slots between a member and the engine: one of them puts (a member under its own lock), the other
 * one takes. */
#ifndef HVD_SHM_RING_H
#define HVD_SHM_RING_H

#include "collectives/shm/layout.h"

/* false: the ring is full. */
bool ring_put(struct shm_ring *r, uint32_t slot);
/* 1: *slot was taken; 0: the ring is empty; -1: the other one has written what cannot be. */
int ring_take(struct shm_ring *r, uint32_t *slot);
bool ring_empty(const struct shm_ring *r);

#endif
