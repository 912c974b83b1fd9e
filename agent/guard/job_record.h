/* The supervisors of a job on this host, and the grace period of its workers after SIGTERM: a small file in
 * the job's directory (mode 0600), which the session writes for `hvdagent sweep`.
 *
 * A process is named by its number and the time of its start, so a later process with the same number is
 * never taken for it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"

struct job_note_process {
    pid_t pid;
    uint64_t started; /* in the kernel's ticks since boot */
};

struct job_note {
    struct job_note_process guard, session;
    uint32_t grace_ms;
};

/* By the session, which is the caller, into its directory. */
int job_note_write(int directory, pid_t guard, uint32_t grace_ms, struct err *e);
/* -1 when there is none, or what is there is not one of ours. */
int job_note_read(int directory, struct job_note *note);
/* A pidfd of that very process when it lives, is ours and an hvdagent; else -1. */
int job_note_hold(const struct job_note_process *p);
