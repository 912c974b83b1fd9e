/* Too few descriptors or processes are said before a worker was started: what every host told in its Welcome
 * against the ranks that were placed on it, and our own descriptors against the hosts and files that we will
 * open. Arithmetic, but for limits_own. */
#pragma once

#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

struct limits_need {
    uint32_t ranks;
    uint32_t inputs; /* of them that get a stdin */
};

/* A copy of a Welcome for its limits and problems, given back with message_free; NULL when it names none. */
Hvd__Welcome *limits_keep(const Hvd__Welcome *welcome);
/* -1 with *e (the limit that is exceeded by most) when one of a host's limits is too low. */
int limits_check(Hvd__Limit *const *limit, size_t count, const struct limits_need *need, struct err *e);
/* The same for `own`, the descriptors that we may have, of which `used` are taken. */
int limits_check_own(uint64_t own, uint64_t used, uint64_t hosts, uint64_t files, struct err *e);
/* limits_check_own with what this process has. */
int limits_own(uint64_t hosts, uint64_t files, struct err *e);
