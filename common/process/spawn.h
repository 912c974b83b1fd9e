/* Starts a program: clone3 with a pidfd, into a cgroup when one is given, with a clean set of descriptors and
 * signals.
 *
 * Not uv_spawn: that scans every handle of the loop for each child and never reaps adopted orphans. The child
 * calls only async-signal-safe functions before execve. A failure between clone and execve is written as a
 * struct spawn_failure to a pipe that execve closes, so it is never mistaken for the program's own exit
 * status.
 *
 * One thread of a process starts programs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/base/err.h"

struct spawn_limit {
    int resource; /* RLIMIT_... */
    struct rlimit limit;
};

struct spawn {
    const char *path;  /* of the executable; no search */
    char *const *argv; /* NULL-terminated */
    char *const *envp; /* NULL-terminated; NULL: ours */
    const char *dir;   /* working directory, or NULL */
    int fds[3];        /* become 0, 1, 2; -1: /dev/null */
    int extra_fd;      /* becomes 3; -1: none */
    int cgroup_fd;     /* the child starts in this cgroup (a directory descriptor); -1: in ours */
    const void *cpus;  /* it runs on these only: a mask of cpus_size bytes; NULL: on ours */
    size_t cpus_size;
    const struct spawn_limit *limits; /* limit_count of them, instead of ours */
    size_t limit_count;
    bool new_session;  /* setsid: out of the terminal's process group, its pid is its process group */
    bool new_group;    /* setpgid: its pid is its process group, the session is ours */
    bool terminal;     /* descriptor 0 becomes the terminal of its new session */
    bool stop_at_exec; /* it stops, as by SIGSTOP, before the first instruction of its program */
    bool die_with_us;  /* SIGKILL when the calling thread ends */
    int report_fd;     /* takes a spawn_failure; -1: spawn_start waits for execve and returns it */
    uint32_t id;       /* goes into spawn_failure */
};

#define SPAWN_INIT                                                                                           \
    {                                                                                                        \
        .fds = {-1, -1, -1}, .extra_fd = -1, .cgroup_fd = -1, .report_fd = -1                                \
    }

enum spawn_step { SPAWN_CHDIR = 1, SPAWN_DESCRIPTORS, SPAWN_EXEC, SPAWN_BIND, SPAWN_STOP, SPAWN_CGROUP };

/* Written by the child in one piece (less than PIPE_BUF). */
struct spawn_failure {
    uint32_t id;
    int32_t step;
    int32_t errnum;
};

struct spawned {
    pid_t pid;
    int pidfd; /* close-on-exec; the caller closes it */
};

/* Raises our soft limit of descriptors to `wanted`, or as far as the hard one lets it. Programs started later
 * get the limit that we had before: a program may trust that its descriptors fit into a set of select(2). */
void spawn_raise_descriptor_limit(rlim_t wanted);
/* The limits that we had before that. */
int spawn_inherited_limit(int resource, struct rlimit *limit);
/* 0, or -1 with *e filled; then no child is left. Blocks for the time of an execve when report_fd is -1. */
int spawn_start(const struct spawn *s, struct spawned *out, struct err *e);
/* Turns a failure into a sentence and a code (127 not found, 126 not executable, else 125). Always returns
 * -1. */
int spawn_failure_err(const struct spawn_failure *f, const struct spawn *s, struct err *e);

/* Finds `command` as a shell would: a name with a slash is taken relative to `dir` (NULL: here), another is
 * searched in `path` (the value of PATH, NULL: the system's default). Writes the result to `out`. -1 with *e:
 * ERR_NOT_FOUND or ERR_NOT_EXECUTABLE. */
int spawn_find(const char *command, const char *path, const char *dir, char *out, size_t size, struct err *e);
