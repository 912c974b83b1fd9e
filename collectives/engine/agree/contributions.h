/* The elements of a small tensor on their way with its readiness: which tensors have them, where each host's
 * contribution lies, and their reduction (pure). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/partial.h"
#include "collectives/shm/op.h"

#define CONTRIBUTIONS_MAX                                                                                    \
    (32u << 10) /* bytes of all hosts' together in a message, each with its host's number */

/* Bytes of one contribution to a tensor that carries its elements, of at most `limit` bytes; 0: it does not.
 */
size_t contribution_bytes(const struct tensor_op *op, const struct partial_shape *shape, uint32_t limit);
/* All bytes of the array that holds one tensor's contributions; host h's begins at contribution_offset. */
size_t contributions_bytes(const struct tensor_op *op, uint32_t hosts, size_t bytes);
size_t contribution_offset(const struct tensor_op *op, uint32_t host, size_t bytes);
/* Replaces the first contribution by the result; all are there. -1: no memory. */
int contributions_reduce(const struct tensor_op *op, const struct partial_shape *shape, void *contributions,
                         size_t bytes);
