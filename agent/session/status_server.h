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

struct inquirer;

struct inquiries_events {
    /* Somebody wants to know. true: there will be more to say, at inquiries_refreshed. */
    bool (*refresh)(void *ctx);
    /* Fill *status from what is known now; its memory must stay until the next call. */
    void (*status)(void *ctx, Hvd__JobStatus *status);
    /* `uid` wants the job to end. */
    void (*end)(void *ctx, uid_t uid);
};

struct inquiries {
    uv_loop_t *loop;
    const struct inquiries_events *events;
    void *ctx;
    int listener; /* -1: nobody can ask */
    uv_poll_t poll;
    uv_timer_t late; /* refresh takes too long */
    struct inquirer *first;
    struct recent recent;
};

/* Nobody can ask yet. */
void inquiries_init(struct inquiries *q);
/* Makes the socket in `directory`, whose descriptor the path goes through. -1 with *e. */
int inquiries_open(struct inquiries *q, uv_loop_t *loop, const char *directory,
                   const struct inquiries_events *events, void *ctx, struct err *e);
/* Those who wait for it get their answers. */
void inquiries_refreshed(struct inquiries *q);
/* What a rank wrote: is kept for a while, and goes to those who follow it. */
void inquiries_output(struct inquiries *q, uint32_t rank, enum frame_stream stream, const uint8_t *bytes,
                      size_t size);
/* The job ends: who follows is told. Handles are closed once the loop has run again. */
void inquiries_close(struct inquiries *q);

#endif
