/* All faults of all hosts at once, before the first worker is started anywhere: hosts that cannot be reached,
 * and what their sessions found missing (Welcome.problem) or too low (Welcome.limit).
 *
 * The first host that fails does not end the job at once: the others get a moment to answer, so that a user
 * with four broken hosts reads of four. One fault is said as any other; more are a table of host, what, why
 * and fix, in the order of the hosts. */
#ifndef HVD_LAUNCHER_PARTS_PREFLIGHT_H
#define HVD_LAUNCHER_PARTS_PREFLIGHT_H

#include <stdbool.h>

#include "common/base/err.h"

struct job;

/* May workers start in the home directory where a host lacks hvdrun's own? Where --preload copies their files
 * there they need no directory that the hosts share. */
bool preflight_or_home(const struct job *j);
/* What the sessions are to look for, into job.preflight. */
int preflight_ask(struct job *j, struct err *e);
/* A host has failed, or has answered after another had: ends the job once all have, or soon. */
void preflight_settle(struct job *j);
/* Says what is known; -1 when there is a fault, which is in the outcome then. */
int preflight_conclude(struct job *j);
void preflight_free(struct job *j);

#endif
