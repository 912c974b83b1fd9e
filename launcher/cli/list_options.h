/* The options of which the value is a list of words. */
#pragma once

#include "common/base/err.h"
#include "common/process/rlimits.h"
#include "common/protocol/contracts.h"
#include "common/protocol/control.pb-c.h"

/* --rendezvous: words into the bits of common/protocol/contracts.h. Pure.
 *
 * `text`: none, or some of auto, env, pmix, pmi1, gloo, jax, tf and paddle by comma. pmix by name starts its
 * server before the workers. -1 with *e (ERR_USAGE). */
int contracts_parse(const char *text, unsigned *contracts, struct err *e);

/* ---- --propagate-limits -------------------------------------------------------------------------------- */

/* The soft resource limits with which hvdrun was started, for the workers. */

struct propagate {
    Hvd__ResourceLimit limit[RLIMITS_COUNT], *list[RLIMITS_COUNT];
    size_t count;
};

/* Of "all", "none" or names by comma. ERR_USAGE; `p` may be NULL when only that is of interest. */
int propagate_read(struct propagate *p, const char *text, struct err *e);
