/* What the engine tells the session when the session asks, and when its ranks have all shut down or the job
 * has failed. */
#ifndef HVD_COLLECTIVES_ENGINE_COUNTERS_H
#define HVD_COLLECTIVES_ENGINE_COUNTERS_H

#include "collectives/engine/core.h"

extern const struct engine_part counters_part;

/* Answers the session's question. */
void counters_tell(struct engine *engine);

#endif
