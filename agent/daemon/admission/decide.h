/* What somebody who has connected wants, and whether he gets it. */
#ifndef HVD_AGENT_DAEMON_ADMISSION_DECIDE_H
#define HVD_AGENT_DAEMON_ADMISSION_DECIDE_H

#include "agent/daemon/admission/client.h"
#include "agent/daemon/admission/client_states.h"

/* Checks the whole request before anything is changed; where he is refused, c->refusal says why. */
enum client_event wish_decide(struct client *c, const Hvd__Daemon *m);
/* Writes the lease. EV_ADMITTED, or EV_REFUSED with c->refusal. */
enum client_event wish_grant(struct client *c, const struct lease *lease);

#endif
