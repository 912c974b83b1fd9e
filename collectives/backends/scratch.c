#include "collectives/backends/scratch.h"

#include <stdlib.h>

#define LINE 64

static size_t round_size(size_t size)
{
    return (size + LINE - 1) / LINE * LINE;
}

/* The smallest kept one that is large enough. */
void *scratch_borrow(struct scratch *s, size_t size)
{
    int best = -1;
    size = round_size(size);
    for (int i = 0; i < SCRATCH_KEPT; i++)
        if (s->kept[i].memory && s->kept[i].size >= size &&
            (best < 0 || s->kept[i].size < s->kept[best].size))
            best = i;
    if (best < 0)
        return aligned_alloc(LINE, size);
    void *memory = s->kept[best].memory;
    s->kept[best].memory = NULL;
    return memory;
}

/* `size` is what was asked for; a kept buffer may have been larger, which is then forgotten. */
void scratch_give_back(struct scratch *s, void *memory, size_t size)
{
    int smallest = 0;
    size = round_size(size);
    for (int i = 0; i < SCRATCH_KEPT; i++) {
        if (!s->kept[i].memory) {
            smallest = i;
            break;
        }
        if (s->kept[i].size < s->kept[smallest].size)
            smallest = i;
    }
    if (size > SCRATCH_MAX || (s->kept[smallest].memory && s->kept[smallest].size >= size)) {
        free(memory);
        return;
    }
    free(s->kept[smallest].memory);
    s->kept[smallest].memory = memory;
    s->kept[smallest].size = size;
}

void scratch_free(struct scratch *s)
{
    for (int i = 0; i < SCRATCH_KEPT; i++) {
        free(s->kept[i].memory);
        s->kept[i].memory = NULL;
    }
}
