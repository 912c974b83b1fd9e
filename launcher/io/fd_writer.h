/* A sink: hvdrun's own stdout or stderr, written without ever blocking the loop.
 *
 * A terminal or a pipe may stop taking bytes at any time, while the control channels must go on being read.
 * The descriptor is shared with other programs (the shell), so it is not made non-blocking itself: a pipe or
 * terminal is opened anew through /proc/self/fd, a socket is written with MSG_DONTWAIT, a regular file cannot
 * block for long. If the new opening is not allowed, at most PIPE_BUF bytes are written after poll said
 * that there is room. Nothing is opened before the first byte. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "common/base/buf.h"
#include "launcher/io/shared_poll.h"

/* Formatted bytes that a sink holds at most before sink_wants() turns false. */
#define SINK_QUEUE_MAX (64u << 10)

enum sink_kind { SINK_UNOPENED, SINK_FILE, SINK_REOPENED, SINK_SOCKET, SINK_SHARED };

struct sink {
    uv_loop_t *loop;
    int fd;     /* the shared descriptor */
    int own_fd; /* the descriptor of this sink */
    enum sink_kind kind;
    struct buf queue;
    struct shared_poll poll;
    bool pollable;
    int broken; /* errno of a failed write; everything is dropped from then on */
    void (*progress)(void *ctx);
    void *ctx;
};

/* `progress` comes from the loop after queued bytes were written, or the sink broke. */
void sink_init(struct sink *s, uv_loop_t *loop, int fd, void (*progress)(void *ctx), void *ctx);
/* True while the sink takes more bytes. */
bool sink_wants(const struct sink *s);
/* Puts lines. On a raw terminal each line end gets a carriage return. */
void sink_put(struct sink *s, const void *bytes, size_t len);
/* Puts bytes unchanged, also on a raw terminal. */
void sink_put_exact(struct sink *s, const void *bytes, size_t len);
/* Writes what can be written now. */
void sink_flush(struct sink *s);
bool sink_is_empty(const struct sink *s);
/* Closes what was opened; bytes still queued are dropped. */
void sink_close(struct sink *s);
