/* The last output of this host's ranks, in the order in which it came, for hvdctl logs. A ring of fixed size;
 * the oldest pieces give way. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/protocol/frame.h"

#define OUTPUT_HISTORY_SIZE (64u << 10)

struct output_history {
    uint8_t *ring; /* OUTPUT_HISTORY_SIZE, from the first piece on; NULL: none yet, or no memory */
    size_t first, used;
};

struct output_piece {
    uint32_t rank;
    enum frame_stream stream;
    size_t size;
    uint8_t bytes[FRAME_DATA_MAX];
};

void output_history_free(struct output_history *r);
/* At most FRAME_DATA_MAX bytes. Without memory nothing is kept. */
void output_history_add(struct output_history *r, uint32_t rank, enum frame_stream stream,
                        const uint8_t *bytes, size_t size);
/* Calls `see` with each piece, the oldest first. */
void output_history_each(const struct output_history *r,
                         void (*see)(void *ctx, const struct output_piece *piece), void *ctx);
