/* hvdctl logs: what the ranks of a job wrote last on this host, and what they write. */
#ifndef HVD_AGENT_CTL_LOGS_H
#define HVD_AGENT_CTL_LOGS_H

#include "agent/ctl/config.h"
#include "agent/ctl/jobs.h"

/* Returns the exit status. */
int ctl_logs(const struct ctl_config *c, const struct ctl_job *job, struct err *e);

#endif
