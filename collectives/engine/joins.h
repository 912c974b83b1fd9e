/* Ranks that are in hvd_join: operations that they are to take part in. */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/shm/worker_socket.h"

struct joins {
    uint32_t joining;  /* members that are in hvd_join */
    uint32_t *of_rank; /* [size]; the last join that other hosts' ranks are known to have come to; 0: none */
    uint32_t heard;    /* the last of those */
    uint32_t wanting;  /* no slot was free for what they lack: the answers to this are awaited; 0: no */
};

extern const struct engine_part joins_part;

/* A member is in hvd_join or refuses now, or neither any more. */
void joins_member(struct engine *engine, uint32_t member, enum worker_join how);
/* A member has arrived there, and others of this host have perhaps not. */
void joins_arrived(struct engine *engine, uint32_t slot);
/* The operation of the slot's view was announced to other hosts. */
void joins_announced(struct engine *engine, uint32_t slot);
