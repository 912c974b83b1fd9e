/* A job from its hosts to its exit status. The lifecycle is one table in job.c.
 *
 *   CONNECTING   every host on its way to READY, at most FANOUT_MAX at once
 *   PREPARING    the plan is made; parts prepare the hosts (--preload: hosts get files)
 *   STARTING     Spawn was sent; until every rank runs
 *   RUNNING      until every rank has ended and was read to its end, or the first fault
 *   INSPECTING   the time limit is over: every host is asked where its ranks are; until all hosts have
 *                answered or are late, or another fault or a signal comes
 *   PARTING      a rank failed while engines are in use: the calls of the other ranks end with HVD_ERR_PEER,
 *                and these ranks have a moment to report it
 *   INTERRUPTED  a signal was passed on; the workers have the grace period to end by themselves
 *   ENDING       Teardown was sent; until every host is CLOSED, or given up
 *   SWEEPING     hosts that were lost are reached again, or their leases run out
 *   DRAINING     until the last byte of output has left
 *   DONE
 *
 * Nothing of a job outlives job_free, so that another can follow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/err.h"
#include "launcher/cli/config.h"
#include "launcher/plan/hosts.h"

struct job;
struct signals;

/* An epoch that failed and was followed by another. */
struct job_past {
    uint64_t began, ended; /* launcher's clock */
    int exit_status;
    char *cause;           /* one line */
    const char **left_out; /* hosts that were lost by then and that the next epoch did without */
    size_t left_out_count;
};

/* One generation of the job's world. */
struct job_epoch {
    uint32_t number;             /* from 0 */
    uint64_t began;              /* when hvdrun began */
    uint64_t deadline;           /* of --timeout, for all epochs together; 0: none */
    const struct job_past *past; /* `number` of them */
};

/* How it went. */
struct job_end {
    bool failed;
    bool ran;   /* every rank did, or one failed, or one's host was lost */
    bool final; /* something asked hvdrun itself to end: a signal, the time limit, nobody takes its output */
    int exit_status;
    uint32_t size;         /* ranks; 0: it did not come to a plan */
    uint64_t began, ended; /* launcher's clock */
    uint64_t ran_for;      /* from when every rank ran, ns; 0: they did not */
    const char *cause;     /* one line, the job's */
};

/* Refuses what needs no host to be refused (early_check.c). -1 with *e. `hostname`: of this host. */
int job_check_early(const struct config *config, const struct host_list *hosts, const char *hostname,
                    struct err *e);
/* NULL with *e filled when it is refused; nothing was started then. `hosts` must be complete but for `auto`
 * slots, which are resolved in place. Everything given must outlive the job. */
struct job *job_new(const struct config *config, struct host_list *hosts, const char *hostname,
                    const struct job_epoch *epoch, struct err *e);
/* A job that cannot run: writes --report with the error. */
void job_refuse(struct job *j, const struct err *e);
/* Runs the whole job, once. The job borrows the loop and the signals, and leaves no handle on the loop. */
void job_run(struct job *j, uv_loop_t *loop, struct signals *signals, struct job_end *end);
/* Says the outcome on stderr, as long as a reader takes the lines, and writes --report. */
void job_report(struct job *j, int exit_status);
/* Says what may be left on the hosts. */
void job_say_rest(const struct job *j);
/* After job_run: whether the host at this index of `hosts` was lost, or could not be reached. */
bool job_lost_host(const struct job *j, size_t index);
void job_free(struct job *j);

/* Runs a job and at most --max-restarts more epochs (restart.c). Returns hvdrun's exit status, that of the
 * last epoch, after it said what went wrong; -1 with *e filled when an epoch was refused before anything of
 * it was started. `hosts` must be complete but for `auto` slots, which are resolved in place. */
int restart_run(const struct config *config, struct host_list *hosts, const char *hostname, struct err *e);
