/* Whose process is at the other end of a loopback connection? The kernel's socket tables tell. */
#ifndef HVD_AGENT_PEER_OWNER_H
#define HVD_AGENT_PEER_OWNER_H

#include <sys/types.h>

#include "common/err.h"

/* The user of the peer of `fd`, a connected IPv4 TCP socket of this network namespace. -1 with *e when the
 * kernel does not know it (any more). Any thread. */
int peer_owner(int fd, uid_t *uid, struct err *e);

#endif
