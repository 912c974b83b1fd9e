/* hvdctl metrics: what is known of the jobs of this host, for Prometheus. */
#ifndef HVD_AGENT_CTL_METRICS_H
#define HVD_AGENT_CTL_METRICS_H

#include "agent/ctl/show.h"

/* Each family with a sample for each job. `node`: what the managed agent says; NULL: there is none. */
void show_metrics(FILE *out, const struct ctl_seen *seen, size_t count, const Hvd__AgentStatus *node);

#endif
