#include "collectives/kernels/chunk.h"

#define LINE           64u
#define CHUNK_MIN      (4u << 10)   /* below, claiming costs more than it shares */
#define CHUNK_MAX      (512u << 10) /* above, the last one to finish is waited for too long */
#define PER_WORKER_MIN 1u
#define PER_WORKER_MAX 4u
#define FEW            32u /* chunks */
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

static uint32_t part_begin(const struct chunks *c, uint32_t worker, uint32_t workers)
{
    return (uint32_t)((uint64_t)worker * c->number / workers);
}

/* ---- few chunks: `taken` has a bit for each ------------------------------------------------------------ */

static uint32_t part_of(const struct chunks *c, uint32_t worker, uint32_t workers)
{
    uint32_t begin = part_begin(c, worker, workers), end = part_begin(c, worker + 1, workers);
    return begin == end ? 0 : UINT32_MAX >> (32 - (end - begin)) << begin;
}

/* A member that works on its part has taken the part's first chunk. */
static uint32_t under_way(const struct chunks *c, uint32_t taken, uint32_t workers)
{
    uint32_t theirs = 0;
    for (uint32_t i = 0; i < workers && workers < c->number; i++) {
        uint32_t part = part_of(c, i, workers);
        if (taken & part & -part)
            theirs |= part;
    }
    return theirs;
}

static uint32_t pick_of_few(const struct chunks *c, uint32_t taken, uint32_t worker, uint32_t workers,
                            bool patient, uint32_t *then)
{
    uint32_t available = c->number == 0 ? 0 : ~taken & UINT32_MAX >> (32 - c->number);
    uint32_t own = worker < workers ? available & part_of(c, worker, workers) : 0;
    if (own == 0 && patient)
        available &= ~under_way(c, taken, workers);
    if (available == 0)
        return CHUNK_NONE;
    uint32_t chunk = (uint32_t)(own != 0 ? __builtin_ctz(own) : 31 - __builtin_clz(available));
    *then = taken | 1u << chunk;
    return chunk;
}

/* ---- many: `taken` has a number for each part, of `width` bits ----------------------------------------- */

/* 0: a number has no room for a part. */
static uint32_t width_of(const struct chunks *c, uint32_t workers)
{
    uint32_t width = 32 / workers;
    return c->number / workers + 1 < UINT64_C(1) << width ? width : 0;
}

static uint32_t pick_of_many(const struct chunks *c, uint32_t taken, uint32_t worker, uint32_t workers,
                             bool patient, uint32_t *then)
{
    uint32_t width = width_of(c, workers);
    if (width == 0) {
        *then = taken + 1;
        return taken < c->number ? taken : CHUNK_NONE;
    }
    for (uint32_t k = 0; k < workers; k++) {
        uint32_t part = (worker + k) % workers, begin = part_begin(c, part, workers);
        uint32_t n = (uint32_t)(taken >> part * width & ((UINT64_C(1) << width) - 1));
        if ((part == worker || !patient) && begin + n < part_begin(c, part + 1, workers)) {
            *then = taken + (1u << part * width);
            return begin + n;
        }
    }
    return CHUNK_NONE;
}

uint32_t chunks_pick(const struct chunks *c, uint32_t taken, uint32_t worker, uint32_t workers, bool patient,
                     uint32_t *then)
{
    return c->number > FEW ? pick_of_many(c, taken, worker, workers, patient, then)
                           : pick_of_few(c, taken, worker, workers, patient, then);
}
