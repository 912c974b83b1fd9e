#include "collectives/algorithms/chunk.h"

#define LINE           64u
#define CHUNK_MIN      (4u << 10)   /* below, claiming costs more than it shares */
#define CHUNK_MAX      (512u << 10) /* above, the last one to finish is waited for too long */
#define PER_WORKER_MIN 1u
#define PER_WORKER_MAX 4u
#define EVEN_OUT_BYTES                                                                                       \
    (256u << 10) /* per worker; from here on chunks are many, so that a late worker costs little */

struct chunks chunks_cut(size_t elements, size_t element_size, uint32_t workers)
{
    struct chunks c = {.total = elements};
    size_t line = LINE / element_size; /* elements in a cache line */
    size_t share = elements / workers + (elements % workers != 0);
    uint32_t parts = share * element_size >= EVEN_OUT_BYTES ? PER_WORKER_MAX : PER_WORKER_MIN;
    size_t each = share / parts + (share % parts != 0);

    if (elements == 0)
        return c;
    if (each < CHUNK_MIN / element_size)
        each = CHUNK_MIN / element_size;
    if (each > CHUNK_MAX / element_size)
        each = CHUNK_MAX / element_size;
    each = (each + line - 1) / line * line;
    /* A tensor of which nobody has that much memory: stay within 32 bits all the same. */
    while (elements / each >= UINT32_MAX - 1)
        each *= 2;
    c.each = each;
    c.number = (uint32_t)(elements / each + (elements % each != 0));
    return c;
}

void chunks_range(const struct chunks *c, uint32_t index, size_t *first, size_t *count)
{
    *first = c->each * index;
    *count = c->total - *first < c->each ? c->total - *first : c->each;
}

uint32_t chunks_pick(const struct chunks *c, uint32_t taken, uint32_t worker, uint32_t workers,
                     uint32_t *then)
{
    uint32_t first, available;

    if (c->number > 32) {
        *then = taken + 1;
        return taken < c->number ? taken : CHUNK_NONE;
    }
    available = c->number == 0 ? 0 : ~taken & UINT32_MAX >> (32 - c->number);
    if (available == 0)
        return CHUNK_NONE;
    first = worker < workers ? (uint32_t)((uint64_t)worker * c->number / workers) : 0;
    if (available >> first)
        first += (uint32_t)__builtin_ctz(available >> first);
    else
        first = (uint32_t)__builtin_ctz(available);
    *then = taken | 1u << first;
    return first;
}
