/* The job's directory on this host: <base>/hvd-<uid>/<job>-<host index>, for this user alone. It holds the
 * worker socket, job_record.h's file, and the files that were copied for the job (preload_files.h).
 *
 * base is $XDG_RUNTIME_DIR, else /run/user/<uid>, else $TMPDIR, else /tmp. A base in which another user could
 * rename our directories is passed over. In /tmp any user may have made hvd-<uid> before, so only a directory
 * of our own with mode 0700 is used. A process that uses a directory holds a lock on it. A directory without
 * a lock was left by a killed agent: the next agent that starts here removes it.
 *
 * Libraries that put files for shared memory somewhere get a directory in /dev/shm as well, made when it is
 * needed, with the same rules and the same end: /dev/shm/hvd-<uid>/<job>-<host index>. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#define JOB_DIR_MAX 96 /* a socket's path has 108 bytes at most */

struct job_dir {
    char path[JOB_DIR_MAX];
    int fd; /* holds the lock; -1: none */
};

/* 1 to 64 of a-z, 0-9 and -: a job's name becomes a part of paths. */
int job_dir_check_name(const char *job, struct err *e);

/* The files that will be put there. A base without enough room is passed over, and so is a base that forbids
 * execution if a file is to be executed. */
struct job_dir_need {
    uint64_t bytes;
    bool executes;
};

/* `need` may be NULL. -1 with *e filled; nothing is left then. */
int job_dir_create(struct job_dir *d, const char *name, const struct job_dir_need *need, struct err *e);
/* Removes the directory at `path` with the sockets and files in it, and hvd-<uid> when it was the last one. A
 * path that is empty or has gone is fine. */
void job_dir_remove(const char *path);
void job_dir_close(struct job_dir *d);
/* The directory in shared memory that belongs to the one at `path`; job_dir_remove removes it, too. */
void job_dir_shared_path(const char *path, char shared[JOB_DIR_MAX]);
/* Makes it. Returns a descriptor that holds its lock; -1 with *e. */
int job_dir_make_shared(const char *path, struct err *e);
/* Removes the directories of job `job` that nobody uses; those in use as well when their users have been
 * killed, although they cannot die yet. */
void job_dir_sweep(const char *job, bool used_too);
/* Calls `see` with each directory of job `job`, whether somebody uses it or not. */
void job_dir_each(const char *job, void (*see)(void *ctx, int fd), void *ctx);

/* ---- the directory of an agent that was sent ----------------------------------------------------------- */

/* The directory in which hvdrun --send-agent put this agent for one job: <base>/hvd-sent-<job>.XXXXXXXX, of
 * this user alone. It is told by its name, because nobody else makes one like it, and is removed with all
 * that is in it by whoever of guard and session goes last, or by a sweep. An agent that was installed, or is
 * in the cache, is in none. */

struct sent_dir {
    char path[PATH_MAX]; /* empty: this agent was not sent */
    int fd;              /* holds its lock; -1: none */
};

/* Finds and locks it, and sweeps away those beside it that a killed agent or an interrupted transfer left an
 * hour ago or earlier. */
void sent_dir_find(struct sent_dir *d);
void sent_dir_remove(struct sent_dir *d);

/* ---- the end of a directory ---------------------------------------------------------------------------- */

/* Empties the directory `name` in directory `at` and removes it, with directories in it up to `deep` levels;
 * links are removed, never followed. -1 with errno when it is still there, or was not. */
int remove_tree(int at, const char *name, int deep);
