/* How a tensor is cut into chunks that several workers take one by one (pure).
 *
 * Depends only on the tensor and the number of workers, so all of them cut alike. Chunks are whole cache
 * lines: two workers never write into the same line of an output that is aligned to 64. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunks {
    size_t total;    /* elements */
    size_t each;     /* elements of every chunk but the last */
    uint32_t number; /* of chunks; 0 when there are no elements */
};

/* element_size is a power of two up to 64, workers at least 1. */
struct chunks chunks_cut(size_t elements, size_t element_size, uint32_t workers);
/* Elements [*first, *first + *count) are chunk `index` (< number). */
void chunks_range(const struct chunks *c, uint32_t index, size_t *first, size_t *count);

#define CHUNK_NONE UINT32_MAX
/* The chunk that `worker` takes next, CHUNK_NONE when all are taken. `taken` says which are: 0 at first, then
 * what *then was for the one who took the last. Each worker has a part of its own, the same every time: a
 * small one stays in its processor's cache from one operation to the next, and of a large one it need map no
 * more. A member that has finished its part helps the others; of few chunks it takes the last ones. A patient
 * member leaves a part of few chunks to the member that has begun it: those elements would have to move to
 * another cache and back for the next operation. A part of many chunks is open to all. Parts that `taken` has
 * no room for the numbers of are none: then chunks are taken in order. */
uint32_t chunks_pick(const struct chunks *c, uint32_t taken, uint32_t worker, uint32_t workers, bool patient,
                     uint32_t *then);
