/* The ways of an operation between ranks that are connected with each other (link/rank_link.h). (pure)
 *
 *   LINK_WHOLE  each rank sends its elements to each other one, and makes the whole result: one trip
 *   LINK_PARTS  each rank sends to each other one the part that the other one makes, and then its own part
 *               of the result: two trips, and fewer bytes (a direct allreduce)
 *   LINK_ROOT   all ranks send their elements to one, which makes the result and sends it to all: two trips,
 *               and the fewest messages
 *   LINK_STREAM large: each rank makes a part of the result, as in LINK_PARTS, but piece by piece. The ranks
 *               agree first. Then elements go from the caller's memory into the sockets, and results from the
 *               sockets into the caller's memory (link/stream.h)
 *
 * A message takes the time of a processor at both ends. Ranks with processors of their own send and read at
 * the same time, so the trips count. If the ranks of several hosts share processors, the messages of all
 * ranks add up. All ways add in the order of ranks, so the bits are the same. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/shm/op.h"

#define LINK_FIRST 32u /* an operation of a name; those before show that the name comes again */

#define LINK_BYTES_MAX (64u << 10)  /* of two ranks */
#define LINK_WHOLE_MAX (32u << 10)  /* of three and more ranks; more bytes go in parts, */
#define LINK_PARTS_MAX (512u << 10) /* up to this; with more ranks, as long as a part has no more than */
#define LINK_PART_MAX  (128u << 10)
#define LINK_ROOT_MAX  (64u << 10)  /* of three and more ranks that share processors */
#define LINK_STREAM_2  (512u << 10) /* of two ranks; more is a stream. Engines have fewer trips */

/* LINK_WHOLE is 0 in messages: release 0.1.0 knows no other one, and sends zeros there. */
enum link_way { LINK_WHOLE = 0, LINK_PARTS, LINK_ROOT, LINK_STREAM };

/* An operation, as this rank asks for it. */
struct link_operation {
    const char *name;
    uint32_t sequence; /* all ranks count alike */
    struct tensor_op op;
    const void *in;
    void *out; /* may be `in` */
    size_t bytes;
    bool waits_later;          /* its caller may do something else before it waits for the result */
    _Atomic uint32_t *carried; /* gets `sequence` when the result is there */
};

/* Elements of an operation. */
struct link_part {
    size_t count, at, bytes; /* at: the offset of the first one, in bytes */
};

/* crowded: the ranks of several hosts share processors; all ranks know the same. In two trips a rank has to
 * come back for the second one, so only calls that block or wait next go so. */
enum link_way link_way_of(const struct link_operation *o, uint32_t ranks, bool crowded);
/* The elements that the rank reduces. */
struct link_part link_part_of(const struct link_operation *o, enum link_way way, uint32_t rank,
                              uint32_t ranks);

/* Reduces `count` elements of all ranks in the order of ranks, into `out`, which may be one of in[ranks]. */
void link_reduce(const struct link_operation *o, const void *const *in, uint32_t ranks, void *out,
                 size_t count);

/* The rank that makes the result of LINK_ROOT. It has the most to do, so all ranks take turns: the kernel
 * gives a processor to the process that has used less of it. */
static inline uint32_t link_root(uint32_t sequence, uint32_t ranks)
{
    return (sequence - LINK_FIRST) % ranks;
}

/* The most bytes of an operation that do not go as a stream. */
static inline size_t link_bytes_max(uint32_t ranks)
{
    if (ranks == 2)
        return LINK_BYTES_MAX;
    return ranks * LINK_PART_MAX > LINK_PARTS_MAX ? ranks * LINK_PART_MAX : LINK_PARTS_MAX;
}

/* More bytes than this go as a stream. */
static inline size_t link_stream_above(uint32_t ranks)
{
    return ranks == 2 ? LINK_STREAM_2 : link_bytes_max(ranks);
}

/* An operation of so many bytes may go from rank to rank. */
static inline bool link_takes_bytes(size_t bytes, uint32_t ranks)
{
    return bytes <= link_bytes_max(ranks) || bytes > link_stream_above(ranks);
}

/* The other ranks send elements to this one. */
static inline bool link_way_takes(enum link_way way, uint32_t rank, uint32_t root)
{
    return way != LINK_ROOT || rank == root;
}

/* The rank sends what it has reduced to all others. */
static inline bool link_way_makes(enum link_way way, uint32_t rank, uint32_t root)
{
    return way == LINK_PARTS || (way == LINK_ROOT && rank == root);
}
