/* The commands of hvdctl that have a file of their own. */
#pragma once

#include <stdio.h>

#include <stdbool.h>

#include "agent/ctl/config.h"
#include "agent/ctl/jobs.h"
#include "common/base/err.h"

#define EXIT_REFUSED 1 /* no such job, or it has ended, or not yours */
#define EXIT_USAGE   2

/* node.c: the managed agent of a host. c->job is the host's name; NULL: this one. Another host is reached by
 * ssh, which runs hvdctl there. Each returns the exit status. */
int ctl_node(const struct ctl_config *c, struct err *e);
int ctl_drain(const struct ctl_config *c, struct err *e);
int ctl_gpus(const struct ctl_config *c, struct err *e);
int ctl_accept(const struct ctl_config *c, struct err *e);
int ctl_undrain(const struct ctl_config *c, struct err *e);

/* Whether c->job names another host; then ctl_go_there becomes ssh, which runs the same command there. It
 * returns, with an exit status, only when that fails. */
bool ctl_is_elsewhere(const struct ctl_config *c);
int ctl_go_there(const struct ctl_config *c, struct err *e);

/* top.c */
int ctl_top(const struct ctl_config *c, struct err *e);

/* Shows the job of such a name that waits for slots here; false: there is none, or no managed agent. */
bool ctl_waiting(const struct ctl_config *c);

/* wishes.c: the end of a job; another number of ranks; the end of its ranks on this host. */
int ctl_kill(const struct ctl_config *c, const struct ctl_job *job, struct err *e);
int ctl_resize(const struct ctl_config *c, const struct ctl_job *job, struct err *e);
int ctl_leave(const struct ctl_config *c, const struct ctl_job *job, struct err *e);
/* The same for all elastic jobs of this host; tells of each that it asks. */
void ctl_leave_all(const struct ctl_config *c);

/* why.c: the reason why the job does not go on. */
int ctl_why(const struct ctl_config *c, const struct ctl_job *job, struct err *e);

/* trace.c: what its ranks do, in a file for Perfetto. */
int ctl_trace(const struct ctl_config *c, const struct ctl_job *job, struct err *e);

/* page.c */
/* An empty file that only the user can read and write. A symbolic link is not followed. NULL with errno. */
FILE *ctl_create_file(const char *path);
/* The report of the job as it is now, in an HTML file, or as JSON. */
int ctl_page(const struct ctl_config *c, const struct ctl_job *job, struct err *e);

/* logs.c: the last output of the ranks of a job on this host, and with -f the output that follows. Returns
 * the exit status. */
int ctl_logs(const struct ctl_config *c, const struct ctl_job *job, struct err *e);
