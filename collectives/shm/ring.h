/* A member's submission ring: slots whose operation is complete on this host, for the engine. One producer
 * (the member, under its own lock), one consumer (the engine). */
#ifndef HVD_SHM_RING_H
#define HVD_SHM_RING_H

#include "collectives/shm/layout.h"

/* false: the ring is full. */
bool ring_put(struct shm_mailbox *m, uint32_t slot);
/* 1: *slot was taken; 0: the ring is empty; -1: the member has written what cannot be. */
int ring_take(struct shm_mailbox *m, uint32_t *slot);
bool ring_empty(const struct shm_mailbox *m);

#endif
