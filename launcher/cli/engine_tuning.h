/* The options about collectives become variables of the workers, under the names that Horovod's workers read
 * too, and a part of the Spawn message for the engines. */
#pragma once

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"
#include "launcher/cli/config.h"
#include "launcher/cli/environment.h"

/* Both set the variable if a flag, a variable or the file gave a value, be it the default. `on`, `off` and
 * `value` are fields of *c; -1 is no number. */
int config_export_switch(const struct config *c, struct environment *env, const char *name, const bool *on,
                         const bool *off, struct err *e);
int config_export_number(const struct config *c, struct environment *env, const char *name,
                         const int64_t *value, struct err *e);
/* Only what was asked for is set, so that a worker's own defaults apply otherwise. */
int engine_tuning_export(const struct config *config, struct environment *env, struct err *e);
/* Texts point into config and env. */
void engine_tuning_fill(const struct config *config, const struct environment *env, Hvd__EngineTuning *t);
