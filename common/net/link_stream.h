/* One ready link as a stream of frames: what is queued, what is half sent, what is half received. See links.h
 * for the rules.
 *
 *      0        4      5     6         8          16       24           28           32
 *      | length | type | 0   | channel | sequence | offset | data check | head check | payload ...
 *                                                                        (little endian)
 *
 * The checks are CRC-32C. The data check is that of the payload. The head check is that of the header before
 * it and of the frame's number, which does not travel: it counts the link's bulk frames, or all others, in
 * this direction. So a change in what is checked, and bytes that are left out or put in, end the link at the
 * next header at the latest. A payload of more than LINK_CHECKED_MAX bytes has no check, which would cost
 * large tensors a tenth of their pace; neither has any under TLS, which would have ended the link before. A
 * frame that has begun must go on (link_stream_heard): its rest may have been lost on the way.
 *
 * Sending: a bulk frame that has begun is finished, then come the control bytes, then the next bulk frames,
 * all in one sendmsg from where they lie. Receiving: one readv takes the rest of a payload straight to its
 * place and the next headers into a small stage. A frame of another type, longer than its type may be, or
 * that the owner does not want, ends the link. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/net/links.h"
#include "common/net/tls.h"

#define LINK_FRAME_HEADER 32
#define LINK_CHECKED_MAX  (64u << 10) /* all control frames, and the data of small tensors */
#define LINK_STAGE_SIZE   4096
#define LINK_FAREWELL_MAX 512

enum link_frame_type { LINK_CONTROL = 1, LINK_BULK = 2, LINK_HEARTBEAT = 3, LINK_FAREWELL = 4 };

/* Frames by number. */
struct link_count {
    uint64_t given; /* to be sent */
    uint64_t taken; /* received */
};

struct link_stream {
    int fd; /* -1: closed */
    const struct tls_ops *tls_ops;
    struct tls *tls; /* NULL: in the clear */
    uint32_t host;
    const struct links_events *events;
    void *ctx;

    struct buf control;           /* encoded, to be sent before the next bulk frame */
    struct link_send *bulk_first; /* the first has begun when bulk_sent > 0 */
    struct link_send *bulk_last;
    size_t bulk_sent;                     /* of its header and data */
    struct link_send *ended, *ended_last; /* the kernel has them; done() is due */
    bool blocked; /* nothing more can be sent until the socket is writable, or has been read in a TLS
                     handshake */

    uint8_t stage[LINK_STAGE_SIZE];
    size_t stage_at, stage_len;
    uint8_t *place; /* for the rest of the current payload; NULL between frames */
    size_t place_left;
    uint8_t type; /* of the current frame */
    struct link_bulk head;
    uint32_t check, wanted;              /* its payload's, so far, and what it has to be in the end */
    struct link_count bulks, others;     /* bulk frames, and all others */
    uint64_t heard_bytes, heard_frames;  /* when link_stream_heard was last true */
    uint8_t *assembled;                  /* the payload of a control frame that is larger than the stage */
    uint64_t frames;                     /* received */
    uint64_t bytes_sent, bytes_received; /* as the wire saw them; of what is encrypted, before it was */
};

/* Takes over the connected socket; `first` goes out before every frame. */
int link_stream_init(struct link_stream *s, int fd, uint32_t host, const struct links_events *events,
                     void *ctx, const void *first, size_t first_size, struct err *e);
/* From here on everything is encrypted; what was given as `first` still goes out in the clear, before. */
int link_stream_encrypt(struct link_stream *s, const struct tls_ops *ops,
                        const uint8_t secret[TLS_SECRET_SIZE], bool client, struct err *e);
/* Closes. Bulk that was queued moves to `ended`; the next link_stream_deliver tells it `status` -1. */
void link_stream_close(struct link_stream *s);
void link_stream_free(struct link_stream *s);
/* The epoch has ended, and the link goes on. Queued bulk moves to `ended`, as with link_stream_close. A frame
 * that has begun goes on, to and from memory of the stream. -1: no memory. */
int link_stream_cut(struct link_stream *s);
/* Calls done(status) of what has ended. */
void link_stream_deliver(struct link_stream *s, int status);

int link_stream_send(struct link_stream *s, enum link_frame_type type, const void *data, size_t size,
                     struct err *e);
/* Queues only; link_stream_flush sends. */
void link_stream_queue(struct link_stream *s, struct link_send *send);
bool link_stream_idle(const struct link_stream *s); /* nothing waits to be sent */
bool link_stream_full(const struct link_stream *s); /* the queue moves when the socket is writable */
/* Sends what the socket takes. -1 with *e: the link is lost. */
int link_stream_flush(struct link_stream *s, struct err *e);
/* Has enough come since this was last true to show that the other end is alive? Within a frame, the few bytes
 * of heartbeats are not enough. */
bool link_stream_heard(struct link_stream *s);
/* Reads available bytes, up to a fair share. Returns their number; 0: there were none. -1 with *e: the link
 * is lost. The callbacks may close the stream. */
long link_stream_read(struct link_stream *s, struct err *e);
