#include "agent/rendezvous/pmix_client/pmix_help.h"

#include <stdbool.h>

#include "common/base/cursor.h"

static uint32_t read_network(struct reader *r)
{
    const uint8_t *p = read_bytes(r, 4);
    return p ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3] : 0;
}

static bool read_one(struct reader *r)
{
    return read_network(r) == 1;
}

static const char *read_text(struct reader *r, size_t *len)
{
    size_t size = read_one(r) ? read_network(r) : 0;
    const uint8_t *p = size > 0 ? read_bytes(r, size) : NULL;
    if (!p || p[size - 1] != '\0')
        return NULL;
    *len = strlen((const char *)p);
    return (const char *)p;
}

const char *pmix_help_read(const void *bytes, size_t size, size_t *len)
{
    struct reader r = reader_of(bytes, size);
    size_t ignored;
    if (!read_text(&r, &ignored) || !read_text(&r, &ignored) || !read_one(&r) || read_u8(&r) != 1)
        return NULL;
    const char *text = read_text(&r, len);
    return r.left == 0 ? text : NULL;
}
