/* Counters of the engine, for the session. */
#pragma once

#include "collectives/engine/core.h"
#include "common/protocol/control.pb-c.h"

extern const struct engine_part counters_part;

/* Answers the session's question. */
void counters_tell(struct engine *engine);
/* The same, with the operations that ranks of this host are in now. */
void counters_tell_pending(struct engine *engine);

/* pending.c: these operations. */
struct pending;
/* Room for the operations and their ranks, freed by free(). NULL: no memory. */
struct pending *pending_make(const struct engine *engine);
/* Adds the operations to `out`, which must not outlive `p`. */
void pending_fill(const struct engine *engine, struct pending *p, Hvd__Counters *out);
