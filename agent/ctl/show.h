/* The output of hvdctl: jobs and GPUs for people and as JSON, and jobs for Prometheus. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/base/json.h"
#include "common/protocol/control.pb-c.h"

/* A job as it is now on one host. */
struct ctl_seen {
    uid_t uid;
    Hvd__Answer *answer; /* with its status; owned */
    double cpu_percent;  /* of one processor since the look before; negative: not known */
};

/* The name of the user, or the number. Returns `text`. */
const char *show_user(uid_t uid, char *text, size_t size);
void show_jobs(FILE *out, const struct ctl_seen *seen, size_t count);
void show_jobs_json(FILE *out, const struct ctl_seen *seen, size_t count);
/* One job; `count` of its hosts, from 1. */
void show_status(FILE *out, const struct ctl_seen *seen, size_t count);
void show_status_json(FILE *out, const struct ctl_seen *seen, size_t count);
struct show_screen {
    int lines, columns;
    bool colours;
};

/* Jobs and their ranks on one screen; a narrow one shows no users. Hosts of a job and ranks of a host change
 * their order: those that others wait for come first. */
void show_top(FILE *out, struct ctl_seen *seen, size_t count, const struct show_screen *screen);
/* Ranks of the job that have not ended here. */
unsigned show_live_ranks(const Hvd__JobStatus *s);

/* metrics.c: each family with a sample for each job. `node`: the answer of the managed agent; NULL: there is
 * none. */
void show_metrics(FILE *out, const struct ctl_seen *seen, size_t count, const Hvd__AgentStatus *node);

/* The lateness of ranks, as far as the answers have it: those of hvdrun do. */
void show_lateness_metrics(FILE *out, const struct ctl_seen *seen, size_t count);

/* gpus.c: the GPUs of a node, on stdout. */
void show_gpus(Hvd__Gpus *g);
void show_gpus_json(const Hvd__Gpus *g);
