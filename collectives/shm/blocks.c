#include "collectives/shm/blocks.h"

#include <stdlib.h>

static struct block *make_block(size_t offset, size_t bytes, bool fresh, struct block *next)
{
    struct block *b = malloc(sizeof *b);
    if (b)
        *b = (struct block){.next = next, .offset = offset, .bytes = bytes, .fresh = fresh};
    return b;
}

struct block *blocks_new(size_t bytes)
{
    return make_block(0, bytes, true, NULL);
}

void blocks_drop(struct block *list)
{
    while (list) {
        struct block *b = list;
        list = b->next;
        free(b);
    }
}

size_t blocks_round(size_t bytes)
{
    return bytes ? (bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN : BLOCK_ALIGN;
}

struct block *blocks_take(struct block *list, size_t bytes)
{
    for (struct block *b = list; b; b = b->next) {
        if (b->used || b->bytes < bytes)
            continue;
        if (b->bytes > bytes) {
            struct block *rest = make_block(b->offset + bytes, b->bytes - bytes, b->fresh, b->next);
            if (!rest)
                return NULL;
            b->bytes = bytes;
            b->next = rest;
        }
        b->used = true;
        return b;
    }
    return NULL;
}

static void join_with_next(struct block *b)
{
    struct block *next = b ? b->next : NULL;
    if (!next || b->used || next->used)
        return;
    b->bytes += next->bytes;
    b->fresh = b->fresh && next->fresh;
    b->next = next->next;
    free(next);
}

struct block *blocks_find(struct block *list, size_t offset, struct block **before)
{
    *before = NULL;
    for (struct block *b = list; b; *before = b, b = b->next)
        if (b->offset == offset)
            return b->used ? b : NULL;
    return NULL;
}

void blocks_give_back(struct block *b, struct block *before)
{
    b->used = b->given_up = false;
    join_with_next(b);
    join_with_next(before);
}
