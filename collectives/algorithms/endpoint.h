/* An algorithm that moves data between hosts, and what it moves it with.
 *
 * Sans I/O: a backend tells an algorithm what arrived, what was sent and what a peer allows; the algorithm
 * asks it to send. Every method is re-entrant progress: it does what can be done and returns. A host asks for
 * data by a grant ("you may send me up to byte `limit`"), so that data never comes before there is a place
 * for it; only up to eager_bytes are sent without. A peer that does not keep to this is refused.
 *
 * Hosts are the participants of the operation, by index. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"
#include "common/base/err.h"

#define EXCHANGE_SENDS_MAX 8 /* frames that one operation has under way to one peer */

enum exchange_channel {
    CHANNEL_REDUCE = 1,
    CHANNEL_GATHER = 2,
    CHANNEL_EAGER = 3,
    CHANNEL_BROADCAST = 4,
    CHANNEL_PART = 5
};

/* The services of a backend for an algorithm. A send or grant to a host that is lost does nothing: the
 * backend ends the operation then. */
struct exchange {
    uint32_t self, hosts;
    uint64_t eager_bytes; /* of one message that is sent without asking; the same on every host */
    uint32_t piece_bytes; /* of the largest piece of a longer one; the same on every host */
    /* `data` stays valid and unchanged until the algorithm's `sent` for that peer; sends to one peer are sent
     * in order. */
    void (*send)(struct exchange *x, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                 const void *data, uint32_t length);
    void (*grant)(struct exchange *x, uint32_t peer, uint64_t limit);
    /* Bytes of `data`, from its beginning, that hold this host's elements already: NULL: all. Only of
     * an algorithm with `more`. */
    uint64_t (*packed)(struct exchange *x);
    /* Memory for the time of one operation, aligned to 64, not cleared; NULL: there is none. */
    void *(*borrow)(struct exchange *x, size_t size);
    void (*give_back)(struct exchange *x, void *memory, size_t size);
    /* Bytes of the result are final. */
    void (*final)(struct exchange *x, uint64_t offset, uint64_t size);
};

/* One operation. Works in place on `data`, an alltoall from `data` to `out`; so does a reduction whose result
 * is rounded. */
struct collective {
    struct exchange *x;
    uint8_t *data, *out;
    uint64_t count;
    const uint64_t
        *part; /* [hosts] elements; allgather: of each; reducescatter: for each; alltoall: mine to each */
    const uint64_t *part_in; /* alltoall: of each to me */
    size_t element_size;     /* a power of two up to 64; 1 for a barrier and where it does not matter */
    hvd_dtype dtype;
    hvd_dtype rounded; /* a reduction of float32: the 16-bit type of the result; 0: it is not rounded */
    hvd_op op;
    uint32_t divisor; /* 0 or 1: none */
    double postscale; /* 0 or 1: none */
    uint32_t root;    /* host */
};

struct algorithm {
    const char *name;
    bool eager; /* data may come before start */
    /* The state; NULL with *e when there is no memory. */
    void *(*start)(const struct collective *c, struct err *e);
    void (*granted)(void *state, uint32_t peer, uint64_t limit);
    /* The place for these bytes; NULL: the peer may not send them. */
    void *(*place)(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                   uint32_t length);
    void (*arrived)(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                    uint32_t length);
    void (*sent)(void *state, uint32_t peer);
    /* `packed` has grown. NULL: data must be there at the start. */
    void (*more)(void *state);
    bool (*complete)(const void *state);
    void (*end)(void *state); /* frees it, complete or not */
};
