/* A byte stream over descriptors on a libuv loop: the session's stdin and stdout, a socketpair, a child's
 * pipes.
 *
 * Reads whenever bytes are there, whatever the state of writing; writes when asked and when the descriptor
 * takes more. The descriptors are made non-blocking and are closed by stream_close. One thread; callbacks
 * come from the loop only. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "common/base/err.h"

struct stream;

struct stream_events {
    void (*received)(void *ctx, const uint8_t *bytes, size_t len);
    /* A write was short before; more is taken now. */
    void (*writable)(void *ctx);
    /* The peer has closed its end (errnum 0) or reading or writing failed. Nothing is received after it.
     * Comes at most once; not after stream_close. */
    void (*ended)(void *ctx, int errnum);
};

struct stream {
    const struct stream_events *events;
    void *ctx;
    uv_poll_t in_poll, out_poll;
    int in, out;  /* may be the same descriptor */
    int handles;  /* uv handles that are not closed yet */
    bool waiting; /* for the descriptor to take more */
    bool over;
    void (*closed)(void *ctx);
};

/* -1 with *e filled; the descriptors then still belong to the caller. in and out may be equal; out may be -1.
 */
int stream_open(struct stream *s, uv_loop_t *loop, int in, int out, const struct stream_events *events,
                void *ctx, struct err *e);
/* Takes what it can, returns how many; less than len: writable() follows. After an error it takes all and
 * ended() follows. */
size_t stream_write(struct stream *s, const void *bytes, size_t len);
/* Closes the descriptors. `closed` comes from the loop when *s may be freed. */
void stream_close(struct stream *s, void (*closed)(void *ctx));
