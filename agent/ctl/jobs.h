/* The jobs of this host, as hvdctl finds them: by the sockets in their directories (agent/guard/job_dir.h).
 *
 * Users find their own jobs; root finds all jobs. The kernel tells jobs from forgeries: a directory must be
 * owned by the user whose number it has, no link is followed, and nothing is sent to a socket before the
 * process at its other end is known to be that user's. Of a user with more than CTL_JOBS_OF_USER directories
 * some are left out, so that no user hides the jobs of others behind a multitude. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

#define CTL_JOB_MAX      96
#define CTL_JOBS_OF_USER 1024

struct ctl_job {
    char name[CTL_JOB_MAX]; /* of its directory: JOB-HOST, HOST being the host's index in the job */
    uid_t uid;
    int directory; /* a descriptor of it */
};

struct ctl_jobs {
    struct ctl_job *item;
    size_t count;
};

/* All of them, by name; what is left out is said on stderr. -1 with *e. */
int ctl_jobs_find(struct ctl_jobs *jobs, struct err *e);
void ctl_jobs_free(struct ctl_jobs *jobs);
/* How many have such a name, with or without the host's index; without any such, a name that begins so.
 * *first is the first of them. */
size_t ctl_jobs_named(const struct ctl_jobs *jobs, const char *word, size_t *first);

/* ---- asking a session ---------------------------------------------------------------------------------- */

#define CTL_ANSWER_MS 5000 /* a session answers within that, or it is stopped */

/* One inquiry, and its answers as they come. */
struct ctl_ask {
    int fd;
    struct buf in;
};

/* Connects to the job's session and asks. -1 with *e: ERR_CLOSED, the session has gone. */
int ctl_ask_open(struct ctl_ask *a, const struct ctl_job *job, const Hvd__Inquiry *inquiry, int timeout_ms,
                 struct err *e);
/* The next answer, freed by message_free. NULL with *e, or when the session has closed the connection (no
 * code in *e). `timeout_ms` -1: waits for as long as the job lives. */
Hvd__Answer *ctl_ask_next(struct ctl_ask *a, int timeout_ms, struct err *e);
void ctl_ask_close(struct ctl_ask *a);
/* The one answer about the state of a job. */
Hvd__Answer *ctl_ask_status(const struct ctl_job *job, int timeout_ms, struct err *e);
