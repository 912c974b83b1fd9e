/* Limits for the number of workers here: descriptors of the session, processes of the user, of its cgroups
 * and of the kernel. Welcome tells them, so that the launcher can refuse a job before a worker was started
 * anywhere. An unforeseen limit still fails at its clone or pipe.
 *
 * Only limits that might not suffice are found, because a launch pays for reading them. A limit that cannot
 * be read is taken for none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/worker/containment.h"

#define LIMITS_MAX 16

struct limit {
    bool descriptors; /* else processes and threads */
    uint64_t limit, used;
    char name[CONTAINMENT_PATH_MAX + 32];
    const char *hint;
};

struct limits {
    struct limit item[LIMITS_MAX];
    size_t count;
};

/* Limits that certainly suffice for `ranks` workers are left out; with 0, none is left out. */
void limits_read(struct limits *l, uint32_t ranks);

/* ---- pure parts ---- */

/* May it be too low for that many workers? */
bool limit_is_near(const struct limit *limit, uint32_t ranks);
/* The number in the text of pids.max and its like; UINT64_MAX for "max" and for what is no number. */
uint64_t limits_number(const char *text);
/* All tasks of the machine, by the text of /proc/loadavg; 0 when it does not say. */
uint64_t limits_tasks(const char *loadavg);
/* By the text of a /proc/PID/status: its threads when it runs for `uid`, else 0. */
uint64_t limits_threads_of(const char *status, uint64_t uid);
/* May it exceed its user's processes (CAP_SYS_ADMIN or CAP_SYS_RESOURCE)? */
bool limits_exempt(const char *status);
