/* The ways of the elements of an operation that crosses hosts (pure).
 *
 * A host has one buffer for an operation (an alltoall has two), whatever its ranks. Before the network the
 * members' inputs are packed into it, after it the result is spread to the members' outputs; between, the
 * backend moves parts, one for each host. A route is all of that as numbers: the parts, and two lists of
 * copies that somebody executes as it has time. Elements throughout, never bytes.
 *
 *   kind            pack                       data and got hold                  spread
 *   ALLREDUCE       (a reduction, no copy)     all elements                       to all members
 *   BROADCAST       the root's, if it is here  all elements                       to all members
 *   ALLGATHER       rows, to their place       all rows of all ranks, by host     to all members
 *   REDUCESCATTER   (reductions: of from_at,   all parts, by host                 to each member its part
 *                    to to_at)
 *   ALLTOALL        rows for other hosts       data: what leaves; got: what comes  from got to each member
 *
 * "By host" is the order of ranks too where hosts have ranks that follow one another. The users'
 * inputs, outputs and tables are always in the order of ranks.
 *
 * A reduction may also keep the elements of all ranks apart until they are at their owner (route_unreduced,
 * before the kind's own route): each host owns some elements and gets those of every rank. The buffer
 * `leaves` is in the order of hosts, then members; got in that of hosts, then ranks, but for this host's own,
 * which come last.
 *
 * In an alltoall the members' rows for one another go to their outputs at once; data is in the order of
 * hosts, then senders, got in that of hosts, senders, receivers.
 *
 * For ragged kinds the hosts first exchange a table: a row for each rank, of route_width numbers: how many
 * elements fit into its output, then how many it gives (allgather) or gives each rank (alltoall). Every host
 * checks the same table and so says the same. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum route_buffer {
    ROUTE_IN,    /* a member's input */
    ROUTE_OUT,   /* a member's output */
    ROUTE_OUTS,  /* every member's output, at the same place */
    ROUTE_DATA,  /* this host's buffer */
    ROUTE_GOT,   /* received elements, in a buffer of their own */
    ROUTE_LEAVES /* sent elements, when the result has a buffer of its own */
};

struct route_copy {
    enum route_buffer from, to;
    uint32_t from_member, to_member;
    uint64_t from_at, to_at, count;
};

/* A host's ranks are the `ranks` from `first` in the order. */
struct route_host {
    uint32_t first, ranks;
};

struct route_shape {
    const struct route_host *host; /* [hosts], without gaps; read during the calls only */
    const uint32_t *order;         /* [size], ranks by host, ascending within each; NULL: 0, 1, ... */
    uint32_t hosts, self;
    uint32_t size; /* ranks */
};

struct route {
    uint64_t *part, *part_in; /* [hosts], as backend.h has them */
    uint64_t data, got;       /* elements of the buffers */
    bool in_order;            /* allgather: data is the result */
    struct route_copy *pack, *spread;
    uint32_t packs, spreads;
};

/* Numbers in a rank's row of the table; 0: the kind has none. */
size_t route_width(uint8_t kind, uint32_t size);
/* NULL: it can be. Else what is wrong, to follow "tensor x: ", in `text`. `row`: elements of a row, for the
 * sentence; most: elements that no output may have more of; rank: how the ranks are called in it. */
const char *route_wrong(uint8_t kind, uint32_t size, const uint32_t *rank, const uint64_t *table,
                        uint64_t row, uint64_t most, char *text, size_t text_size);
/* `numbers`: the table, checked (ragged kinds); each rank's part (REDUCESCATTER); else the one count. NULL
 * with *e: no memory. */
struct route *route_new(uint8_t kind, const struct route_shape *shape, const uint64_t *numbers,
                        struct err *e);
/* `segment`: [hosts] how many elements each host owns: the first ones the first, and so on; or, with of_rank
 * (a reducescatter), those of its ranks' parts. */
struct route *route_unreduced(const struct route_shape *shape, const uint64_t *segment,
                              const uint64_t *of_rank, struct err *e);
/* The place in `got` of the elements of rank order[index]. */
uint64_t route_unreduced_at(const struct route_shape *shape, const uint64_t *segment, uint32_t index);
void route_free(struct route *route);
/* How many elements `to` gets of `from`, by the table. */
uint64_t route_between(uint8_t kind, uint32_t size, const uint64_t *table, uint32_t from, uint32_t to);
