/* The blocks of a tensor segment: a list in private memory, in address order, the free ones joined with their
 * neighbours. Nothing about the allocation lies in shared memory. The caller holds a lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define BLOCK_ALIGN 64u

struct block {
    struct block *next;
    size_t offset, bytes;
    bool used;
    bool fresh;    /* never handed out: still zero */
    bool given_up; /* its owner wants it no more, but it may not be handed out again yet */
};

/* One free block. NULL: no memory. */
struct block *blocks_new(size_t bytes);
void blocks_drop(struct block *list);
/* The first free block that is large enough, cut to size. NULL: there is none, or no memory. */
struct block *blocks_take(struct block *list, size_t bytes);
/* The used block at that offset, and the one before it. NULL: there is none. */
struct block *blocks_find(struct block *list, size_t offset, struct block **before);
void blocks_give_back(struct block *b, struct block *before);
/* Bytes of the smallest block for so many. */
size_t blocks_round(size_t bytes);

static inline bool blocks_are_free(const struct block *list)
{
    return !list->used && !list->next;
}
