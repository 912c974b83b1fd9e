/* Slots of this node and their holders: a lease for each session that the daemon let in.
 *
 * A lease is a file DIRECTORY/leases/NAME, mode 0600, put there whole by rename before its unit is asked for,
 * and removed when the unit has gone. The files are all there is: a daemon that starts reads them, and drops
 * those whose unit is not there any more, so its own end costs no job anything. NAME is the unit's without
 * ".service": hvd-JOB, hvd-JOB.2 for a second session of such a job.
 *
 * Not thread-safe. The policy (leases_admit) does no I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"

#define LEASE_JOB_MAX  64
#define LEASE_UNIT_MAX (LEASE_JOB_MAX + 32)
#define LEASE_USER_MAX 64
#define LEASES_MAX     4096
#define LEASE_PREFIX   "hvd-" /* of units */

struct lease {
    char job[LEASE_JOB_MAX + 1];
    char unit[LEASE_UNIT_MAX]; /* with ".service" */
    char user[LEASE_USER_MAX]; /* for people; a number where it has no name */
    uid_t uid;
    uint32_t slots;
    uint64_t gpus;  /* a set (agent/gpu/gpu.h); empty: there are none, or they are shared */
    uint64_t since; /* seconds of the epoch */
    bool confirmed; /* not in the file: systemd knows the unit, or was asked for it by this daemon */
};

struct leases {
    char directory[256]; /* of the files */
    struct lease *item;
    size_t count;
};

struct lease_rules {
    uint32_t slots;             /* of the node */
    uint32_t gpus;              /* likewise; a job gets as large a part of them as of the slots */
    bool share;                 /* they are given to any number of jobs */
    uint32_t max_jobs;          /* 0: no limit */
    uint32_t max_jobs_per_user; /* likewise */
};

struct lease_want {
    const char *job;
    const char *user;
    uid_t uid;
    uint32_t slots; /* 0: as many as are free */
    bool fewer;     /* than asked for are accepted */
};

enum lease_verdict {
    LEASE_GIVEN = 0,
    LEASE_NEVER = -1,     /* the node has not as much, or the request is wrong */
    LEASE_BUSY = -2,      /* may be given when other jobs have ended */
    LEASE_OWN_LIMIT = -3, /* may be given when a job of the same user has ended */
};

/* Fills *lease with the slots and GPUs that the job may have now, else *e (ERR_BUSY, ERR_HOST): one line that
 * says who has how much. */
enum lease_verdict leases_admit(const struct leases *l, const struct lease_rules *rules,
                                const struct lease_want *want, struct lease *lease, struct err *e);
/* "1 of 4 are free (alice 3)". */
#define LEASES_FREE_TEXT 384
const char *leases_free(const struct leases *l, const struct lease_rules *rules, char text[LEASES_FREE_TEXT]);
uint32_t leases_slots_taken(const struct leases *l);
struct lease *leases_find(struct leases *l, const char *unit);

/* Reads those that are there; a file that is not one of ours is named in the log and removed. */
int leases_open(struct leases *l, const char *directory, struct err *e);
void leases_close(struct leases *l);
/* Writes the file first. -1 with *e: there is no lease. */
int leases_add(struct leases *l, const struct lease *lease, struct err *e);
/* Only the first `slots` of it are needed, with their GPUs. -1 with *e: it stays as it was. */
int leases_shrink(struct leases *l, struct lease *lease, uint32_t slots, struct err *e);
/* Forgets it, and its file; nothing when there is none. */
void leases_drop(struct leases *l, const char *unit);
