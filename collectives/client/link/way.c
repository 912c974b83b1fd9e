#include "collectives/client/link/way.h"

enum link_way link_way_of(const struct link_operation *o, uint32_t ranks, bool crowded)
{
    if (ranks == 2 || o->has_handle)
        return LINK_WHOLE;
    if (crowded && o->bytes <= LINK_ROOT_MAX)
        return LINK_ROOT;
    return o->bytes > LINK_WHOLE_MAX ? LINK_PARTS : LINK_WHOLE;
}

struct link_part link_part_of(const struct link_operation *o, enum link_way way, uint32_t rank,
                              uint32_t ranks)
{
    size_t size = o->op.count > 0 ? o->bytes / o->op.count : 0;
    size_t first = 0, end = o->op.count;
    if (way == LINK_PARTS) {
        first = o->op.count * rank / ranks;
        end = o->op.count * (rank + 1) / ranks;
    }
    if (!link_way_takes(way, rank, link_root(o->sequence, ranks)))
        end = 0;
    return (struct link_part){end - first, first * size, (end - first) * size};
}
