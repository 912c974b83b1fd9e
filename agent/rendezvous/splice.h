/* Joins connections of workers' libraries to a server of ours on loopback: bytes both ways, as they come.
 *
 *   GREETING (the first message is awaited whole) -> WAITING (for the server) -> JOINED
 *
 * A server that reads the first message of a connection with a blocking call must not be reached by somebody
 * who sends half of it: so it is gathered here first, within its time, and looked at by `check`. An end of
 * one side is passed on to the other, which may go on sending. What one side does not read stops the other:
 * at most one read of it is held. */
#ifndef HVD_AGENT_SPLICE_H
#define HVD_AGENT_SPLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define SPLICE_GREETING_MAX (64u << 10)

enum splice_greeting { SPLICE_MORE, SPLICE_GOOD, SPLICE_BAD };

struct splices {
    uv_loop_t *loop;
    uint16_t port; /* of the server; 0: not there yet */
    bool closed;   /* whoever comes is turned away */
    /* *rank: who is it? To be set with SPLICE_GOOD. */
    enum splice_greeting (*check)(void *ctx, const uint8_t *bytes, size_t len, uint32_t *rank);
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
