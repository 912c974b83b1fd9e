/* The socket between a session and the PMIx server of its host: either end of it.
 *
 * A message is its length (4 bytes, little-endian) and a Pmix of control.proto. common/protocol/frame.h does
 * not fit, because the result of a gather may be longer than a frame. Messages of the server are checked,
 * because a faulty client may have damaged the server. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

struct pmix_relay_events {
    void (*message)(void *ctx, const Hvd__Pmix *m);
    /* Once; the relay is closed. NULL: the other end has closed it. */
    void (*end)(void *ctx, const struct err *why);
};

struct pmix_relay {
    int fd;
    bool open;
    uv_poll_t poll;
    struct buf in, out;
    const struct pmix_relay_events *events;
    void *ctx;
};

/* `fd`, a socket of ours, belongs to the relay from here on, also when this fails with -1 and *e. */
int pmix_relay_open(struct pmix_relay *r, uv_loop_t *loop, int fd, const struct pmix_relay_events *events,
                    void *ctx, struct err *e);
/* Dropped when it is closed. */
void pmix_relay_send(struct pmix_relay *r, const Hvd__Pmix *m);
/* Handles whatever the other end has sent up to now. */
void pmix_relay_drain(struct pmix_relay *r);
/* Waits for something, and handles it. -1: nothing came in this time. */
int pmix_relay_wait(struct pmix_relay *r, int ms);
/* The handle is closed when the loop has run again. `end` is not called. */
void pmix_relay_close(struct pmix_relay *r);
