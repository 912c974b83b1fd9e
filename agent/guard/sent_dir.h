/* The directory in which hvdrun --send-agent put this agent for one job: <base>/hvd-sent-<job>.XXXXXXXX, of
 * this user alone. It is told by its name, because nobody else makes one like it, and is removed with all
 * that is in it by whoever of guard and session goes last, or by a sweep. An agent that was installed, or is
 * in the cache, is in none. */
#ifndef HVD_AGENT_GUARD_SENT_DIR_H
#define HVD_AGENT_GUARD_SENT_DIR_H

#include <limits.h>

struct sent_dir {
    char path[PATH_MAX]; /* empty: this agent was not sent */
    int fd;              /* holds its lock; -1: none */
};

/* Finds and locks it, and sweeps away those beside it that a killed agent or an interrupted transfer left an
 * hour ago or earlier. */
void sent_dir_find(struct sent_dir *d);
void sent_dir_remove(struct sent_dir *d);

#endif
