/* A job from its hosts to its exit status. This is where everything in launcher/ meets; the lifecycle is one
 * table in job.c.
 *
 *   CONNECTING   every host on its way to READY, at most FANOUT_MAX at once
 *   STARTING     the plan is made, Spawn was sent; until every rank runs
 *   RUNNING      until every rank has ended and was read to its end, or the first fault
 *   PARTING      a fault while engines are in use: the other workers' calls end with HVD_ERR_PEER, and they
 *                have a moment to say so
 *   INTERRUPTED  a signal was passed on; the workers have the grace period to end by themselves
 *   ENDING       Teardown was sent; until every host is CLOSED, or given up
 *   SWEEPING     hosts that were lost are reached again, or their leases run out
 *   DRAINING     until the last byte of output has left
 *   DONE
 *
 * Nothing of a job outlives job_free, so that another can follow. */
#ifndef HVD_LAUNCHER_JOB_H
#define HVD_LAUNCHER_JOB_H

#include "common/err.h"
#include "launcher/config.h"
#include "launcher/hosts.h"

struct job;

/* NULL with *e filled when it is refused; nothing was started then. `hosts` must be complete but for `auto`
 * slots, which are resolved in place. Everything given must outlive the job. */
struct job *job_new(const struct config *config, struct host_list *hosts, const char *hostname,
                    struct err *e);
/* Runs the whole job, once. Returns the exit status of hvdrun because of it. */
int job_run(struct job *j);
/* Says what went wrong, for as long as somebody reads it, and writes --report. */
void job_report(struct job *j, int exit_status);
void job_free(struct job *j);

#endif
