/* Frames: how messages and bulk bytes share one byte stream.
 *
 *      0        4      5       6       8          12         16         20
 *      | length | kind | flags | stream| session  | sequence | rank     | payload ...
 *
 * All little-endian. `length` counts the payload only and is at most FRAME_PAYLOAD_MAX: a longer one is a
 * protocol error before any memory is taken. `sequence` counts the frames of one direction from 0; a gap or a
 * repeat is a protocol error. `session` is the host's index in the job. `stream` and `rank` matter for
 * FRAME_DATA only.
 *
 * A session writes FRAME_MAGIC first: what a login shell printed before it is noise, skipped up to
 * FRAME_NOISE_MAX bytes. Before the session's magic `hvdagent attach` may send messages of its own about the
 * lease. Each of them stands behind FRAME_ATTACH_MAGIC, in a frame of at most FRAME_ATTACH_MAX bytes. */
#pragma once

#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#define FRAME_HEADER_SIZE 20
#define FRAME_PAYLOAD_MAX (16u << 20) /* a command line and an environment travel in one frame */
#define FRAME_DATA_MAX    (32u << 10) /* of a FRAME_DATA, so that control frames never wait long */
#define FRAME_MAGIC       "\177hvd-session\001\n"
#define FRAME_MAGIC_SIZE  (sizeof FRAME_MAGIC - 1)
#define FRAME_NOISE_MAX   (64u << 10)

#define FRAME_ATTACH_MAGIC "\177hvd-attach\001\n\n"
#define FRAME_ATTACH_MAX   2048u /* with the magic and the header, a pipe takes it in one piece */
_Static_assert(sizeof FRAME_ATTACH_MAGIC == sizeof FRAME_MAGIC, "one length serves for both");

enum frame_kind { FRAME_CONTROL = 1, FRAME_DATA = 2 };

/* STREAM_FILE: of Preload, to the session; `rank` is the file's index. */
enum frame_stream { STREAM_STDIN = 0, STREAM_STDOUT = 1, STREAM_STDERR = 2, STREAM_FILE = 3 };

/* FRAME_DATA of stdout and stderr: the bytes end a line; without it, the line goes on in this stream's next
 * frame, which is already waiting at its session... */
#define FRAME_FLAG_LINE_END 1
/* ...or not: the worker has written no more of the line for a while. */
#define FRAME_FLAG_UNFINISHED 2
/* All output of the worker was sent; the payload is empty. Output of a process that the worker left behind
 * may still follow. */
#define FRAME_FLAG_EOF 4

struct frame {
    uint32_t length;
    enum frame_kind kind;
    uint8_t flags;
    enum frame_stream stream;
    uint32_t session;
    uint32_t sequence;
    uint32_t rank;
    const uint8_t *payload; /* points into the buffer it was read from */
};

void frame_encode_header(const struct frame *f, uint8_t out[FRAME_HEADER_SIZE]);
/* Reads the frame at the front of `b`: 1 and *f filled (its payload valid until the caller consumes
 * FRAME_HEADER_SIZE + f->length bytes), 0 when more bytes are needed, -1 with *e filled when it is not a
 * frame. */
int frame_decode(const struct buf *b, struct frame *f, struct err *e);
