/* The launcher's soft limits, as far as the hard ones of this host let workers have them. */
#ifndef HVD_AGENT_WORKER_RLIMITS_H
#define HVD_AGENT_WORKER_RLIMITS_H

#include <sys/resource.h>

#include "common/protocol/control.pb-c.h"
#include "common/process/rlimits.h"
#include "common/process/spawn.h"

struct rlimits {
    struct spawn_limit limit[RLIMITS_COUNT];
    size_t count;
};

/* Takes each limit that is known here, once. `capped` hears of each that had to be lowered to the hard limit.
 */
void rlimits_take(struct rlimits *r, Hvd__ResourceLimit *const *wanted, size_t count,
                  void (*capped)(void *ctx, const char *name, uint64_t wanted, uint64_t hard), void *ctx);

#endif
