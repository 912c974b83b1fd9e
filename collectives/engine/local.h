/* Operations of this host: the rings of its ranks, and chunks of large operations that the engine takes. */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/shm/layout.h"

/* Slots with chunks for the engine, oldest first. */
struct helping {
    uint32_t slot[SHM_SLOTS];
    uint32_t first, count;
};

extern const struct engine_part local_part;
