/* Cuts a worker's output into frames that hold whole lines. Pure: bytes in, frames out, time is an argument.
 *
 * \n and \r end a line; \r\n is one end. Whole lines go out at once, many in a frame. The beginning of a line
 * is held until its end comes; when it does not come for LINES_PATIENCE, or the line exceeds `max`, what
 * is held goes out marked FRAME_FLAG_UNFINISHED. A line over FRAME_DATA_MAX takes several frames, given out
 * together, of which only the last has FRAME_FLAG_LINE_END. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/protocol/frame.h"

#define LINE_LENGTH_MAX (64u << 10) /* when nothing else is asked for */
#define LINES_PATIENCE  (200 * NSEC_PER_MSEC)

struct lines {
    uint8_t *held; /* the beginning of a line; NULL when there is none */
    uint32_t len, capacity;
    uint32_t max;   /* 0: LINE_LENGTH_MAX */
    uint64_t since; /* when its last bytes came */
};

/* Takes one frame's payload (1 to FRAME_DATA_MAX bytes). -1 when it cannot; the bytes are lost then. */
typedef int lines_emit(void *ctx, uint8_t flags, const uint8_t *bytes, size_t len);

/* -1 when there is no memory or an emit failed. */
int lines_put(struct lines *l, const uint8_t *bytes, size_t len, uint64_t now, lines_emit *emit, void *ctx);
/* Gives out what is held. */
int lines_flush(struct lines *l, lines_emit *emit, void *ctx);
/* Gives out all of what is held but its last byte, as a line that goes on: for a line longer than its credit.
 * The last byte follows with the rest of the line, or with lines_flush when that does not come, so whoever
 * reads is never left waiting. */
int lines_advance(struct lines *l, lines_emit *emit, void *ctx);
/* When lines_flush is due; UINT64_MAX when nothing is held. */
uint64_t lines_due(const struct lines *l);
/* Drops the held bytes; `max` stays. */
void lines_free(struct lines *l);
