/* Admission, step by step, as client.c calls it: a request is read, decided about, replied to. */
#pragma once

#include "agent/daemon/admission/client.h"

/* ---- request.c: the first message of a client, with its descriptors ------------------------------------ */

/* Reads available bytes and descriptors of the request into c->frame and c->fd, and nothing behind the
 * request. Returns 1 when the request is complete, 0 when more is to come. -1: the client has closed, or,
 * with *e, it sent no request. */
int request_read(struct client *c, struct err *e);
/* Takes the identity of the peer from the kernel. -1: the kernel does not know it. */
int request_identify(struct client *c);
/* Looks up the name of the user, which may take its time: only for requests that will be decided about. */
void request_name_user(struct client *c);

/* ---- decide.c: permission and room --------------------------------------------------------------------- */

/* Why the node takes no new jobs, as a refusal says it; NULL: it takes them. Valid until the next call. */
const char *admission_closed(struct daemon *d);
/* Checks the whole request before anything is changed; after a refusal c->refusal says why. The queue was
 * served before. */
enum client_event admission_decide(struct client *c, const Hvd__Daemon *m);
/* Writes the lease. EV_ADMITTED, or EV_REFUSED with c->refusal. */
enum client_event admission_grant(struct client *c, const struct lease *lease);

/* ---- replies.c: each into an empty socket, or nearly so ------------------------------------------------ */

/* Tells the place in the queue; empty: the wait is over. False when the client does not read. */
bool reply_waiting(struct client *c, const char *text);
/* Tells c->refusal. */
void reply_refusal(struct client *c);
/* Tells the leases; only root is told everything about those of other users. */
void reply_status(struct client *c);
void reply_gpus(struct client *c);
