/* Stalled operations: found, asked about, told in one line that names the missing ranks of all hosts. */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/engine/stalls/stall.h"

struct stall_told { /* an operation that ranks of this host are in now */
    uint64_t since;
    uint32_t slot, operation;
    const char *tensor, *kind;
    char missing[sizeof((struct stall_ranks *)0)->text]; /* empty: no rank here, and others were not asked */
};

extern const struct engine_part stalls_part;

/* The furthest operation of a tensor, and whether ranks wait for others there. */
bool stalls_is_pending(const struct engine *engine, uint32_t slot, uint32_t *operation, uint8_t *kind);
/* The same, also of hvd_join. */
bool stalls_is_under_way(const struct engine *engine, uint32_t slot, uint32_t *operation, uint8_t *kind);
/* Has the member of the tensor's team, by its place on this host, not come to that operation yet? */
bool stalls_is_missing(const struct engine *engine, uint32_t slot, uint32_t member, uint32_t operation);

/* The longest ones, at most `most` of them. Returns how many there are. */
uint32_t stalls_now(const struct engine *engine, uint64_t now, struct stall_told *told, uint32_t most);
