/* Counters of the engine, for the session. */
#pragma once

#include "collectives/engine/core.h"

extern const struct engine_part counters_part;

/* Answers the session's question. */
void counters_tell(struct engine *engine);
