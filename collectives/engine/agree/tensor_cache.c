#include "collectives/engine/agree/tensor_cache.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/hash.h"

#define ALLOCATED_LEAST 64
#define BUCKETS_MOST    16384u

struct cached {
    struct tensor_desc desc;
    uint32_t hash, next; /* in the bucket: number + 1; 0: none */
};

struct tensor_cache {
    uint32_t capacity, allocated, count;
    struct cached *cached; /* [allocated] */
    uint32_t buckets;      /* a power of two */
    uint32_t *bucket;      /* number + 1 */
};

struct tensor_cache *tensor_cache_new(uint32_t capacity)
{
    struct tensor_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->capacity = capacity < TENSOR_CACHE_MAX ? capacity : TENSOR_CACHE_MAX;
    for (c->buckets = 1; c->buckets < c->capacity && c->buckets < BUCKETS_MOST;)
        c->buckets *= 2;
    c->bucket = calloc(c->buckets, sizeof *c->bucket);
    if (c->bucket)
        return c;
    free(c);
    return NULL;
}

void tensor_cache_free(struct tensor_cache *c)
{
    if (!c)
        return;
    free(c->cached);
    free(c->bucket);
    free(c);
}

static uint32_t hash_of(const struct tensor_desc *desc)
{
    return hash_text((uint32_t)desc->what.set, desc->name);
}

static uint32_t find_name(const struct tensor_cache *c, const struct tensor_desc *desc, uint32_t hash)
{
    uint32_t at = c->bucket[hash & (c->buckets - 1)];
    while (at) {
        const struct cached *known = &c->cached[at - 1];
        if (known->hash == hash && known->desc.what.set == desc->what.set &&
            strcmp(known->desc.name, desc->name) == 0)
            return at - 1;
        at = known->next;
    }
    return TENSOR_CACHE_NONE;
}

uint32_t tensor_cache_find(const struct tensor_cache *c, const struct tensor_desc *desc)
{
    uint32_t number = find_name(c, desc, hash_of(desc));
    if (number == TENSOR_CACHE_NONE || c->cached[number].desc.known != desc->known ||
        memcmp(&c->cached[number].desc.what, &desc->what, sizeof desc->what) != 0)
        return TENSOR_CACHE_NONE;
    return number;
}

const struct tensor_desc *tensor_cache_get(const struct tensor_cache *c, uint32_t number)
{
    return number < c->count ? &c->cached[number].desc : NULL;
}

int tensor_cache_reserve(struct tensor_cache *c, uint32_t names)
{
    uint32_t allocated = c->allocated ? c->allocated : ALLOCATED_LEAST;
    uint32_t wanted = c->capacity - c->count < names ? c->capacity : c->count + names;
    if (wanted <= c->allocated)
        return 0;
    while (allocated < wanted)
        allocated *= 2;
    struct cached *more = realloc(c->cached, allocated * sizeof *more);
    if (!more)
        return -1;
    c->cached = more;
    c->allocated = allocated;
    return 0;
}

int tensor_cache_put(struct tensor_cache *c, const struct tensor_desc *desc)
{
    uint32_t hash = hash_of(desc), number = find_name(c, desc, hash);
    if (number != TENSOR_CACHE_NONE) {
        c->cached[number].desc.what = desc->what;
        c->cached[number].desc.known = desc->known;
        return 0;
    }
    if (c->count >= c->capacity)
        return 0;
    if (tensor_cache_reserve(c, 1) < 0)
        return -1;
    uint32_t *bucket = &c->bucket[hash & (c->buckets - 1)];
    c->cached[c->count] = (struct cached){.desc = *desc, .hash = hash, .next = *bucket};
    *bucket = ++c->count;
    return 0;
}
