#include "launcher/io/tail.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

void tail_put(struct tail *t, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    if (len > 0 && !t->ring)
        t->ring = malloc(TAIL_MAX);
    if (len == 0 || !t->ring)
        return;
    if (len > TAIL_MAX) {
        t->len = TAIL_MAX; /* the beginning of the line is lost, as when it is overwritten */
        from += len - TAIL_MAX;
        len = TAIL_MAX;
    }
    size_t first = len < TAIL_MAX - t->at ? len : TAIL_MAX - t->at;
    memcpy(t->ring + t->at, from, first);
    memcpy(t->ring, from + first, len - first);
    t->at = (t->at + len) % TAIL_MAX;
    t->len = t->len + len < TAIL_MAX ? t->len + len : TAIL_MAX;
}

static bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

/* Out of the ring, as text: no zeros, \r as \n. */
static size_t unroll_ring(const struct tail *t, char *out)
{
    size_t begin = (t->at + TAIL_MAX - t->len) % TAIL_MAX;
    for (size_t i = 0; i < t->len; i++) {
        char c = (char)t->ring[(begin + i) % TAIL_MAX];
        out[i] = c == '\0' ? '?' : ends_line(c) ? '\n' : c;
    }
    out[t->len] = '\0';
    return t->len;
}

/* The offset at which the last TAIL_LINES lines begin. */
static size_t first_shown(const char *text, size_t len)
{
    size_t lines = 0, at = len;
    while (at > 0 && lines < TAIL_LINES) {
        while (at > 0 && text[at - 1] == '\n')
            at--;
        size_t end = at;
        while (at > 0 && text[at - 1] != '\n')
            at--;
        lines += end > at;
    }
    return at;
}

size_t tail_lines(const struct tail *t, char out[TAIL_MAX + 1])
{
    out[0] = '\0';
    if (t->len == 0)
        return 0;
    size_t len = unroll_ring(t, out), used = 0;
    size_t from = first_shown(out, len);
    size_t cut = strcspn(out, "\n"); /* perhaps not from its beginning */
    if (t->len == TAIL_MAX && from == 0 && out[cut + strspn(out + cut, "\n")])
        from = cut;
    while (from < len) {
        from += strspn(out + from, "\n");
        size_t line = strcspn(out + from, "\n");
        if (line > 0 && used > 0)
            out[used++] = '\n';
        memmove(out + used, out + from, line);
        char end = out[used + line];
        out[used + line] = '\0';
        log_printable(out + used);
        out[used + line] = end;
        used += line;
        from += line;
    }
    out[used] = '\0';
    return used;
}

void tail_free(struct tail *t)
{
    free(t->ring);
    *t = (struct tail){0};
}
