/* Which tensors wait for whom, and for how long (pure: time is an argument).
 *
 * The owner looks at every tensor now and then and says how far its members are (stall_seen). A tensor whose
 * members have been apart at the same place for warn_ns is reported once; when it moves, it counts anew. */
#ifndef HVD_ENGINE_STALL_H
#define HVD_ENGINE_STALL_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/shm/layout.h"

struct stall {
    uint64_t warn_ns; /* 0: never */
    struct {
        uint64_t since; /* 0: all members are together */
        uint32_t operation;
        bool reported;
    } slot[SHM_SLOTS];
};

/* `operation` is the furthest one that a member has arrived at; together: all have. true: report it now. */
bool stall_seen(struct stall *s, uint32_t slot, uint32_t operation, bool together, uint64_t now);

#endif
