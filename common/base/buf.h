/* A byte queue with a ceiling: bytes are put at its end and consumed at its front.
 *
 * Nothing here trusts a length: a put beyond the ceiling fails and changes nothing. Memory is taken when
 * bytes come and given back when the queue is empty, so idle queues cost nothing. Not thread-safe.
 *
 * While a queue is secret, its bytes lie in memory that no core file shows (secret.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *memory;
    size_t head; /* of the first unread byte in memory */
    size_t len;  /* unread bytes */
    size_t capacity;
    size_t max;          /* len never exceeds this */
    bool secret, hidden; /* the next bytes are secret; the memory is hidden */
};

void buf_init(struct buf *b, size_t max);
void buf_free(struct buf *b);
/* Before secrets are put, and when those that were put need no more care. */
void buf_secret(struct buf *b, bool secret);
/* Space for `len` bytes at the end, to be filled by the caller and made readable with buf_commit. NULL when
 * the ceiling or memory does not allow it. */
uint8_t *buf_reserve(struct buf *b, size_t len);
void buf_commit(struct buf *b, size_t len);
/* 0, or -1 when it does not fit (nothing was put). */
int buf_put(struct buf *b, const void *bytes, size_t len);
/* The unread bytes; valid until the next call that changes the queue. */
const uint8_t *buf_data(const struct buf *b);
/* Drops the first `len` (<= b->len) bytes. */
void buf_consume(struct buf *b, size_t len);
/* Sends unread bytes as far as the socket takes them without waiting. -1 with errno: the peer has gone. */
int buf_send(struct buf *b, int fd);
/* How many more bytes the ceiling allows. */
size_t buf_room(const struct buf *b);

/* Little-endian integers in wire formats. */
static inline void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
