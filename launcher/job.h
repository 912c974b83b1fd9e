/* A job from its hosts to its exit status. This is where everything in launcher/ meets; the lifecycle is one
 * table in job.c.
 *
 *   CONNECTING   every host on its way to READY, at most FANOUT_MAX at once
 *   STARTING     the plan is made, Spawn was sent; until every rank runs
 *   RUNNING      until every rank has ended and was read to its end, or the first fault
 *   PARTING      a fault while engines are in use: the other workers' calls end with HVD_ERR_PEER, and they
 * have a moment to say so INTERRUPTED  a signal was passed on; the workers have the grace period to end by
 * themselves ENDING       Teardown was sent; until every host is CLOSED, or given up DRAINING     until the
 * last byte of output has left DONE */
#ifndef HVD_LAUNCHER_JOB_H
#define HVD_LAUNCHER_JOB_H

#include "common/err.h"
#include "launcher/config.h"
#include "launcher/hosts.h"

/* Runs the whole job; returns hvdrun's exit status after it said what went wrong. -1 with *e filled when it
 * was refused before anything was started. `hosts` must be complete but for `auto` slots, which are resolved
 * in place. */
int job_run(const struct config *config, struct host_list *hosts, const char *hostname, struct err *e);

#endif
