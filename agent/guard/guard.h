/* The guard: a fork made before any thread or library, which outlives the session and ends what the session
 * left.
 *
 *      transport - guard (this process) - session - workers, engine
 *
 * The guard is the parent, so that what a dead session leaves becomes the guard's: it is a subreaper. It
 * watches the session's end and its beat, a word in a page that both share. When the session has died or
 * stopped beating, the guard kills it and everything below, removes the job's directory and cgroup (the
 * session wrote their paths into the page before it made them) and exits with the session's status (or as in
 * common/protocol/agent_exit.h). It holds
 * none of the channel's descriptors, so the transport sees the channel's end at once. All of its waits are
 * bounded.
 *
 * The guard beats back. One that was stopped is continued by the session; a job need not fail for it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/guard/job_dir.h"
#include "agent/worker/containment.h"

struct guard_page { /* written by the session, read by the guard; but for: */
    _Atomic uint64_t guard_beat;
    _Atomic uint64_t beat;
    _Atomic uint32_t limit_ms; /* of silence */
    _Atomic bool has_cgroup, has_directory;
    _Atomic bool gave_up; /* the session has named what SIGKILL did not end in its time */
    char cgroup[CONTAINMENT_PATH_MAX];
    char directory[JOB_DIR_MAX];
};

/* The lease from a managed agent; systemd holds the unit. */
struct guard_lease {
    uint32_t slots;
    const char *gpus;   /* "0,3"; NULL: none */
    const char *unit;   /* that the session is */
    const char *socket; /* of the agent, which wants to hear of it */
};

struct guard {
    struct guard_page *page;
    pid_t pid;                /* of the guard */
    int pidfd;                /* the same, for the session: readable when the guard has died */
    pid_t session;            /* for the guard */
    struct guard_lease lease; /* slots 0: started by hvdrun */
    int status_fd; /* the guard writes its exit status there at its end, for a process that cannot wait for
                      the guard; -1: none */
};

/* A guard that systemd starts for a managed agent: stdin is the channel in both directions, stdout where the
 * status goes (agent/daemon/protocol/wire.h). Makes stdout the channel too. */
int guard_take_lease(struct guard *g, const struct guard_lease *lease, struct err *e);
/* Returns 0 in the session, 1 in the guard, -1 with *e when nothing was forked. */
int guard_fork(struct guard *g, struct err *e);
/* The guard's life; returns its exit status. */
int guard_main(struct guard *g);

/* The session's side. An empty path: there is none any more. */
void guard_beat(struct guard *g);
/* Changes as long as the guard moves, four times in the silence that guard_limit allows. */
uint64_t guard_moves(const struct guard *g);
/* Does it, or did it die before us? */
bool guard_lives(const struct guard *g);
/* Lets a stopped guard go on. */
void guard_wake(struct guard *g);
/* How long the session may not beat. */
void guard_limit(struct guard *g, uint32_t limit_ms);
/* The processes that are left ignore SIGKILL and were named: the guard need not wait as long again. */
void guard_gives_up(struct guard *g);
void guard_owns_cgroup(struct guard *g, const char *path);
void guard_owns_directory(struct guard *g, const char *path);

/* ---- a sweep ------------------------------------------------------------------------------------------- */

/* `hvdagent sweep [--now] JOB`: ends what is left of a job of this user on this host. A session or guard that
 * lives is asked to do it, with the grace that the workers have; then, or at once with `now`, everything is
 * killed. Returns the exit status: 0 when nothing is left, 1 when processes cannot be killed (they are
 * named), 2 for a bad name. */
int sweep_job(const char *job, bool now);
