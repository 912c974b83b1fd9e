#include "agent/worker/line_splitter.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Does a line end after bytes[i]? A \r at the very end of what has come may be the first half of \r\n: not
 * yet. */
static bool ends_line(const uint8_t *bytes, size_t i, size_t len)
{
    return bytes[i] == '\n' || (bytes[i] == '\r' && i + 1 < len && bytes[i + 1] != '\n');
}

/* The length of the first line with its end; 0 when no line ends here. */
static size_t first_end(const uint8_t *bytes, size_t len)
{
    const uint8_t *newline = memchr(bytes, '\n', len);
    size_t before = newline ? (size_t)(newline - bytes) : len;
    for (const uint8_t *p = bytes; (p = memchr(p, '\r', before - (size_t)(p - bytes))) != NULL; p++)
        if (ends_line(bytes, (size_t)(p - bytes), len))
            return (size_t)(p - bytes) + 1;
    return newline ? before + 1 : 0;
}

/* The length of all whole lines at the front. */
static size_t last_end(const uint8_t *bytes, size_t len)
{
    for (size_t i = len; i > 0; i--)
        if (ends_line(bytes, i - 1, len))
            return i;
    return 0;
}

/* Whole lines (or one piece of a line), in frames; each frame but the last is cut after a line where that is
 * possible. */
static int emit_all(const uint8_t *bytes, size_t len, uint8_t last_flags, lines_emit *emit, void *ctx)
{
    while (len > FRAME_DATA_MAX) {
        size_t cut = last_end(bytes, FRAME_DATA_MAX);
        size_t take = cut ? cut : FRAME_DATA_MAX;
        if (emit(ctx, cut ? FRAME_FLAG_LINE_END : 0, bytes, take) < 0)
            return -1;
        bytes += take;
        len -= take;
    }
    return len ? emit(ctx, last_flags, bytes, len) : 0;
}

static int hold_bytes(struct lines *l, const uint8_t *bytes, size_t len)
{
    if (len > l->capacity - l->len) {
        uint32_t capacity = l->capacity ? l->capacity : 256;
        while (capacity - l->len < len)
            capacity *= 2;
        uint8_t *grown = realloc(l->held, capacity);
        if (!grown)
            return -1;
        l->held = grown;
        l->capacity = capacity;
    }
    memcpy(l->held + l->len, bytes, len);
    l->len += (uint32_t)len;
    return 0;
}

static int give_out(struct lines *l, uint8_t flags, lines_emit *emit, void *ctx)
{
    int rc = emit_all(l->held, l->len, flags, emit, ctx);
    lines_free(l);
    return rc;
}

/* Adds bytes of one line to what is held; a line that grows over the most goes out in pieces. */
static int extend_line(struct lines *l, const uint8_t *bytes, size_t len, lines_emit *emit, void *ctx)
{
    const uint32_t max = l->max ? l->max : LINE_LENGTH_MAX;
    while (len > 0) {
        size_t take = len < max - l->len ? len : max - l->len;
        if (hold_bytes(l, bytes, take) < 0)
            return -1;
        bytes += take;
        len -= take;
        if (l->len == max && len > 0 && give_out(l, FRAME_FLAG_UNFINISHED, emit, ctx) < 0)
            return -1;
    }
    return 0;
}

int lines_put(struct lines *l, const uint8_t *bytes, size_t len, uint64_t now, lines_emit *emit, void *ctx)
{
    if (len == 0)
        return 0;
    if (l->len > 0 && l->held[l->len - 1] == '\r' && bytes[0] != '\n' &&
        give_out(l, FRAME_FLAG_LINE_END, emit, ctx) < 0)
        return -1;
    size_t whole = last_end(bytes, len), first = 0;
    if (l->len > 0 && whole > 0) {
        first = first_end(bytes, len);
        if (extend_line(l, bytes, first, emit, ctx) < 0 || give_out(l, FRAME_FLAG_LINE_END, emit, ctx) < 0)
            return -1;
    }
    if (whole > first && emit_all(bytes + first, whole - first, FRAME_FLAG_LINE_END, emit, ctx) < 0)
        return -1;
    l->since = now;
    return extend_line(l, bytes + whole, len - whole, emit, ctx);
}

int lines_flush(struct lines *l, lines_emit *emit, void *ctx)
{
    if (l->len == 0)
        return 0;
    return give_out(l, l->held[l->len - 1] == '\r' ? FRAME_FLAG_LINE_END : FRAME_FLAG_UNFINISHED, emit, ctx);
}

int lines_advance(struct lines *l, lines_emit *emit, void *ctx)
{
    if (l->len < 2)
        return 0;
    int rc = emit_all(l->held, l->len - 1, 0, emit, ctx);
    l->held[0] = l->held[l->len - 1];
    l->len = 1;
    return rc;
}

uint64_t lines_due(const struct lines *l)
{
    return l->len ? l->since + LINES_PATIENCE : UINT64_MAX;
}

void lines_free(struct lines *l)
{
    free(l->held);
    *l = (struct lines){.max = l->max};
}
