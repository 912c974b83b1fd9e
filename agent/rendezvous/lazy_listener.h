/* A port on loopback at which workers' libraries knock: listening before the workers start, served only from
 * the first connection on. Connections of other users are closed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/rendezvous/peer_owner.h"
#include "common/base/err.h"

struct lazy_listener {
    uv_poll_t *poll; /* its own memory: the loop needs it for a while after lazy_listener_close */
    int fd, spare;   /* a descriptor that is given up to close a connection when there are no more */
    bool open;
    bool warned; /* of connections that were closed */
    struct peer_owner owner;
    uint16_t port;
    /* A connection of our own user which has said something or has ended, non-blocking and close-on-exec; the
     * callee owns `fd`. */
    void (*on_client)(void *ctx, int fd);
    void *ctx;
};

/* Listens on 127.0.0.1 at a port of the kernel's choice. -1 with *e, and nothing to close. */
int lazy_listener_open(struct lazy_listener *d, uv_loop_t *loop, void (*on_client)(void *ctx, int fd),
                       void *ctx, struct err *e);
/* Also when it was never opened, if it is all zeros. */
void lazy_listener_close(struct lazy_listener *d);
