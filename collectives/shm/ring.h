/* Rings of slots between a member and the engine: one of them puts (a member under its own lock), the other
 * one takes. */
#pragma once

#include "collectives/shm/layout.h"

/* false: the ring is full. */
bool ring_put(struct shm_ring *r, uint32_t slot);
/* The same for a slot that need not be there twice: it is not put when the one that was put at *at (kept by
 * the caller, 0 at first) is still there. The taker then sees all that was written before. A ring into
 * which everything is put so is never full. */
bool ring_put_once(struct shm_ring *r, uint32_t slot, uint32_t *at);
/* 1: *slot was taken; 0: the ring is empty; -1: the other one has written what cannot be. */
int ring_take(struct shm_ring *r, uint32_t *slot);
bool ring_empty(const struct shm_ring *r);
