/* Joins connections of workers' libraries to a server of ours on loopback: bytes both ways, as they come.
 *
 *   GREETING (the first message is awaited whole) -> WAITING (for the server) -> JOINED
 *
 * A server that reads the first message of a connection with a blocking call must not be reached by somebody
 * who sends half of it: so it is gathered here first, within its time, and looked at by `check`; what
 * follows by `follow`. The client's end is passed on to the server, which may go on sending. A server that
 * ends first ends the connection, but a moment later: if it dies, its owner shall know that before its
 * clients. What one side does not read stops the other: at most one read of it is held. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PROXY_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/rendezvous/pmix_client/pmix_stream.h"

#define SPLICE_GREETING_MAX (64u << 10)

enum splice_greeting { SPLICE_MORE, SPLICE_GOOD, SPLICE_BAD };

struct splice_client { /* all zeros at the begin */
    uint32_t rank;
    size_t greeting; /* its length */
    struct pmix_stream stream;
};

struct splices {
    uv_loop_t *loop;
    uint16_t port; /* of the server; 0: not there yet */
    bool closed;   /* whoever comes is turned away */
    /* Of the first bytes of a connection. With SPLICE_GOOD it has filled *who. */
    enum splice_greeting (*check)(void *ctx, const uint8_t *bytes, size_t len, struct splice_client *who);
    /* Of what a client sends after its greeting, before it is passed on. False: the client is turned away. */
    bool (*follow)(void *ctx, struct splice_client *who, const uint8_t *bytes, size_t len);
    void *ctx;
    struct splice *first;
    uint8_t *scratch;
    bool spoke;    /* something of a client was sent to the server... */
    uint32_t last; /* ...and this was the last one */
};

/* `fd` is a connected socket and belongs to the splice from here on. */
void splice_add(struct splices *s, int fd);
/* The server listens: who waits is joined to it. */
void splice_serve(struct splices *s, uint16_t port);
/* Closes all of them, and whoever comes later. The handles are done with when the loop has run again, and
 * *s must live as long. */
void splice_close_all(struct splices *s);
void splice_free(struct splices *s);

#endif
