/* The reduction that leaves each host its own segment: all of a reducescatter, the first half of an
 * allreduce.
 *
 * Every element is summed at one place, the owner of its segment, from host 0's value to the last host's: the
 * bits depend on nothing else. The owner grants each peer `window` pieces more than it has summed, so a fast
 * peer waits for a slow one at the sender, and has as many slots for each, or one where a piece is summed as
 * soon as it is here. If the own elements come bit by bit (`packed`), a piece waits for them. */
#pragma once

#include "collectives/algorithms/segments.h"
#include "collectives/algorithms/state.h"

struct scatter_peer {
    struct segment segment; /* owned by the peer */
    bool begun;             /* the peer has granted bytes, so its buffers exist */
    uint64_t limit;         /* the peer takes my part of its segment up to here */
    uint64_t sent, got;
    uint64_t granted;                 /* by me */
    uint64_t gather_sent, gather_got; /* of the step after the scatter */
    uint32_t under_way;
};

struct scatter {
    struct state s;
    struct segment own;
    uint32_t piece, window; /* of the own segment */
    uint32_t slots;         /* for pieces of each peer that are not summed yet */
    uint64_t summed;
    /* The step after the scatter: sends one frame to this peer; false: there is nothing to send. NULL:
     * nothing follows. */
    bool (*follow)(struct scatter *r, uint32_t peer);
    struct scatter_peer peer[];
};

/* The segments are still to be filled in. NULL with *e. */
struct scatter *scatter_new(const struct collective *c, struct err *e);
/* When they are. Returns r, or NULL with *e (it is freed then). */
void *scatter_begin(struct scatter *r, struct err *e);

void scatter_granted(void *state, uint32_t peer, uint64_t limit);
void *scatter_place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                    uint32_t length);
void scatter_arrived(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                     uint32_t length);
void scatter_sent(void *state, uint32_t peer);
void scatter_more(void *state);
bool scatter_complete(const void *state);
