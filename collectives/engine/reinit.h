/* The next epoch of a job: its ranks have called hvd_shutdown, and now hvd_init again. */
#ifndef HVD_COLLECTIVES_ENGINE_REINIT_H
#define HVD_COLLECTIVES_ENGINE_REINIT_H

#include "collectives/engine/core.h"

extern const struct engine_part reinit_part;

/* The next epoch begins. -1 with *e: it cannot yet, or (the engine ends) at all. */
int reinit_begin(struct engine *engine, struct err *e);

#endif
