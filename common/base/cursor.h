/* Bounded reading and writing of wire formats, little endian.
 *
 * A reader or writer that runs over its end turns bad and stays so: it reads zeros and writes nothing.
 * The caller asks `bad` once, before it believes anything that was read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

struct writer {
    uint8_t *at;
    size_t left;
    bool bad;
};

static inline struct reader reader_of(const void *data, size_t size)
{
    return (struct reader){.at = data, .left = size};
}

static inline struct writer writer_of(void *data, size_t size)
{
    return (struct writer){.at = data, .left = size};
}

/* `size` bytes in place; NULL when there are not as many. */
static inline const uint8_t *read_bytes(struct reader *r, size_t size)
{
    if (r->bad || r->left < size) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += size;
    r->left -= size;
    return p;
}

static inline uint64_t read_integer(struct reader *r, size_t size)
{
    const uint8_t *p = read_bytes(r, size);
    uint64_t v = 0;
    for (size_t i = size; p && i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static inline uint8_t read_u8(struct reader *r)
{
    return (uint8_t)read_integer(r, 1);
}

static inline uint16_t read_u16(struct reader *r)
{
    return (uint16_t)read_integer(r, 2);
}

static inline uint32_t read_u32(struct reader *r)
{
    return (uint32_t)read_integer(r, 4);
}

static inline uint64_t read_u64(struct reader *r)
{
    return read_integer(r, 8);
}

static inline void write_bytes(struct writer *w, const void *data, size_t size)
{
    if (w->bad || w->left < size) {
        w->bad = true;
        return;
    }
    if (size > 0)
        memcpy(w->at, data, size);
    w->at += size;
    w->left -= size;
}

static inline void write_integer(struct writer *w, uint64_t v, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    write_bytes(w, bytes, size);
}

static inline void write_u8(struct writer *w, uint8_t v)
{
    write_integer(w, v, 1);
}

static inline void write_u16(struct writer *w, uint16_t v)
{
    write_integer(w, v, 2);
}

static inline void write_u32(struct writer *w, uint32_t v)
{
    write_integer(w, v, 4);
}

static inline void write_u64(struct writer *w, uint64_t v)
{
    write_integer(w, v, 8);
}
