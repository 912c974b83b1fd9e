/* The choice of tensors that travel between hosts as one (pure).
 *
 * The root decides it when it puts entries on the list, so every host packs the same ones in the same order;
 * it looks ahead over entries that do not fit. A batch is one allreduce of all its elements, one tensor after
 * the other. The bits of an element are the same as alone: each is reduced in the order of hosts, whoever
 * owns it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "collectives/shm/op.h"

#define FUSION_LOOK_AHEAD 512 /* entries that one search looks at */

/* Can it be a part of a batch of at most `limit` bytes? */
bool fusion_can(const struct tensor_op *op, uint64_t limit);
/* Do two such go together? */
bool fusion_goes_with(const struct tensor_op *a, const struct tensor_op *b);
