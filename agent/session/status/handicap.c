/* The reasons that may make a worker slower than others, for a status and for the launcher: those that are
 * not usual. */
#include <sched.h>
#include <stddef.h>

#include "agent/inspect/usage.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"

Hvd__Handicap *handicap_tell(const struct usage *u, Hvd__Handicap *out)
{
    hvd__handicap__init(out);
    out->nice = u->nice;
    out->policy = u->policy;
    out->cpu_weight = u->weight;
    bool low = u->nice > 0 || u->policy == SCHED_BATCH || u->policy == SCHED_IDLE;
    return low || u->weight > 0 ? out : NULL;
}

/* The processor of a rank that computes: an idle processor is slow with good reason. */
Hvd__Handicap *handicap_tell_speed(const struct usage *u, uint64_t gpu_slowed, Hvd__Handicap *out)
{
    bool known = handicap_tell(u, out) != NULL;
    out->frequency = u->state == 'R' ? heat_frequency(HEAT_CPUS, u->cpu) : 0;
    out->gpu_slowed = gpu_slowed;
    return known || out->frequency || gpu_slowed ? out : NULL;
}

Hvd__Heat *heat_tell(Hvd__Heat *out)
{
    struct heat h = heat_of_job();
    hvd__heat__init(out);
    out->events = h.events;
    out->ms = h.ms;
    return h.events > 0 ? out : NULL;
}
