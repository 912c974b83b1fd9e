/* One NCCL communicator of one rank: made, used, and ended without ever holding its caller.
 *
 *   communicator_new -> connect -> poll until READY -> { run -> poll until READY } ...
 *                    -> finish -> poll until FINISHED -> free
 *
 * NCCL's non-blocking mode is used: whatever takes time goes on inside the library, and poll looks how far
 * it is. run gives a group of operations to a stream; it may leave the communicator LAUNCHING (first use of
 * a connection), and then nothing is certainly in the stream before poll says READY again: only then may an
 * event be recorded behind it. Work that is in the stream and cannot end (another rank died) shows as FAILED
 * at a poll or not at all; communicator_abort ends it in either case.
 *
 * Two calls of NCCL may block all the same: ncclCommAbort and ncclCommDestroy. The communicator starts a
 * thread for them. communicator_abort waits for that thread no longer than it is told to. A thread that
 * never ends keeps the memory of its communicator, and holds up nothing else.
 *
 * All functions of one communicator: one thread at a time; different communicators do not know each other.
 * The context that was given is made current within each call, and what was current before comes back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"
#include "collectives/gpu/pack.h"
#include "common/base/err.h"

/* ---- operations ---- */

enum gpu_kind {
    GPU_ALLREDUCE,
    GPU_BROADCAST,
    GPU_ALLGATHER,
    GPU_ALLTOALL,
    GPU_REDUCESCATTER,
    DEVICE_SEND,
    DEVICE_RECEIVE,
    DEVICE_KINDS
};

/* One operation on one tensor; a grouped one of hvd.h is several that are run together. All counts are of
 * elements, and all ranks know them alike, but for what is sent and received in an alltoall.
 *
 *   kind           in                  out                 count          row_count     counts        sent
 *   allreduce      count               count, may be in    of the tensor
 *   broadcast      (unused)            count               of the tensor
 *   allgather      counts[rank]        sum of counts                                    of each rank
 *   alltoall       sum of sent         sum of counts                                    from each     to each
 *   reducescatter  count               its part            of the tensor  of one row
 *   send           count               (unused)            of the tensor
 *   receive        (unused)            count               of the tensor
 *
 * A reducescatter deals out rows as hvd.h says: the first (rows % size) ranks get one more. */
struct gpu_operation {
    enum gpu_kind kind;
    int dtype; /* hvd_dtype */
    int op;    /* hvd_op, of reductions */
    double prescale;
    double postscale; /* 1 for none; of reductions */
    int root;         /* of a broadcast; the other rank of send and receive */
    const void *in;
    void *out;
    size_t count;
    size_t row_count;
    const size_t *counts; /* size numbers, read within the call */
    const size_t *sent;
};

/* Abilities of a rank, or of all ranks of a communicator: the least of each. Exchanged before the
 * communicator is made, so that all ranks decide alike whether NCCL does an operation. */
struct gpu_abilities {
    int32_t nccl;       /* version; 0: one rank has no NCCL that can be used */
    int32_t capability; /* of the GPU; 90 is 9.0 */
    int32_t kernels;    /* 1: communicators have a pack with kernels */
    int32_t fuse;       /* as in communicator_member */
};
/* This rank's. `n` NULL: it has no NCCL. `pack` NULL: there is none, and nothing is packed either. */
struct gpu_abilities gpu_abilities(const struct nccl *n, const struct driver_device *device,
                                   const struct pack *pack, uint32_t fuse);
struct gpu_abilities gpu_abilities_meet(struct gpu_abilities a, struct gpu_abilities b);

struct gpu_why {
    char text[160];
};
/* Does NCCL do this operation among `size` ranks with these abilities? The same answer on all ranks for the
 * same operation. If not, *why (may be NULL) is the end of a sentence: "NCCL has no logical operations". */
bool communicator_can(const struct gpu_operation *o, int size, struct gpu_abilities all, struct gpu_why *why);

/* ---- the communicator ---- */

#define COMMUNICATOR_STATES(X)                                                                               \
    X(COMMUNICATOR_NONE, "none")             /* made, not connected yet */                                   \
    X(COMMUNICATOR_CONNECTING, "connecting") /* poll */                                                      \
    X(COMMUNICATOR_READY, "ready")           /* run */                                                       \
    X(COMMUNICATOR_LAUNCHING, "launching")   /* poll: the last run is not in its stream yet */               \
    X(COMMUNICATOR_FAILED, "failed")         /* abort: poll's error says why */                              \
    X(COMMUNICATOR_FINISHING, "finishing")   /* poll: waits for the other ranks */                           \
    X(COMMUNICATOR_DESTROYING, "destroying") /* poll: a thread gives memory back */                          \
    X(COMMUNICATOR_FINISHED, "finished")     /* free */                                                      \
    X(COMMUNICATOR_ABORTING, "aborting")     /* poll: a thread aborts */                                     \
    X(COMMUNICATOR_ABORTED, "aborted")       /* free */

#define COMMUNICATOR_CONSTANT(constant, name) constant,
enum communicator_state { COMMUNICATOR_STATES(COMMUNICATOR_CONSTANT) };

struct communicator;

/* The rank that the communicator is for. Everything that this struct points to stays valid as long as the
 * communicator. */
struct communicator_member {
    const struct driver *d;
    const struct nccl *n;
    const struct pack *pack; /* in this context, for what NCCL does not scale; NULL: there is none */
    cu_context context;      /* the GPU's primary one */
    int ordinal;             /* of the GPU, for sentences */
    int rank, size;
    size_t fuse; /* bytes of small tensors that are packed at once, see fuse.h; the same on all ranks. 0: none
                    are. Else there is a pack, and the GPU's memory holds so much more: or it fails while it
                    is CONNECTING. */
};
/* `label` names it in the log and in errors ("set 0"), and is copied. NULL: no memory. */
struct communicator *communicator_new(const struct communicator_member *who, const char *label,
                                      struct err *e);
/* A new id, for one rank to make and give to all. */
int communicator_id(const struct nccl *n, struct nccl_id *id, struct err *e);
/* Begins to connect: every rank calls it with the same id. */
int communicator_connect(struct communicator *c, const struct nccl_id *id, struct err *e);

/* How far it is. Never waits. With COMMUNICATOR_FAILED *e (if empty) says why, each time. */
enum communicator_state communicator_poll(struct communicator *c, struct err *e);
/* The same without looking. */
enum communicator_state communicator_state(const struct communicator *c);

/* Gives `n` operations as one group to the stream, always the same one if any are packed. READY is needed;
 * afterwards it is READY or LAUNCHING, see above. No operation may be one that communicator_can refuses. -1:
 * an argument was refused by NCCL or the communicator has failed. */
int communicator_run(struct communicator *c, const struct gpu_operation *o, size_t n, cu_stream stream,
                     struct err *e);

/* Makes memory known to NCCL, for as long as the communicator lives, so that it need not be copied on its
 * way. true: it is, or was before. false: NCCL is older than 2.19, has refused that memory once, or the
 * communicator is not READY. NCCL takes it for granted that of an operation's buffers, on all ranks, all are
 * known or none, each at the same place of what is known: the caller sees to that. */
bool communicator_register(struct communicator *c, void *at, size_t bytes);
/* When nothing that uses it is in a stream any more, and while READY: NCCL is told then only. */
void communicator_deregister(struct communicator *c, void *at);

/* Leaves, with all other ranks; from NONE or READY. All memory is deregistered first, so no operation that
 * uses it may be in a stream any more. Poll until FINISHED; if a rank does not come, abort. */
int communicator_finish(struct communicator *c, struct err *e);
/* Ends it now, whatever it does: kernels that wait for other ranks end, streams go on. Waits at most
 * `patience_ms` for that and returns true when it has ended; else poll says ABORTED later. Idempotent. */
bool communicator_abort(struct communicator *c, int patience_ms);
/* Frees it; one that is not FINISHED or ABORTED is aborted first, without waiting. NULL is ignored. */
void communicator_free(struct communicator *c);
