/* Everybody sends something to everybody: what allgather, alltoall and all small operations are made of.
 *
 * The data from one host to another is a span of the sender's memory and a place of the receiver's. Both
 * know its size, and by it how it travels: up to the exchange's eager_bytes at once and in one frame (also of
 * no bytes, which says that this host has begun), else in pieces when the receiver has granted it. So two
 * hosts choose alike without knowing what others do, and nobody ends an operation before all have begun. */
#pragma once

#include "collectives/algorithms/state.h"

#define EAGER_BYTES_DEFAULT (16u << 10)

struct pairwise_peer {
    const uint8_t *from; /* this host's data for the peer */
    uint8_t *to;         /* the place for the peer's data */
    uint64_t send, take; /* bytes of both */
    uint64_t limit;      /* the peer takes my bytes up to here */
    uint64_t sent, got;
    bool here; /* the peer's only frame has arrived */
    uint32_t under_way;
};

struct pairwise {
    struct state s;
    uint8_t *out; /* the base of the offsets of `final`; NULL: arriving bytes are not the result yet */
    /* The last step, when all bytes have arrived and were sent, so that own data may change. NULL: none. */
    void (*finish)(struct pairwise *p);
    bool finished;
    struct pairwise_peer peer[];
};

/* No peer has anything to send or to take yet. NULL with *e. */
struct pairwise *pairwise_new(const struct collective *c, struct err *e);
/* When all peers are filled in. */
void pairwise_begin(struct pairwise *p);

void pairwise_granted(void *state, uint32_t peer, uint64_t limit);
void *pairwise_place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                     uint32_t length);
void pairwise_arrived(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                      uint32_t length);
void pairwise_sent(void *state, uint32_t peer);
bool pairwise_complete(const void *state);

#define PAIRWISE_METHODS                                                                                     \
    .eager = true, .granted = pairwise_granted, .place = pairwise_place, .arrived = pairwise_arrived,        \
    .sent = pairwise_sent, .complete = pairwise_complete, .end = state_end

/* Is it worth sending everything at once? The largest of the messages, and what one host sends in all. */
bool eager_fits(uint64_t largest, uint64_t total, uint64_t eager_bytes);
