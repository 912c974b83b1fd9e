/* Holds all processes that a worker starts together, so that they can be ended as a whole.
 *
 * The better way is a cgroup (v2) of the job's own: workers are born in it and one write kills all of them,
 * even while they fork. All start in a leaf of that cgroup, so that a container may make others beside it: a
 * cgroup whose controllers are divided takes no process. In a cgroup that this user may not divide, the
 * session is a subreaper (descendants.h) and relies on the workers' SIGKILL at its death. The guard uses the
 * same functions with the path that the session told it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/err.h"

#define CONTAINMENT_PATH_MAX 512
#define CONTAINMENT_VARIABLE                                                                                 \
    "HVD_CONTAINMENT" /* "subreaper": no cgroup even where one could be had; see hvdagent(8) */

#define CONTAINMENT_PREFIX "hvdjob-"
#define CONTAINMENT_LEAF   "processes"

struct containment {
    char path[CONTAINMENT_PATH_MAX]; /* of the cgroup; empty: none */
    int lock;                        /* its directory, with a lock on it that says it is in use; -1: none */
    int fd;                          /* the leaf's directory, where processes start; -1: none */
};

/* The path of a new cgroup of this job, by the text of /proc/self/cgroup and of /proc/self/mountinfo: pure.
 * -1 when there is no cgroup v2. */
int containment_place(const char *self_cgroup, const char *mountinfo, const char *name, char *path,
                      size_t size);
/* A file of our own cgroup in the v1 hierarchy of `controller`, by the same texts. -1 when there is none. */
int containment_place_v1(const char *self_cgroup, const char *mountinfo, const char *controller,
                         const char *file, char *path, size_t size);
/* The texts of both files of this process, at most a second old: a session asks for them several times as it
 * starts. One thread only may call it, and they are valid until its next call. false: one cannot be read. */
bool containment_texts(const char **self_cgroup, const char **mountinfo);
/* The whole text of a file of /proc; NULL when it cannot be read. The caller frees it. */
char *containment_read(const char *file);
/* Finds the path of the cgroup that could be made, named CONTAINMENT_PREFIX and `name`; empty when there can
 * be none. */
void containment_find(struct containment *c, const char *name);
/* Makes it. Never fails: where it cannot be made the path becomes empty, and containment_name says what is in
 * use. */
void containment_make(struct containment *c);
/* False: somebody else has removed the cgroup, as he can while no process is in it. */
bool containment_holds(const struct containment *c);
const char *containment_name(const struct containment *c); /* "cgroup" or "subreaper" */
void containment_close(struct containment *c);

/* SIGKILL to all in the cgroup at `path`; nothing when the path is empty. */
void containment_kill(const char *path);
/* Removes the empty cgroup and those below it, waiting at most `ms` for the kernel to let go of the last
 * process. -1 when it stays. */
int containment_remove(const char *path, unsigned ms);

/* Kills what is in the cgroups of job `job` (NULL: of every job of this user) that no session holds any more,
 * and removes them. With `all` also those that are held. Only beside our own cgroup. */
void containment_sweep(const char *job, bool all);
