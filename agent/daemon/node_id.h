/* What a managed agent calls its node: a random name in a file beside the leases, as long-lived as they are.
 * Under whichever name or address a node is reached, that is the same; hvdrun sorts nodes by it (--wait). */
#ifndef HVD_AGENT_DAEMON_NODE_ID_H
#define HVD_AGENT_DAEMON_NODE_ID_H

#include "common/base/err.h"

#define IDENTITY_TEXT 33 /* 32 digits */

/* Makes one where there is none. A file that cannot be written is warned of: then it ends with the daemon. */
int identity_open(const char *directory, char text[IDENTITY_TEXT], struct err *e);

#endif
