/* Short texts that a managed agent keeps in files beside its leases, so that a restart does not forget them:
 * root's word to take no new jobs, and the name of the node. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"

#define DRAIN_MAX    256 /* bytes of a reason; a longer one is cut */
#define NODE_ID_TEXT 33  /* 32 digits */

/* Reads why root wants no new jobs; empty: root wants them. The configuration (`drain`) has a word, too. */
void drain_read(const char *directory, char reason[DRAIN_MAX]);
/* An empty reason takes root's word back. -1 with *e: it is as before. */
int drain_write(const char *directory, const char *reason, struct err *e);

/* The managed agent's name of its node: random, as long-lived as the leases, and the same under each name or
 * address of the node; hvdrun sorts nodes by it (--wait). Makes one where there is none. A file that cannot
 * be written is warned of: then the name ends with the daemon. */
int node_id_open(const char *directory, char text[NODE_ID_TEXT], struct err *e);
