/* Counters of the engine, for the session. */
#ifndef HVD_COLLECTIVES_ENGINE_COUNTERS_H
#define HVD_COLLECTIVES_ENGINE_COUNTERS_H

#include "collectives/engine/core.h"

extern const struct engine_part counters_part;

/* Answers the session's question. */
void counters_tell(struct engine *engine);

#endif
