/* What may make a worker slower than others, for a status and for the launcher: only what is not usual. */
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
