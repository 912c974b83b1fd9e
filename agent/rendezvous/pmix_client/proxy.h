/* Joins connections of workers' libraries to a server on loopback: bytes both ways, as they come.
 *
 *   HANDSHAKE (the first message is awaited whole) -> WAITING (for the server) -> JOINED
 *
 * A server that reads the first message of a connection with a blocking call must not meet a client that
 * sends half of it. So the first message is collected here, within a time limit, and checked by `check`;
 * later bytes are checked by `follow`. The client's end of the stream is passed on to the server, which may
 * go on sending. When the server ends first, the connection ends a moment later: if the server dies, its
 * owner knows that before the clients. Each side is read only as fast as the other side reads: at most one
 * read is held. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/rendezvous/pmix_client/pmix_wire.h"

struct proxy_client { /* all zeros at the begin */
    uint32_t rank;
    size_t handshake; /* its length */
    struct pmix_stream stream;
};

struct proxies {
    uv_loop_t *loop;
    uint16_t port; /* of the server; 0: not there yet */
    bool closed;   /* new connections are closed */
    /* Of the first bytes of a connection. With HANDSHAKE_GOOD it has filled *who. */
    enum handshake_verdict (*check)(void *ctx, const uint8_t *bytes, size_t len, struct proxy_client *who);
    /* Of what a client sends after its handshake, before it is passed on. False: the client is turned
     * away. */
    bool (*follow)(void *ctx, struct proxy_client *who, const uint8_t *bytes, size_t len);
    void *ctx;
    struct proxy *first;
    uint8_t *scratch;
    bool spoke;    /* something of a client was sent to the server... */
    uint32_t last; /* ...and this was the last one */
};

/* `fd` is a connected socket and belongs to the proxy from here on. */
void proxies_add(struct proxies *s, int fd);
/* The server listens: waiting connections are joined to it. */
void proxies_serve(struct proxies *s, uint16_t port);
/* Closes all connections, and later ones at once. The the handles are closed when the loop has run again, and
 * *s must live as long. */
void proxies_close(struct proxies *s);
void proxies_free(struct proxies *s);
