/* What a managed agent calls its node: a random name in a file beside the leases, as long-lived as they are.
 * Under whichever name or address a node is reached, that is the same; hvdrun sorts nodes by it (--wait). */
#ifndef HVD_AGENT_DAEMON_IDENTITY_H
#define HVD_AGENT_DAEMON_IDENTITY_H

#include "common/err.h"

#define IDENTITY_TEXT 33 /* 32 digits */

/* Makes one where there is none. A file that cannot be written is warned of: then it ends with the daemon. */
int identity_open(const char *directory, char text[IDENTITY_TEXT], struct err *e);

#endif
