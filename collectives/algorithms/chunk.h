/* How a tensor is cut into chunks that several workers take one by one (pure).
 *
 * Depends only on the tensor and the number of workers, so all of them cut alike. Chunks are whole cache
 * lines: two workers never write into the same line of an output that is aligned to 64. */
#ifndef HVD_ALGORITHMS_CHUNK_H
#define HVD_ALGORITHMS_CHUNK_H

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

#endif
