/* The jobs of this host, as hvdctl finds them: by the sockets in their directories (agent/job_dir.h).
 *
 * A user finds his own; root finds everybody's. What a user could have put in their place is told by the
 * kernel: directories must be owned by the user whose number they have, no link is followed, and nothing is
 * said to a socket before the process at its other end is that user's. */
#ifndef HVD_AGENT_CTL_JOBS_H
#define HVD_AGENT_CTL_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

#define CTL_JOB_MAX 96

struct ctl_job {
    char name[CTL_JOB_MAX]; /* of its directory: JOB-HOST, HOST being the host's index in the job */
    uid_t uid;
    int directory; /* a descriptor of it */
};

struct ctl_jobs {
    struct ctl_job *item;
    size_t count;
};

/* All of them, by name. -1 with *e. */
int ctl_jobs_find(struct ctl_jobs *jobs, struct err *e);
void ctl_jobs_free(struct ctl_jobs *jobs);
/* Is `word` the job's name, with or without the host's index, or the beginning of it? */
bool ctl_job_is(const struct ctl_job *job, const char *word);

#endif
