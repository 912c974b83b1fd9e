/* Answers questions about a job: hvdctl asks a session about the ranks of its host, and hvdrun about all.
 *
 *      hvdctl                        session, hvdrun
 *        Inquiry             ->      the kernel names the peer's user: this one or root, else it is closed
 *                            <-      Answers: a status for each host; of output many, then one with `done`;
 *                                    closed
 *
 * Each is a frame (common/protocol/frame.h) of a message of control.proto. The owner answers from its own
 * knowledge, for a status after `refresh` is done or refresh_ms are over, and never waits for a client. A
 * status with reasons (hvdctl why) takes longer, and one with operations (hvdctl trace) is large, so the
 * kinds are refreshed apart. A client that does not read in time is told how many bytes it missed. A client
 * that sends too much is closed, and of too many clients the oldest is closed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/net/stream.h"
#include "common/protocol/control.pb-c.h"
#include "common/status/output_history.h"
#include "common/status/status_address.h"

#define INQUIRY_MAX (64u << 10) /* bytes of one */
#define ANSWER_MAX  (1u << 20)  /* likewise */

struct status_client;

enum status_depth { STATUS_PLAIN, STATUS_WHY, STATUS_FLIGHT, STATUS_DEPTHS };

struct status_server_events {
    uint32_t refresh_ms[STATUS_DEPTHS]; /* the most that a client waits for status_server_refreshed */
    /* The status is wanted. true: more will be known at status_server_refreshed. */
    bool (*refresh)(void *ctx, enum status_depth depth);
    /* Calls status_server_tell with what is known now, for each host that it knows of. */
    void (*status)(void *ctx, struct status_client *to);
    /* `uid` wants the job to have so many ranks, or the ranks here to leave. NULL, or why that cannot be. */
    const char *(*resize)(void *ctx, uid_t uid, uint32_t ranks);
    const char *(*leave)(void *ctx, uid_t uid, const char *reason);
    /* Calls status_server_tell_report. NULL: there is no report here. */
    void (*report)(void *ctx, struct status_client *to);
    /* `uid` wants the job to end. */
    void (*end)(void *ctx, uid_t uid);
};

struct status_server {
    uv_loop_t *loop;
    const struct status_server_events *events;
    void *ctx;
    int listener; /* -1: no client can connect */
    uv_poll_t poll;
    struct status_refresh {
        struct status_server *owner;
        uv_timer_t late; /* it takes too long */
        void (*then)(void *ctx);
        void *then_ctx;
    } refresh[STATUS_DEPTHS];
    struct status_client *first;
    struct output_history recent;
};

/* No client can connect yet. */
void status_server_init(struct status_server *q);
/* Makes the socket. -1 with *e. */
int status_server_open(struct status_server *q, uv_loop_t *loop, const struct status_address *at,
                       const struct status_server_events *events, void *ctx, struct err *e);
/* The owner itself wants the status, also before the socket is made: `then` is called, now or when more is
 * known, or when that takes too long. Of several callers at one time the last is called. */
void status_server_refresh(struct status_server *q, enum status_depth depth, void (*then)(void *ctx),
                           void *ctx);
/* Clients that wait for a status of this depth get their answers. */
void status_server_refreshed(struct status_server *q, enum status_depth depth);
/* To be called from `status`: the client's depth; adds one host's status to the answer. */
enum status_depth status_server_depth(const struct status_client *to);
void status_server_tell(struct status_client *to, Hvd__JobStatus *status);
/* To be called from `report`, at most once. */
void status_server_tell_report(struct status_client *to, const char *json, size_t size);
/* Names the user at the other end, for sentences about what that user asked for. */
const char *status_name_asker(uid_t uid);
#define STATUS_NOT_ELASTIC                                                                                   \
    "the job is not elastic: it was started without --min-np, --max-np and --host-discovery-script"
/* Returns NULL when the number of ranks is within the limits; `most` 0: there is no upper limit. Otherwise
 * returns `why` with the reason in it. */
const char *status_refuse_ranks(uint32_t ranks, uint32_t least, uint32_t most, char *why, size_t size);
/* Keeps bytes that a rank wrote for a while, and sends them to clients that follow the rank. */
void status_server_output(struct status_server *q, uint32_t rank, enum frame_stream stream,
                          const uint8_t *bytes, size_t size);
/* The job ends: clients that follow are told. Handles are closed once the loop has run again. */
void status_server_close(struct status_server *q);
