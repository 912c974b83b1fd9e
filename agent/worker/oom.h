/* Detects that a worker was killed for lack of memory. The kernel counts such kills for each cgroup: a
 * SIGKILL that came while the count of the workers' cgroup grew was one of them. Without a count nothing is
 * claimed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/worker/containment.h"

struct oom {
    char file[CONTAINMENT_PATH_MAX + 32]; /* that has the count of kills; empty: none */
    uint64_t seen;                        /* kills before the job, or already explained */
};

/* The count of the cgroup at `containment` (may be empty), or else of our own, v2 or v1. */
void oom_open(struct oom *o, const char *containment);
/* A process of the cgroup was ended by SIGKILL, not by us. */
bool oom_explains(struct oom *o);

/* The number after "oom_kill" in the text of memory.events or memory.oom_control; 0 when there is none. */
uint64_t oom_count(const char *text);
