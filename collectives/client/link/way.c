#include "collectives/client/link/way.h"

#include "collectives/kernels/reduce.h"

#define PART_ALIGNED 64u /* bytes; parts of a stream begin at whole lines of the caller's elements */

enum link_way link_way_of(const struct link_operation *o, uint32_t ranks, bool crowded)
{
    if (o->bytes > link_stream_above(ranks))
        return LINK_STREAM;
    if (ranks == 2 || o->waits_later)
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
    size_t unit = way == LINK_STREAM ? PART_ALIGNED / size : 1, units = o->op.count / unit;
    if (way == LINK_PARTS || way == LINK_STREAM) {
        first = units * rank / ranks * unit;
        end = rank + 1 == ranks ? end : units * (rank + 1) / ranks * unit;
    }
    if (!link_way_takes(way, rank, link_root(o->sequence, ranks)))
        end = 0;
    return (struct link_part){end - first, first * size, (end - first) * size};
}

void link_reduce(const struct link_operation *o, const void *const *in, uint32_t ranks, void *out,
                 size_t count)
{
    struct reduce_job job = {.in = in,
                             .inputs = ranks,
                             .out = &out,
                             .outputs = 1,
                             .dtype = (hvd_dtype)o->op.dtype,
                             .op = (hvd_op)o->op.op,
                             .divisor = o->op.op == HVD_AVERAGE ? ranks : 0,
                             .postscale = o->op.postscale};
    reduce_range(&job, 0, count);
}
