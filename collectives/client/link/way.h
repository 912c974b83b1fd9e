/* The ways of an operation between ranks that are connected with each other (link/rank_link.h). (pure)
 *
 *   LINK_WHOLE  each rank sends its elements to each other one, and makes the whole result: one trip
 *   LINK_PARTS  each rank sends to each other one the part that the other one makes, and then its own part
 *               of the result: two trips, and fewer bytes (a direct allreduce)
 *   LINK_ROOT   all ranks send their elements to one, which makes the result and sends it to all: two trips,
 *               and the fewest messages
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

#define LINK_BYTES_MAX (64u << 10)  /* of two ranks; more is faster in the engines, which send by pieces */
#define LINK_WHOLE_MAX (32u << 10)  /* of three and more ranks; more bytes go in parts, */
#define LINK_PARTS_MAX (512u << 10) /* up to this; with more ranks, as long as a part has no more than */
#define LINK_PART_MAX  (128u << 10)
#define LINK_ROOT_MAX  (64u << 10) /* of three and more ranks that share processors */

/* LINK_WHOLE is 0 in messages: release 0.1.0 knows no other one, and sends zeros there. */
enum link_way { LINK_WHOLE = 0, LINK_PARTS, LINK_ROOT };

/* An operation, as this rank asks for it. */
struct link_operation {
    const char *name;
    uint32_t sequence; /* all ranks count alike */
    struct tensor_op op;
    const void *in;
    void *out; /* may be `in` */
    uint32_t bytes;
    bool has_handle;           /* its caller may do something else before it waits for the result */
    _Atomic uint32_t *carried; /* gets `sequence` when the result is there */
};

/* Elements of an operation. */
struct link_part {
    size_t count, at, bytes; /* at: the offset of the first one, in bytes */
};

/* crowded: the ranks of several hosts share processors; all ranks know the same. In two trips a rank has to
 * come back for the second one, so only calls that block go so. */
enum link_way link_way_of(const struct link_operation *o, uint32_t ranks, bool crowded);
/* The elements that the rank reduces. */
struct link_part link_part_of(const struct link_operation *o, enum link_way way, uint32_t rank,
                              uint32_t ranks);

/* The rank that makes the result of LINK_ROOT. It has the most to do, so all ranks take turns: the kernel
 * gives a processor to the process that has used less of it. */
static inline uint32_t link_root(uint32_t sequence, uint32_t ranks)
{
    return (sequence - LINK_FIRST) % ranks;
}

/* Bytes of an operation that may go from rank to rank. */
static inline uint32_t link_bytes_max(uint32_t ranks)
{
    if (ranks == 2)
        return LINK_BYTES_MAX;
    return ranks * LINK_PART_MAX > LINK_PARTS_MAX ? ranks * LINK_PART_MAX : LINK_PARTS_MAX;
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
