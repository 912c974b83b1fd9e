/* Answers questions about a job: hvdctl asks over the socket `status` in the job's directory.
 *
 *      hvdctl                        session
 *        Inquiry             ->      the kernel names the peer's user: this one or root, else it is closed
 *                            <-      Answer; of output many, then one with `done`; closed
 *
 * Each is a frame (common/protocol/frame.h) of a message of control.proto. A session answers from its own
 * knowledge, for a status after its engine has counted or REFRESH_MS are over, and never waits for a client.
 * A client that does not read in time is told how many bytes it missed. A client that sends too much is
 * closed, and of too many clients the oldest is closed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/session/status/output_history.h"
#include "common/base/buf.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"
#include "common/net/stream.h"

#define INQUIRY_SOCKET_NAME "status"
#define INQUIRY_MAX         (4u << 10) /* bytes of one */
#define ANSWER_MAX          (1u << 20) /* likewise */
#define REFRESH_MS          500

struct status_client;

struct status_server_events {
    /* A client wants the status. true: more will be known at status_server_refreshed. */
    bool (*refresh)(void *ctx);
    /* Fill *status from what is known now; its memory must stay until the next call. */
    void (*status)(void *ctx, Hvd__JobStatus *status);
    /* `uid` wants the job to have so many ranks, or the ranks here to leave. NULL, or why that cannot be. */
    const char *(*resize)(void *ctx, uid_t uid, uint32_t ranks);
    const char *(*leave)(void *ctx, uid_t uid, const char *reason);
    /* `uid` wants the job to end. */
    void (*end)(void *ctx, uid_t uid);
};

struct status_server {
    uv_loop_t *loop;
    const struct status_server_events *events;
    void *ctx;
    int listener; /* -1: no client can connect */
    uv_poll_t poll;
    uv_timer_t late; /* refresh takes too long */
    struct status_client *first;
    struct output_history recent;
};

/* No client can connect yet. */
void status_server_init(struct status_server *q);
/* Makes the socket in `directory`, whose descriptor the path goes through. -1 with *e. */
int status_server_open(struct status_server *q, uv_loop_t *loop, const char *directory,
                       const struct status_server_events *events, void *ctx, struct err *e);
/* Waiting clients get their answers. */
void status_server_refreshed(struct status_server *q);
/* Keeps bytes that a rank wrote for a while, and sends them to clients that follow the rank. */
void status_server_output(struct status_server *q, uint32_t rank, enum frame_stream stream,
                          const uint8_t *bytes, size_t size);
/* The job ends: clients that follow are told. Handles are closed once the loop has run again. */
void status_server_close(struct status_server *q);
