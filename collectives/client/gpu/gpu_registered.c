/* Which allocations of hvd_alloc_device the engine's communicators of this rank know (--gpu-placement
 * engine): asked once for each team, when an operation of the team first finds the allocation. */
#include <stdlib.h>

#include "collectives/client/gpu/gpu.h"

static bool remember(struct device_team *team, uintptr_t at, bool known)
{
    struct device_known *more = realloc(team->known, (team->knowns + 1) * sizeof *more);

    if (!more)
        return false; /* the next operation asks again */
    team->known = more;
    more[team->knowns++] = (struct device_known){at, known};
    return known;
}

bool device_engine_knows(struct device_team *team, const struct device_memory *m)
{
    struct worker_message q = {.type = WORKER_DEVICE_KNOW, .set = team->team->id};
    uint64_t offset;

    for (size_t i = 0; i < team->knowns; i++)
        if (team->known[i].at == m->at)
            return team->known[i].known;
    if (!m->by_nccl || !device_export(team->context, (const void *)m->at, m->bytes, &q.id, &offset) ||
        offset != 0 || rpc(&q, -1, NULL, NULL) != HVD_SUCCESS)
        return remember(team, m->at, false);
    return q.id != SHM_DEVICE_ASK_LATER && remember(team, m->at, q.id == SHM_DEVICE_KNOWN);
}

void device_engine_knows_no_more(struct device_team *team, const struct device_memory *m)
{
    for (size_t i = team->knowns; i-- > 0;)
        if (team->known[i].at == m->at)
            team->known[i] = team->known[--team->knowns];
}
