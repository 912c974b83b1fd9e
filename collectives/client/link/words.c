#include "collectives/client/link/words.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"

#define NAMES_MAX 65536u /* more is none of a peer's business */
#define BUCKETS   1024u

static struct {
    uint32_t names;
    struct linked_name *bucket[BUCKETS];
} words;

void words_forget(struct early *e)
{
    if (e->room)
        link_room_put(e->room);
    else
        free((void *)(uintptr_t)e->elements);
    e->elements = NULL;
    e->room = NULL;
}

void words_drop(struct linked_name *n, uint32_t slot, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        words_forget(&n->early[r][slot]);
}

void words_free(uint32_t ranks)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        while (words.bucket[i]) {
            struct linked_name *n = words.bucket[i];
            words.bucket[i] = n->next;
            for (uint32_t slot = 0; slot < EARLY_SLOTS; slot++)
                words_drop(n, slot, ranks);
            free(n);
        }
    words.names = 0;
}

struct linked_name *words_of_name(const char *name, uint32_t ranks)
{
    struct linked_name **at = &words.bucket[hash_text(0, name) % BUCKETS], *n = *at;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    if (n)
        return n;
    size_t size = strlen(name) + 1;
    size_t early = ranks * sizeof n->early[0];
    n = words.names < NAMES_MAX ? calloc(1, sizeof *n + early + size) : NULL;
    if (!n)
        return NULL;
    n->name = (char *)n->early + early;
    memcpy(n->name, name, size);
    n->next = *at;
    *at = n;
    words.names++;
    return n;
}

void words_leave(struct linked_name *n, uint32_t sequence)
{
    if (!n->left || (int32_t)(sequence - n->left_at) < 0)
        n->left_at = sequence;
    n->left = true;
}

bool words_have_left(const struct linked_name *n, uint32_t sequence)
{
    return n->left && (int32_t)(sequence - n->left_at) >= 0;
}

bool words_keep(struct linked_name *n, uint32_t rank, uint32_t slot, const struct early *e)
{
    struct early *to = &n->early[rank][slot];
    words_forget(to);
    *to = *e;
    if (e->room)
        return true;
    uint8_t *copy = malloc(e->bytes + 1);
    if (!copy) {
        *to = (struct early){0};
        return false;
    }
    memcpy(copy, e->elements, e->bytes);
    to->elements = copy;
    return true;
}

const struct early *words_elements(const struct linked_name *n, uint32_t rank, uint32_t sequence)
{
    const struct early *e = &n->early[rank][sequence % 2];
    return n->done != sequence && e->sequence == sequence && e->elements ? e : NULL;
}

bool words_have_result(const struct linked_name *n, uint32_t rank, uint32_t sequence)
{
    const struct early *e = &n->early[rank][EARLY_RESULT];
    return n->results & 1u << rank || (e->elements && e->sequence == sequence);
}
