#include "common/base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/secret.h"

#define SMALLEST 512

void buf_init(struct buf *b, size_t max)
{
    memset(b, 0, sizeof *b);
    b->max = max;
}

static void give_back(uint8_t *memory, size_t capacity, bool hidden)
{
    if (hidden)
        secret_free(memory, capacity);
    else
        free(memory);
}

void buf_free(struct buf *b)
{
    bool secret = b->secret;
    give_back(b->memory, b->capacity, b->hidden);
    buf_init(b, b->max);
    b->secret = secret;
}

void buf_secret(struct buf *b, bool secret)
{
    b->secret = secret;
    if (b->len == 0)
        buf_free(b);
}

size_t buf_room(const struct buf *b)
{
    return b->max - b->len;
}

static int grow_memory(struct buf *b, size_t wanted)
{
    size_t capacity = b->capacity ? b->capacity : SMALLEST;
    while (capacity < wanted)
        capacity *= 2;
    uint8_t *memory = b->secret ? secret_new(capacity) : malloc(capacity);
    if (!memory)
        return -1;
    if (b->len)
        memcpy(memory, b->memory + b->head, b->len);
    give_back(b->memory, b->capacity, b->hidden);
    b->memory = memory;
    b->hidden = b->secret;
    b->capacity = capacity;
    b->head = 0;
    return 0;
}

uint8_t *buf_reserve(struct buf *b, size_t len)
{
    if (len > buf_room(b))
        return NULL;
    bool moves = b->secret && !b->hidden;
    if (b->capacity - b->head - b->len < len || !b->memory || moves) {
        if (b->memory && !moves && b->capacity - b->len >= len && b->head >= b->len) {
            /* Moving is cheap when little is unread. */
            memcpy(b->memory, b->memory + b->head, b->len);
            b->head = 0;
        } else if (grow_memory(b, b->len + len) < 0) {
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
    if (b->capacity > 8 * SMALLEST || b->hidden)
        buf_free(b);
}

int buf_send(struct buf *b, int fd)
{
    while (b->len > 0) {
        ssize_t n = send(fd, buf_data(b), b->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            buf_consume(b, (size_t)n);
        else if (errno != EINTR)
            return errno == EAGAIN ? 0 : -1;
    }
    return 0;
}
