/* The workers' stdin, stdout and stderr: pipes on one side, frames with credits on the other.
 *
 * An outlet (stdout or stderr) reads its pipe only as far as the launcher's credit and the channel's bulk
 * queue allow, so a slow terminal slows the writer down and no byte is dropped. Held bytes never exceed the
 * credit, so bytes that were read can always be sent.
 *
 * An outlet is SETTLED when everything that its worker wrote was handed to the channel, with its
 * FRAME_FLAG_EOF: at the pipe's end, or when the worker is dead and the bytes that were in the pipe at that
 * moment have been read. A process that the worker left behind may hold the pipe open, and write into it,
 * without end. Its output is still passed on.
 *
 * An inlet (stdin) grants its own credit to the launcher, as much as it will hold for the worker. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/worker/line_splitter.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/frame.h"

#define STDIN_WINDOW (64u << 10)

struct stdio_events {
    /* Puts one frame into the channel's bulk queue; -1: it cannot. */
    int (*send)(void *ctx, uint32_t rank, enum frame_stream stream, uint8_t flags, const uint8_t *bytes,
                size_t len);
    /* May more bulk bytes be queued now? When not, stdio_resume follows later. */
    bool (*may_send)(void *ctx);
    void (*grant)(void *ctx, uint32_t rank, uint32_t bytes);
    /* An outlet of `rank` is settled. */
    void (*settled)(void *ctx, uint32_t rank);
    void (*failed)(void *ctx, const struct err *e);
};

struct outlet;

struct stdio {
    uv_loop_t *loop;
    const struct stdio_events *events;
    void *ctx;
    uv_timer_t patience; /* for unfinished lines */
    struct outlet *outlets;
    uint32_t max_line; /* struct lines, max */
    bool discard;      /* nobody listens any more: read and drop */
};

struct outlet {
    struct stdio *stdio;
    struct outlet *next;
    uv_poll_t poll;
    int fd; /* -1: closed */
    uint32_t rank;
    enum frame_stream stream;
    uint64_t credit;
    uint64_t window; /* the credit when all of it has come back */
    struct lines lines;
    bool terminal; /* ours of a pseudo terminal: bytes go out as they come, lines or not */
    bool watching;
    bool orphaned; /* the worker is dead */
    size_t owed;   /* then: bytes that were in the pipe at that moment and are not read yet */
    bool settled;
};

struct inlet {
    struct stdio *stdio;
    uv_poll_t poll;
    int fd;
    uint32_t rank;
    struct buf waiting;
    uint32_t granted; /* bytes that the launcher may still send */
    bool terminal;    /* `fd` is our end of a pseudo terminal */
    bool begun;       /* a line whose end has not come */
    bool ending;      /* close `fd` when all bytes were written */
};

int stdio_init(struct stdio *s, uv_loop_t *loop, const struct stdio_events *events, void *ctx, struct err *e);
/* After the channel's bulk queue got room. */
void stdio_resume(struct stdio *s);
/* The launcher has gone: what comes now is read and dropped, so that nobody blocks or dies of SIGPIPE while
 * he ends. */
void stdio_discard(struct stdio *s);
void stdio_close(struct stdio *s);

/* Takes the pipe's reading end. -1 with *e; the descriptor is then still the caller's. */
int outlet_open(struct outlet *o, struct stdio *s, int fd, uint32_t rank, enum frame_stream stream,
                uint32_t credit, struct err *e);
/* One that has nothing: it is settled at once. */
void outlet_open_none(struct outlet *o, struct stdio *s, uint32_t rank, enum frame_stream stream);
void outlet_credit(struct outlet *o, uint32_t bytes);
/* Puts bytes into the pipe as if its worker had written them: as many as there is room for. */
size_t outlet_say(const struct outlet *o, const char *bytes, size_t len);
/* Its worker has died: reads what is left in the pipe. */
void outlet_orphan(struct outlet *o);
void outlet_close(struct outlet *o);

int inlet_open(struct inlet *in, struct stdio *s, int fd, uint32_t rank, struct err *e);
/* -1 when the launcher sent more than it was granted. */
int inlet_put(struct inlet *in, const uint8_t *bytes, size_t len, bool eof);
void inlet_close(struct inlet *in);
