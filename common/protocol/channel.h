/* The control channel: frames over any byte stream, without any I/O of its own.
 *
 * The owner gives it the bytes that arrived (channel_receive) and takes the bytes to be written
 * (channel_output, channel_written). Two queues lie inside: control frames and bulk frames. At most
 * CHANNEL_WIRE_MAX bytes are committed to the wire at a time and control frames go first, so a control frame
 * never waits behind more than that.
 *
 * The channel does not count credits; a sender of bulk bytes keeps to its credit (credit.h), and
 * the bulk queue's ceiling is the last resort. Not thread-safe; callbacks may call channel_send*, but not
 * channel_receive or channel_free.
 *
 * Hello brings the job's key: at both ends no core file holds the queue that it is in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"

#define CHANNEL_WIRE_MAX    (64u << 10)
#define CHANNEL_CONTROL_MAX (64u << 20)

struct channel_events {
    /* `message` is valid during the call. */
    void (*control)(void *ctx, const Hvd__Control *message);
    /* A FRAME_DATA; its payload is valid during the call. */
    void (*data)(void *ctx, const struct frame *frame);
    /* The launcher's end: a message of `hvdagent attach`, which comes before the session's first. NULL: it
     * is dropped. */
    void (*attach)(void *ctx, const Hvd__Control *message);
};

struct channel {
    const struct channel_events *events;
    void *ctx;
    uint32_t session;
    bool expects_magic; /* the launcher's end: noise until FRAME_MAGIC */
    struct buf noise;   /* bytes before the magic, for the error message */
    struct buf in, control, bulk, wire;
    uint32_t next_in, next_out;
    bool failed;
    bool sends_magic; /* it is still to be sent */
    bool starved;     /* no memory to send what waits */
};

/* `expects_magic` at the launcher's end; the session's end sends it by itself as its first bytes. `bulk_max`
 * is the ceiling of the bulk queue in bytes. */
void channel_init(struct channel *c, const struct channel_events *events, void *ctx, bool expects_magic,
                  size_t bulk_max);
void channel_free(struct channel *c);
/* The id in frames that are sent; frames received must carry it as well once it was set (the session's end
 * learns it from the first frame by itself). */
void channel_set_session(struct channel *c, uint32_t session);

/* Handles all whole frames in what has arrived. -1 with *e filled when the peer broke the protocol: the
 * channel is dead then. */
int channel_receive(struct channel *c, const uint8_t *bytes, size_t len, struct err *e);
/* True once the magic came (always at the session's end). */
bool channel_is_open(const struct channel *c);

/* -1 when there is no memory (or the queue's ceiling is reached); nothing was sent then. */
int channel_send(struct channel *c, const Hvd__Control *message);
/* Appends the message to `b` as `hvdagent attach` sends it, magic and all. -1 when it does not fit. */
int channel_pack_attach(const Hvd__Control *message, struct buf *b);
/* At most FRAME_DATA_MAX bytes. */
int channel_send_data(struct channel *c, uint32_t rank, enum frame_stream stream, uint8_t flags,
                      const void *bytes, size_t len);
/* Bytes waiting in the bulk queue: a sender stops reading its source while this is large. */
size_t channel_bulk_waiting(const struct channel *c);

/* The same of the control queue. */
size_t channel_control_waiting(const struct channel *c);
/* All that was sent has been taken by channel_written. */
bool channel_is_drained(const struct channel *c);

/* The next bytes for the wire; 0 when there are none. Valid until the next call on the channel. */
size_t channel_output(struct channel *c, const uint8_t **bytes);
/* True when there was no memory for it: then the channel is dead. */
bool channel_is_starved(const struct channel *c);
void channel_written(struct channel *c, size_t len);

/* Fills a message with one body set: CONTROL(m, SPAWNED, spawned, &body); channel_send(c, &m). */
#define CONTROL(name, CASE, member, body_pointer)                                                            \
    Hvd__Control name = HVD__CONTROL__INIT;                                                                  \
    name.body_case = HVD__CONTROL__BODY_##CASE;                                                              \
    name.member = (body_pointer)
