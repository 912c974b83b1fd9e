/* Flags of horovodrun that hvdrun's own engine has no use for: some become variables, which the workers of
 * stock Horovod read; for the others there is nothing to do, and that is said. */
#pragma once

#include "common/base/err.h"
#include "launcher/cli/config.h"
#include "launcher/cli/environment.h"

/* Only what was asked for is set, so that a worker's own defaults apply otherwise. */
int horovod_flags_export(const struct config *config, struct environment *env, struct err *e);
/* A line for each flag that was given for nothing, unless only errors are wanted. */
void horovod_flags_say(const struct config *config);
