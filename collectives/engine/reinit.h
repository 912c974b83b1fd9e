/* The next epoch of a job: its ranks have called hvd_shutdown, and now hvd_init again. */
#pragma once

#include "collectives/engine/core.h"

extern const struct engine_part reinit_part;

/* All ranks of this host have called hvd_shutdown, and nothing of the epoch is left to do. */
bool reinit_is_over(struct engine *engine);
/* The next epoch begins. -1 with *e: it cannot yet, or (the engine ends) at all. */
int reinit_begin(struct engine *engine, struct err *e);
