/* A job and its restarts: one epoch after the other, each a complete job of its own (new name, key, sessions,
 * engines), until one ends well or no other is worth it (restart_policy.h).
 *
 *   epoch 0 -> failed -> what was lost is swept, or its lease has run out -> back-off -> epoch 1 -> ...
 *
 * An epoch's failure is one line on stderr; the report at the end is about the last one. A signal ends the
 * back-off at once, and so does --timeout, which is for all epochs together. */
#ifndef HVD_LAUNCHER_JOB_RESTART_H
#define HVD_LAUNCHER_JOB_RESTART_H

#include "common/base/err.h"
#include "launcher/cli/config.h"
#include "launcher/plan/hosts.h"

/* Runs the job and at most --max-restarts more epochs. Returns hvdrun's exit status, that of the last epoch,
 * after it said what went wrong; -1 with *e filled when an epoch was refused before anything of it was
 * started. `hosts` must be complete but for `auto` slots, which are resolved in place. */
int restart_run(const struct config *config, struct host_list *hosts, const char *hostname, struct err *e);

#endif
