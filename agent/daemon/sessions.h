/* Sessions that have a lease: from the word of systemd that a session runs, over its reports, to the end of
 * its lease. Keeps the leases and the totals of the node in step. */
#pragma once

#include "agent/daemon/core.h"

/* The unit runs. */
void sessions_began(struct daemon *d, const char *unit);
/* Takes a report of a session of `uid`. -1 with *e: `uid` has no such session. */
int sessions_report(struct daemon *d, uid_t uid, const Hvd__SessionReport *report, struct err *e);
/* Ends the lease of a session that never was, or has ended. */
void sessions_end(struct daemon *d, const char *unit);
/* At the start: ends the leases of sessions that ended while no daemon ran. -1 with *e: systemd did not say
 * which units there are. */
int sessions_recover(struct daemon *d, struct err *e);
