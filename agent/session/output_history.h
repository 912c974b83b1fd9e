/* What the ranks of this host wrote last, in the order in which it came: for whoever asks later. A ring of
 * fixed size; the oldest pieces give way. */
#ifndef HVD_AGENT_SESSION_OUTPUT_HISTORY_H
#define HVD_AGENT_SESSION_OUTPUT_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/protocol/frame.h"

#define RECENT_SIZE (64u << 10)

struct recent {
    uint8_t *ring; /* RECENT_SIZE, from the first piece on; NULL: none yet, or no memory */
    size_t first, used;
};

struct recent_piece {
    uint32_t rank;
    enum frame_stream stream;
    size_t size;
    uint8_t bytes[FRAME_DATA_MAX];
};

void recent_free(struct recent *r);
/* At most FRAME_DATA_MAX bytes. Without memory nothing is kept. */
void recent_add(struct recent *r, uint32_t rank, enum frame_stream stream, const uint8_t *bytes, size_t size);
/* Calls `see` with each piece, the oldest first. */
void recent_each(const struct recent *r, void (*see)(void *ctx, const struct recent_piece *piece), void *ctx);

#endif
