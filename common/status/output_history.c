#include "common/status/output_history.h"

#include <stdlib.h>
#include <string.h>

/* Each piece in the ring: these numbers, then the bytes. Both may go around its end. */
struct head {
    uint32_t rank, stream, size;
};

void output_history_free(struct output_history *r)
{
    free(r->ring);
    *r = (struct output_history){.ring = NULL};
}

static void ring_get(const struct output_history *r, size_t at, void *out, size_t size)
{
    size_t here = OUTPUT_HISTORY_SIZE - at < size ? OUTPUT_HISTORY_SIZE - at : size;
    memcpy(out, r->ring + at, here);
    memcpy((uint8_t *)out + here, r->ring, size - here);
}

static void ring_put(struct output_history *r, const void *bytes, size_t size)
{
    size_t at = (r->first + r->used) % OUTPUT_HISTORY_SIZE;
    size_t here = OUTPUT_HISTORY_SIZE - at < size ? OUTPUT_HISTORY_SIZE - at : size;
    if (size == 0)
        return;
    memcpy(r->ring + at, bytes, here);
    memcpy(r->ring, (const uint8_t *)bytes + here, size - here);
    r->used += size;
}

static void drop_oldest(struct output_history *r)
{
    struct head h;
    ring_get(r, r->first, &h, sizeof h);
    r->first = (r->first + sizeof h + h.size) % OUTPUT_HISTORY_SIZE;
    r->used -= sizeof h + h.size;
}

void output_history_add(struct output_history *r, uint32_t rank, enum frame_stream stream,
                        const uint8_t *bytes, size_t size)
{
    struct head h = {rank, stream, (uint32_t)size};
    if (!r->ring)
        r->ring = malloc(OUTPUT_HISTORY_SIZE);
    if (!r->ring || size == 0 || size > FRAME_DATA_MAX)
        return;
    while (OUTPUT_HISTORY_SIZE - r->used < sizeof h + size)
        drop_oldest(r);
    ring_put(r, &h, sizeof h);
    ring_put(r, bytes, size);
}

void output_history_each(const struct output_history *r,
                         void (*see)(void *ctx, const struct output_piece *piece), void *ctx)
{
    struct output_piece piece;
    for (size_t done = 0; done < r->used;) {
        struct head h;
        ring_get(r, (r->first + done) % OUTPUT_HISTORY_SIZE, &h, sizeof h);
        piece.rank = h.rank;
        piece.stream = (enum frame_stream)h.stream;
        piece.size = h.size;
        ring_get(r, (r->first + done + sizeof h) % OUTPUT_HISTORY_SIZE, piece.bytes, h.size);
        see(ctx, &piece);
        done += sizeof h + h.size;
    }
}
