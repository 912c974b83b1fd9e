/* The user of the process at the other end of a loopback connection, from the kernel's socket tables. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"

/* State between questions; all zeros to begin with. */
struct peer_owner {
    bool open;
    int netlink;
    uint32_t asked;
};

/* The user of the peer of `fd`, a connected IPv4 TCP socket of this network namespace. -1 with *e when the
 * kernel does not know it, or nobody has it open any more. */
int peer_owner(struct peer_owner *p, int fd, uid_t *uid, struct err *e);
void peer_owner_close(struct peer_owner *p);
