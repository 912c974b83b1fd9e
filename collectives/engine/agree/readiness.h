/* Readiness: which tensors are complete on every host (pure: messages in, messages and list entries out).
 *
 * Hosts form a tree of radix HOST_TREE_RADIX by index: host h's parent is (h - 1) / HOST_TREE_RADIX, host 0
 * is the root. A host whose own ranks have all submitted a tensor says so once (readiness_local). A host
 * tells its parent when a tensor is complete in its whole subtree, in one message for everything that became
 * so since the last one: messages per host are bounded, rounds are logarithmic. Each host compares what its
 * children and itself say; a disagreement becomes a sentence that travels on instead of the agreement. The
 * root appends the tensor to the execution list, which travels down the same tree.
 *
 * A tensor of few bytes carries its elements: each host's contribution goes up beside its report, the root
 * reduces them in the order of hosts (the order of every other algorithm, so the bits are the same) and puts
 * the result on the list. On the way up nothing is summed, which would be another order; so little may travel
 * that all hosts' contributions fit into a part of a message.
 *
 * A tensor that was on the list before travels as a number (tensor_cache.h).
 *
 * Two hosts: what has a number and carries its elements, or is a barrier, needs no list, since its result
 * does not depend on any order. Each host says so to the other at once (a direct report, of host 0 too), and
 * who has both reports and finds that they agree has the result: one way instead of two. Anything else about
 * the tensor (a report that is not direct, a disagreement) is decided by host 0 as always, and its entry on
 * the list replaces what the other one has counted. A link keeps the order of messages, so each host's next
 * report of that name comes after all that belongs to this one.
 *
 * One host: the same code; nothing is sent, a local tensor is on the list at once. A barrier and a shutdown
 * need nothing but their entry on the list.
 *
 * A peer's message is checked whole before anything changes; -1 means: this peer is broken, give up its
 * link. Another epoch's messages, and a tensor a child has reported already, are ignored (readiness_ignored
 * counts them). At most READINESS_PENDING_MAX tensors wait at once.
 *
 * READY message (integers little endian): type 1 (READINESS_READY), pad 1, count 2, epoch 4, then `count`
 * times: the tensor as in tensor_wire.h (with TENSOR_DIRECT: a direct report); when in full, witness 4 (a
 * host that says so; else it is the sender); with data: contributions 4, and for each, by host: host 4, its
 * elements. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/agree/execution_list.h"
#include "collectives/engine/agree/report.h"
#include "common/base/err.h"

#define READINESS_PENDING_MAX 65536
#define READINESS_MESSAGE_MAX (60u << 10)

/* First byte of a control frame between engines; from BACKEND_CONTROL_TYPE (backends/tcp.h) on it is the
 * backend's. */
enum readiness_type { READINESS_READY = 1, READINESS_LIST = 2 };

struct readiness_config {
    uint32_t epoch, self, hosts;
    const struct readiness_host *host; /* [hosts]; copied */
    /* The same on every host: */
    uint64_t fusion_bytes;   /* of tensors that travel as one; the root's counts */
    uint32_t data_bytes;     /* of a tensor that may carry its elements, at most TENSOR_DATA_MAX */
    uint32_t cache_capacity; /* of tensor_cache.h */
};

struct readiness;

struct readiness *readiness_new(const struct readiness_config *config, struct err *e);
void readiness_free(struct readiness *r);
/* Bytes of the contribution that this host adds to its report of the tensor: all its elements, or 0. */
size_t readiness_data(const struct readiness *r, const struct tensor_op *what);
/* All ranks of this host have submitted `desc`. `error` (NULL: they agree): the sentence when they disagree.
 * `data`: this host's contribution, readiness_data bytes, copied (any or NULL when that is 0 or with an
 * error). -1 when `desc` is invalid, or when the same name still waits here for other hosts. (Once its report
 * has gone up, only the caller knows that a name is pending.) */
int readiness_local(struct readiness *r, const struct tensor_desc *desc, const char *error, const void *data,
                    struct err *e);
/* A control frame of another host whose first byte is a readiness_type. */
int readiness_receive(struct readiness *r, uint32_t from, const void *message, size_t size, struct err *e);
/* The next message to send: to host *to. It stays valid until the next call of any function here. false:
 * nothing (more) to send. Call it until false after each batch of readiness_local and readiness_receive. */
bool readiness_next_message(struct readiness *r, uint32_t *to, const void **message, size_t *size);
/* The execution list; readiness_free frees the list. The caller takes entries after readiness_next_message
 * has said that nothing is left to send. The root holds its list and sets the size of what travels as one. */
struct execution_list *readiness_list(const struct readiness *r);
/* Nothing is left to send or to take until something comes, from here or elsewhere. */
bool readiness_is_idle(const struct readiness *r);
/* Of two hosts: this one has reported the tensor directly to the other one, and the tensor waits here. */
bool readiness_was_direct(const struct readiness *r, const char *name);
/* Of two hosts: the other one has reported the tensor here, and this one has not reported it yet. */
bool readiness_lacks(const struct readiness *r, const char *name);
uint64_t readiness_ignored(const struct readiness *r);
