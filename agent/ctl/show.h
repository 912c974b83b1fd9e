/* What hvdctl prints of jobs, for people and as JSON. */
#ifndef HVD_AGENT_CTL_SHOW_H
#define HVD_AGENT_CTL_SHOW_H

#include <stdio.h>
#include <sys/types.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/json.h"

/* A job as it is now. */
struct ctl_seen {
    uid_t uid;
    Hvd__Answer *answer; /* with its status; owned */
    double cpu_percent;  /* of one processor since the look before; negative: not known */
};

/* His name, or his number. Returns `text`. */
const char *show_user(uid_t uid, char *text, size_t size);
void show_jobs(FILE *out, const struct ctl_seen *seen, size_t count);
void show_jobs_json(FILE *out, const struct ctl_seen *seen, size_t count);
void show_status(FILE *out, const struct ctl_seen *seen);
void show_status_json(FILE *out, const struct ctl_seen *seen);
/* Jobs and their ranks on one screen of so many lines. */
void show_top(FILE *out, const struct ctl_seen *seen, size_t count, int lines);

#endif
