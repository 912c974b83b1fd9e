/* The first message of a client, with what comes beside it. */
#ifndef HVD_AGENT_DAEMON_ADMISSION_REQUEST_H
#define HVD_AGENT_DAEMON_ADMISSION_REQUEST_H

#include "agent/daemon/admission/client.h"

/* Takes what is there of it into c->frame and c->fd, no more: 1 when it is whole, 0 when some is to come, -1
 * at the end or, with *e, when it is none. */
int request_read(struct client *c, struct err *e);
/* Who the kernel says it is. -1: it says nothing. */
int request_identify(struct client *c);
/* Names need the user database, which may take its time: for those only who will be decided about. */
void request_name_user(struct client *c);

#endif
