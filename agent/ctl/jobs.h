/* The jobs of this host, as hvdctl finds them: by the sockets of their sessions and of their hvdruns
 * (common/status/status_address.h).
 *
 * Users find their own jobs; root finds all jobs. The kernel tells jobs from forgeries: a directory must be
 * owned by the user whose number it has, no link is followed, and nothing is sent to a socket before the
 * process at its other end is known to be that user's. Of a user with more than CTL_JOBS_OF_USER directories
 * some are left out, so that no user hides the jobs of others behind a multitude. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/err.h"

#define CTL_JOB_MAX      96
#define CTL_JOBS_OF_USER 1024

struct ctl_job {
    char name[CTL_JOB_MAX]; /* JOB-HOST, HOST being the host's index in the job; of hvdrun: JOB */
    uid_t uid;
    int directory; /* a descriptor of the session's directory; -1: this is hvdrun, which knows all hosts */
};

struct ctl_jobs {
    struct ctl_job *item;
    size_t count;
};

/* Of a job that has its hvdrun here and a session, or several. */
enum ctl_kind {
    CTL_HVDRUNS, /* hvdrun stands for the sessions */
    CTL_SESSIONS /* no hvdrun at all */
};

/* All of them, by name; what is left out is said on stderr. -1 with *e. */
int ctl_jobs_find(struct ctl_jobs *jobs, struct err *e);
/* Leaves those of a kind; `word`: also the session of exactly that name, or NULL. */
void ctl_jobs_keep(struct ctl_jobs *jobs, enum ctl_kind kind, const char *word);
void ctl_jobs_free(struct ctl_jobs *jobs);
/* How many have such a name, with or without the host's index; without any such, a name that begins so.
 * *first is the first of them. */
size_t ctl_jobs_named(const struct ctl_jobs *jobs, const char *word, size_t *first);
