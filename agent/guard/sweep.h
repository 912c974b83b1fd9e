/* `hvdagent sweep [--now] JOB`: ends what is left of a job of this user on this host. A session or guard that
 * lives is asked to do it, with the grace that the workers have; then, or at once with `now`, everything is
 * killed. */
#ifndef HVD_AGENT_GUARD_SWEEP_H
#define HVD_AGENT_GUARD_SWEEP_H

#include <stdbool.h>

/* The exit status: 0 when nothing is left, 1 when processes cannot be killed (they are named), 2 for a bad
 * name. */
int sweep_job(const char *job, bool now);

#endif
