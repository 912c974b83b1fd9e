/* The processes below this one, and how to end them.
 *
 * This process is a subreaper: whatever a worker leaves behind becomes our child when its parent ends, so
 * walking down from ourselves finds every process of the job, however often it forked and whatever session it
 * made. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DESCENDANT_NAME_MAX 32

struct descendant {
    pid_t pid;
    char name[DESCENDANT_NAME_MAX];
    char state; /* as in /proc/PID/stat; Z: only waits to be reaped */
};

/* Sends `sig` to all descendants that are not zombies, but not to those in `spare` (0 at its end; NULL:
 * nobody is spared) and what is below them. Returns how many got it. */
size_t descendants_signal(int sig, const pid_t *spare);
/* Only to those that `wanted` (NULL: all) says yes to. */
size_t descendants_signal_if(int sig, const pid_t *spare, bool (*wanted)(void *ctx, pid_t pid), void *ctx);
/* Describes at most `max` descendants that are not zombies. Returns how many. */
size_t descendants_list(struct descendant *out, size_t max);
/* The children of `parent`, zombies included, at most `max`; none where the kernel does not list them. */
size_t descendants_children(pid_t parent, pid_t *out, size_t max);
/* Has this process a child, zombies included, other than those in `except` (0 at its end; NULL: none)? */
bool descendants_any(const pid_t *except);
