/* Who asks a session how its job is: hvdctl, over the socket `status` in the job's directory.
 *
 *      hvdctl                        session
 *        Inquiry             ->      who is it? (the kernel says: this user or root; anybody else is closed)
 *                            <-      Answer; of output many, then one with `done`; closed
 *
 * Each is a frame (common/protocol/frame.h) of a message of control.proto. A session answers from what it
 * knows, for a status after its engine has told it more or REFRESH_MS are over, and never waits for
 * whoever asks: what he does not read in time he is told the size of, what he sends too much ends the
 * connection, and of many that stay the oldest goes. */
#ifndef HVD_AGENT_SESSION_STATUS_SERVER_H
#define HVD_AGENT_SESSION_STATUS_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/session/output_history.h"
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
    /* Somebody wants to know. true: there will be more to say, at status_server_refreshed. */
    bool (*refresh)(void *ctx);
    /* Fill *status from what is known now; its memory must stay until the next call. */
    void (*status)(void *ctx, Hvd__JobStatus *status);
    /* `uid` wants the job to end. */
    void (*end)(void *ctx, uid_t uid);
};

struct status_server {
    uv_loop_t *loop;
    const struct status_server_events *events;
    void *ctx;
    int listener; /* -1: nobody can ask */
    uv_poll_t poll;
    uv_timer_t late; /* refresh takes too long */
    struct status_client *first;
    struct output_history recent;
};

/* Nobody can ask yet. */
void status_server_init(struct status_server *q);
/* Makes the socket in `directory`, whose descriptor the path goes through. -1 with *e. */
int status_server_open(struct status_server *q, uv_loop_t *loop, const char *directory,
                       const struct status_server_events *events, void *ctx, struct err *e);
/* Those who wait for it get their answers. */
void status_server_refreshed(struct status_server *q);
/* What a rank wrote: is kept for a while, and goes to those who follow it. */
void status_server_output(struct status_server *q, uint32_t rank, enum frame_stream stream,
                          const uint8_t *bytes, size_t size);
/* The job ends: who follows is told. Handles are closed once the loop has run again. */
void status_server_close(struct status_server *q);

#endif
