#include "launcher/elastic/blacklist.h"

#include <stdlib.h>
#include <string.h>

static struct blacklist_host *find_host(const struct blacklist *b, const char *name)
{
    for (size_t i = 0; i < b->count; i++)
        if (strcmp(b->host[i].name, name) == 0)
            return &b->host[i];
    return NULL;
}

static struct blacklist_host *add_host(struct blacklist *b, const char *name)
{
    struct blacklist_host *more = realloc(b->host, (b->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    b->host = more;
    more[b->count] = (struct blacklist_host){.name = strdup(name)};
    return more[b->count].name ? &more[b->count++] : NULL;
}

static uint64_t cool_down(const struct blacklist *b, uint32_t failures, double chance)
{
    uint64_t wait = failures < 32 ? b->low << failures : b->high;
    if (wait > b->high || wait < b->low)
        wait = b->high;
    wait += (uint64_t)((double)b->low * chance);
    return wait > b->high ? b->high : wait;
}

int blacklist_add(struct blacklist *b, const char *name, uint64_t now, double chance)
{
    struct blacklist_host *h = find_host(b, name);
    if (!h)
        h = add_host(b, name);
    if (!h)
        return -1;
    h->until = b->low ? now + cool_down(b, h->failures, chance) : UINT64_MAX;
    h->failures++;
    return 0;
}

int blacklist_pause(struct blacklist *b, const char *name, uint64_t until)
{
    struct blacklist_host *h = find_host(b, name);
    if (!h)
        h = add_host(b, name);
    if (!h)
        return -1;
    if (h->until < until)
        h->until = until;
    return 0;
}

bool blacklist_has(const struct blacklist *b, const char *name, uint64_t now)
{
    const struct blacklist_host *h = find_host(b, name);
    return h && h->until > now;
}

uint64_t blacklist_next(const struct blacklist *b, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < b->count; i++)
        if (b->host[i].until > now && b->host[i].until < next)
            next = b->host[i].until;
    return next;
}

void blacklist_free(struct blacklist *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->host[i].name);
    free(b->host);
    *b = (struct blacklist){0};
}
