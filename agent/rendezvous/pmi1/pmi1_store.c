#include "agent/rendezvous/pmi1/pmi1_store.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"

#define PAIR_COST 64 /* of a pair's memory beside its text, about */

void pmi1_store_init(struct pmi1_store *s, size_t max)
{
    *s = (struct pmi1_store){.max = max};
}

void pmi1_store_free(struct pmi1_store *s)
{
    for (size_t i = 0; i < s->pairs; i++) {
        free(s->pair[i]->value);
        free(s->pair[i]);
    }
    free(s->pair);
    free(s->slot);
    *s = (struct pmi1_store){0};
}

/* The slot where the key is, or where it would go. */
static size_t find_slot(const struct pmi1_store *s, const char *key)
{
    size_t i = hash_text(0, key) & (s->slots - 1);
    while (s->slot[i] && strcmp(s->pair[s->slot[i] - 1]->key, key) != 0)
        i = (i + 1) & (s->slots - 1);
    return i;
}

/* At most half of the slots are taken. */
static int grow_slots(struct pmi1_store *s)
{
    if (s->pairs < s->slots / 2)
        return 0;
    struct pmi1_store larger = {.slots = s->slots ? 2 * s->slots : 64};
    larger.slot = calloc(larger.slots, sizeof *larger.slot);
    larger.pair = reallocarray(s->pair, larger.slots / 2, sizeof *larger.pair);
    if (larger.pair)
        s->pair = larger.pair;
    if (!larger.slot || !larger.pair) {
        free(larger.slot);
        return -1;
    }
    for (size_t i = 0; i < s->pairs; i++)
        larger.slot[find_slot(&larger, s->pair[i]->key)] = (uint32_t)i + 1;
    free(s->slot);
    s->slot = larger.slot;
    s->slots = larger.slots;
    return 0;
}

static struct pmi1_pair *add_pair(struct pmi1_store *s, const char *key)
{
    size_t len = strlen(key) + 1;
    struct pmi1_pair *pair = grow_slots(s) < 0 ? NULL : malloc(sizeof *pair + len);
    if (!pair)
        return NULL;
    memcpy(pair->key, key, len);
    pair->value = NULL;
    s->slot[find_slot(s, key)] = (uint32_t)s->pairs + 1;
    s->pair[s->pairs++] = pair;
    return pair;
}

int pmi1_store_put(struct pmi1_store *s, const char *key, const char *value, struct err *e)
{
    uint32_t at = s->slots ? s->slot[find_slot(s, key)] : 0;
    size_t before = at ? strlen(s->pair[at - 1]->value) : 0;
    size_t more = strlen(value) + (at ? 0 : strlen(key) + PAIR_COST);
    if (s->bytes - before + more > s->max)
        return err_set(e, ERR_MEMORY, "the job's keys and values take more than %zu bytes", s->max);
    char *copy = strdup(value);
    struct pmi1_pair *pair = !copy ? NULL : at ? s->pair[at - 1] : add_pair(s, key);
    if (!pair) {
        free(copy);
        return err_set(e, ERR_MEMORY, "no memory for a value");
    }
    free(pair->value);
    pair->value = copy;
    s->bytes = s->bytes - before + more;
    return 0;
}

const char *pmi1_store_get(const struct pmi1_store *s, const char *key)
{
    uint32_t at = s->slots ? s->slot[find_slot(s, key)] : 0;
    return at ? s->pair[at - 1]->value : NULL;
}
