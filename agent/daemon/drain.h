/* Whether root has told a managed agent to take no new jobs, and why: a file beside the leases, so that a
 * restart does not forget it. What the configuration says (`drain`) comes on top. */
#ifndef HVD_AGENT_DAEMON_DRAIN_H
#define HVD_AGENT_DAEMON_DRAIN_H

#include "common/base/err.h"

#define DRAIN_MAX 256 /* bytes of a reason; a longer one is cut */

/* The reason, empty when there is none. */
void drain_read(const char *directory, char reason[DRAIN_MAX]);
/* An empty reason takes it back. -1 with *e: it is as before. */
int drain_write(const char *directory, const char *reason, struct err *e);

#endif
