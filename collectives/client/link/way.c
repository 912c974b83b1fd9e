#include "collectives/client/link/way.h"

enum link_way link_way_of(const struct link_operation *o, uint32_t ranks, bool crowded)
{
    if (ranks == 2 || o->has_handle)
        return LINK_WHOLE;
    if (crowded && o->bytes <= LINK_ROOT_MAX)
        return LINK_ROOT;
    return o->bytes > LINK_WHOLE_MAX ? LINK_PARTS : LINK_WHOLE;
}

uint32_t link_rounds(const struct link_operation *o, enum link_way way, uint32_t ranks)
{
    size_t max = link_round_max(ranks);
    return way == LINK_PARTS ? (uint32_t)((o->bytes + max - 1) / max) : 1;
}

/* The k-th of `of` shares of the elements from *first to *end. */
static void take_share(size_t *first, size_t *end, uint32_t k, uint32_t of)
{
    size_t count = *end - *first;
    *end = *first + count * (k + 1) / of;
    *first += count * k / of;
}

struct link_part link_part_of(const struct link_operation *o, enum link_way way, uint32_t rank,
                              uint32_t round, uint32_t ranks)
{
    size_t size = o->op.count > 0 ? o->bytes / o->op.count : 0;
    size_t first = 0, end = o->op.count;
    if (way == LINK_PARTS) {
        take_share(&first, &end, round, link_rounds(o, way, ranks));
        take_share(&first, &end, rank, ranks);
    }
    if (!link_way_takes(way, rank, link_root(o->sequence, ranks)))
        end = 0;
    return (struct link_part){end - first, first * size, (end - first) * size};
}
