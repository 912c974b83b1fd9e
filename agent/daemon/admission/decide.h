/* The decision about a request: is it allowed, is there room. */
#ifndef HVD_AGENT_DAEMON_ADMISSION_DECIDE_H
#define HVD_AGENT_DAEMON_ADMISSION_DECIDE_H

#include "agent/daemon/admission/client.h"

/* Why the node takes no new jobs, as a refusal says it; NULL: it takes them. Valid until the next call. */
const char *admission_closed(struct daemon *d);
/* Checks the whole request before anything is changed; after a refusal c->refusal says why. The queue was
 * served before. */
enum client_event admission_decide(struct client *c, const Hvd__Daemon *m);
/* Writes the lease. EV_ADMITTED, or EV_REFUSED with c->refusal. */
enum client_event admission_grant(struct client *c, const struct lease *lease);

#endif
