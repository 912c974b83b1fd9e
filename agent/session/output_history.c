#include "agent/session/output_history.h"

#include <stdlib.h>
#include <string.h>

/* Each piece in the ring: these numbers, then the bytes. Both may go around its end. */
struct head {
    uint32_t rank, stream, size;
};

void recent_free(struct recent *r)
{
    free(r->ring);
    *r = (struct recent){.ring = NULL};
}

static void ring_get(const struct recent *r, size_t at, void *out, size_t size)
{
    size_t here = RECENT_SIZE - at < size ? RECENT_SIZE - at : size;
    memcpy(out, r->ring + at, here);
    memcpy((uint8_t *)out + here, r->ring, size - here);
}

static void ring_put(struct recent *r, const void *bytes, size_t size)
{
    size_t at = (r->first + r->used) % RECENT_SIZE;
    size_t here = RECENT_SIZE - at < size ? RECENT_SIZE - at : size;
    if (size == 0)
        return;
    memcpy(r->ring + at, bytes, here);
    memcpy(r->ring, (const uint8_t *)bytes + here, size - here);
    r->used += size;
}

static void drop_oldest(struct recent *r)
{
    struct head h;
    ring_get(r, r->first, &h, sizeof h);
    r->first = (r->first + sizeof h + h.size) % RECENT_SIZE;
    r->used -= sizeof h + h.size;
}

void recent_add(struct recent *r, uint32_t rank, enum frame_stream stream, const uint8_t *bytes, size_t size)
{
    struct head h = {rank, stream, (uint32_t)size};
    if (!r->ring)
        r->ring = malloc(RECENT_SIZE);
    if (!r->ring || size == 0 || size > FRAME_DATA_MAX)
        return;
    while (RECENT_SIZE - r->used < sizeof h + size)
        drop_oldest(r);
    ring_put(r, &h, sizeof h);
    ring_put(r, bytes, size);
}

void recent_each(const struct recent *r, void (*see)(void *ctx, const struct recent_piece *piece), void *ctx)
{
    struct recent_piece piece;
    for (size_t done = 0; done < r->used;) {
        struct head h;
        ring_get(r, (r->first + done) % RECENT_SIZE, &h, sizeof h);
        piece.rank = h.rank;
        piece.stream = (enum frame_stream)h.stream;
        piece.size = h.size;
        ring_get(r, (r->first + done + sizeof h) % RECENT_SIZE, piece.bytes, h.size);
        see(ctx, &piece);
        done += sizeof h + h.size;
    }
}
