#include "launcher/io/collapse.h"

#include <stdlib.h>
#include <string.h>

void collapse_init(struct collapse *c)
{
    *c = (struct collapse){0};
}

/* FNV-1a */
static uint64_t hash_of(const uint8_t *bytes, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static int more_room(struct collapse *c, struct collapse_group *g)
{
    uint32_t room = g->room ? 2 * g->room : 8;
    uint32_t *grown = realloc(g->rank, room * sizeof *grown);
    if (!grown)
        return -1;
    c->bytes += (room - g->room) * sizeof *grown;
    g->rank = grown;
    g->room = room;
    return 0;
}

static struct collapse_group *make_group(struct collapse *c, enum frame_stream stream, uint64_t hash,
                                         const uint8_t *bytes, size_t len, uint64_t now)
{
    struct collapse_group *g = calloc(1, sizeof *g + len);
    if (!g || more_room(c, g) < 0) {
        free(g);
        return NULL;
    }
    g->place = ++c->places;
    g->since = now;
    g->hash = hash;
    g->stream = stream;
    g->len = len;
    memcpy(g->bytes, bytes, len);
    c->groups++;
    c->bytes += len;
    return g;
}

size_t collapse_line(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] == '\n' || (bytes[i] == '\r' && (i + 1 == len || bytes[i + 1] != '\n')))
            return i + 1;
    return 0;
}

/* The link to the first group after that place; to the front if the group of that place has left. */
static struct collapse_group **find_behind(struct collapse *c, uint64_t place)
{
    for (struct collapse_group *g = c->first; g; g = g->next)
        if (g->place == place)
            return &g->next;
    return &c->first;
}

int collapse_put(struct collapse *c, enum frame_stream stream, uint32_t rank, uint64_t *place,
                 const uint8_t *bytes, size_t len, uint64_t now)
{
    uint64_t hash = hash_of(bytes, len);
    struct collapse_group **at = find_behind(c, *place), *g = *at;
    while (g &&
           (g->hash != hash || g->stream != stream || g->len != len || memcmp(g->bytes, bytes, len) != 0))
        g = g->next;
    if (!g) {
        while (*at && (*at)->behind == *place)
            at = &(*at)->next;
        g = make_group(c, stream, hash, bytes, len, now);
        if (!g)
            return -1;
        g->behind = *place;
        g->next = *at;
        *at = g;
    }
    if (g->count == g->room && more_room(c, g) < 0)
        return -1;
    g->rank[g->count++] = rank;
    *place = g->place;
    return 0;
}

bool collapse_has(const struct collapse *c, uint64_t place)
{
    const struct collapse_group *g = c->first;
    while (g && g->place != place)
        g = g->next;
    return g;
}

uint64_t collapse_due(const struct collapse *c)
{
    uint64_t due = UINT64_MAX;
    for (const struct collapse_group *g = c->first; g; g = g->next)
        if (g->since + COLLAPSE_PATIENCE < due)
            due = g->since + COLLAPSE_PATIENCE;
    return due;
}

bool collapse_is_full(const struct collapse *c)
{
    return c->groups > COLLAPSE_GROUPS_MAX || c->bytes > COLLAPSE_BYTES_MAX;
}

bool collapse_is_ready(const struct collapse *c, uint32_t everyone, uint64_t now)
{
    const struct collapse_group *g = c->first;
    return g && (g->count >= everyone || collapse_is_full(c) || now >= collapse_due(c));
}

static int compare_ranks(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void collapse_sort(struct collapse_group *g)
{
    qsort(g->rank, g->count, sizeof *g->rank, compare_ranks);
}

void collapse_drop(struct collapse *c)
{
    struct collapse_group *g = c->first;
    c->first = g->next;
    c->groups--;
    c->bytes -= g->len + g->room * sizeof *g->rank;
    free(g->rank);
    free(g);
}

void collapse_free(struct collapse *c)
{
    while (c->first)
        collapse_drop(c);
}
