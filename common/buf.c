#include "common/buf.h"

#include <stdlib.h>
#include <string.h>

#define SMALLEST 512

void buf_init(struct buf *b, size_t max)
{
    memset(b, 0, sizeof *b);
    b->max = max;
}

void buf_free(struct buf *b)
{
    free(b->memory);
    buf_init(b, b->max);
}

size_t buf_room(const struct buf *b)
{
    return b->max - b->len;
}

static int grow(struct buf *b, size_t wanted)
{
    size_t capacity = b->capacity ? b->capacity : SMALLEST;
    while (capacity < wanted)
        capacity *= 2;
    uint8_t *memory = malloc(capacity);
    if (!memory)
        return -1;
    if (b->len)
        memcpy(memory, b->memory + b->head, b->len);
    free(b->memory);
    b->memory = memory;
    b->capacity = capacity;
    b->head = 0;
    return 0;
}

uint8_t *buf_reserve(struct buf *b, size_t len)
{
    if (len > buf_room(b))
        return NULL;
    if (b->capacity - b->head - b->len < len || !b->memory) {
        if (b->memory && b->capacity - b->len >= len && b->head >= b->len) {
            /* Moving is cheap when little is unread. */
            memcpy(b->memory, b->memory + b->head, b->len);
            b->head = 0;
        } else if (grow(b, b->len + len) < 0) {
            return NULL;
        }
    }
    return b->memory + b->head + b->len;
}

void buf_commit(struct buf *b, size_t len)
{
    b->len += len;
}

int buf_put(struct buf *b, const void *bytes, size_t len)
{
    uint8_t *space = buf_reserve(b, len);
    if (!space)
        return -1;
    if (len)
        memcpy(space, bytes, len);
    buf_commit(b, len);
    return 0;
}

const uint8_t *buf_data(const struct buf *b)
{
    return b->memory + b->head;
}

void buf_consume(struct buf *b, size_t len)
{
    b->head += len;
    b->len -= len;
    if (b->len > 0)
        return;
    b->head = 0;
    if (b->capacity > 8 * SMALLEST)
        buf_free(b);
}
