/* hvdctl node, drain and undrain: the managed agent of a host - what it gives to whom, and root's word that
 * it is to take no new jobs. Another host is reached by ssh, which runs hvdctl there. */
#ifndef HVD_AGENT_CTL_NODE_H
#define HVD_AGENT_CTL_NODE_H

#include <stdbool.h>

#include "agent/ctl/config.h"
#include "common/base/err.h"

/* c->job is the host's name; NULL: this one. Each returns the exit status. */
int ctl_node(const struct ctl_config *c, struct err *e);
int ctl_drain(const struct ctl_config *c, struct err *e);
int ctl_gpus(const struct ctl_config *c, struct err *e);
int ctl_accept(const struct ctl_config *c, struct err *e);
int ctl_undrain(const struct ctl_config *c, struct err *e);

/* Shows the job of such a name that waits for slots here; false: there is none, or no managed agent. */
bool ctl_waiting(const struct ctl_config *c);

#endif
