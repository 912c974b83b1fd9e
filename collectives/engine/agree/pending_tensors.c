#include "collectives/engine/agree/pending_tensors.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_SMALLEST 256

_Static_assert(REPORTED_PARENT < REPORTED_WORDS * 64, "a bit for each child, the host itself and its parent");

int reported_init(struct reported_table *table)
{
    *table = (struct reported_table){.buckets = TABLE_SMALLEST};
    table->bucket = calloc(table->buckets, sizeof(struct reported *));
    return table->bucket ? 0 : -1;
}

void reported_free(struct reported_table *table)
{
    for (uint32_t i = 0; table->bucket && i < table->buckets; i++)
        while (table->bucket[i])
            reported_remove(table, &table->bucket[i]);
    free(table->bucket);
    table->bucket = NULL;
}

struct reported **reported_find(const struct reported_table *table, const char *name, uint32_t hash)
{
    struct reported **t = &table->bucket[hash & (table->buckets - 1)];
    while (*t && ((*t)->hash != hash || strcmp((*t)->desc.name, name) != 0))
        t = &(*t)->next_in_bucket;
    return t;
}

/* Longer chains are slower, not wrong: no memory to grow is no failure. */
static void grow_table(struct reported_table *table)
{
    uint32_t buckets = table->buckets * 2;
    struct reported **bucket = calloc(buckets, sizeof(struct reported *));
    if (!bucket)
        return;
    for (uint32_t i = 0; i < table->buckets; i++)
        while (table->bucket[i]) {
            struct reported *t = table->bucket[i];
            table->bucket[i] = t->next_in_bucket;
            t->next_in_bucket = bucket[t->hash & (buckets - 1)];
            bucket[t->hash & (buckets - 1)] = t;
        }
    free(table->bucket);
    table->bucket = bucket;
    table->buckets = buckets;
}

struct reported *reported_add(struct reported_table *table, const struct tensor_desc *desc, uint32_t hash,
                              uint32_t witness)
{
    struct reported *t = malloc(sizeof *t);
    if (!t)
        return NULL;
    memset(t, 0, offsetof(struct reported, desc));
    if (table->tensors >= table->buckets)
        grow_table(table);
    t->desc = *desc;
    t->hash = hash;
    t->witness = witness;
    t->next_in_bucket = table->bucket[hash & (table->buckets - 1)];
    table->bucket[hash & (table->buckets - 1)] = t;
    table->tensors++;
    return t;
}

void reported_remove(struct reported_table *table, struct reported **place)
{
    struct reported *t = *place;
    *place = t->next_in_bucket;
    table->tensors--;
    free(t->error);
    free(t->parts);
    free(t);
}
