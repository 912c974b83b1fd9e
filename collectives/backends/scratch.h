/* Staging memory that operations borrow: a few buffers are kept, since fresh pages cost more than the sum of
 * what they stage. */
#pragma once

#include <stddef.h>

#define SCRATCH_KEPT 4           /* buffers kept for the next operations */
#define SCRATCH_MAX  (64u << 20) /* larger ones are not kept */

struct scratch { /* empty when zeroed */
    struct {
        void *memory;
        size_t size;
    } kept[SCRATCH_KEPT];
};

/* At least `size` bytes, aligned to 64, not cleared; NULL when there is no memory. */
void *scratch_borrow(struct scratch *s, size_t size);
void scratch_give_back(struct scratch *s, void *memory, size_t size);
void scratch_free(struct scratch *s);
