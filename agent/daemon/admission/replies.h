/* What the daemon says to its clients, each into an empty socket, or nearly so. */
#ifndef HVD_AGENT_DAEMON_ADMISSION_REPLIES_H
#define HVD_AGENT_DAEMON_ADMISSION_REPLIES_H

#include "agent/daemon/admission/client.h"

/* Where he stands in the queue; empty: he waits no longer. False when he does not take it, and so does not
 * want it. */
bool reply_waiting(struct client *c, const char *text);
/* c->refusal. */
void reply_refusal(struct client *c);
/* Which leases there are; of other users' only root is told everything. */
void reply_status(struct client *c);
void reply_gpus(struct client *c);

#endif
