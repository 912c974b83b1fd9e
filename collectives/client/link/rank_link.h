/* Connections between ranks that are the only ones of their hosts. The ranks exchange the elements of small
 * blocking allreduces over them, and barriers, without their engines: each rank sends a message to each other
 * rank, and no process has to be woken first.
 *
 * A name is exchanged so from its operation LINK_FIRST on, if all ranks can; all say so in the messages of
 * that operation. From then on each operation of the name begins with a message to each other rank: the
 * elements; or that the name leaves, when this rank's operation is of another kind. A rank that has the
 * elements of all others, and has sent its own, has the result (or a part: rank_link_in_parts). If a message
 * differs from what this rank asks for, or says that the name leaves, the operation and all later ones of the
 * name go to the engine, which finds what is wrong. All ranks see the same messages of an operation, so all
 * go the same way, whatever comes first.
 *
 * STOPS ends it for all names: a rank in hvd_join or hvd_shutdown, and one that forgets names (it would
 * count their operations anew), is not there to answer. The other ranks say the same. An operation for which
 * all ranks had sent their elements before is finished, any other one goes to the engine.
 *
 * When a connection breaks, the ranks wait for the engines to tell why, and fail the job if nothing is told.
 * Nothing that comes over a connection is trusted.
 *
 * Threads: any; one of those that wait reads for all. Message, in the machine's byte order, as the elements
 * are: struct link_message (rank_link.c), the name and the elements, each filled up to 16 bytes. */
#pragma once

#include "collectives/client/core.h"
#include "collectives/shm/op.h"

#define LINK_FIRST     32u         /* an operation of a name; those before show that the name comes again */
#define LINK_BYTES_MAX (64u << 10) /* of two ranks; more is faster in the engines, which send by pieces */

#define LINK_WHOLE_MAX (32u << 10)  /* of three and more ranks; more bytes go in parts, */
#define LINK_PARTS_MAX (256u << 10) /* up to this */

struct linked_name;

/* Each rank sends to each other one the part that the other one sums, and then its own part of the result.
 * That is two trips, and fewer bytes: a direct allreduce. A rank has to come back for the second trip, so
 * only calls that block go so. */
static inline bool rank_link_in_parts(uint64_t bytes)
{
    return client.size > 2 && bytes > LINK_WHOLE_MAX;
}

/* An operation, as this rank asks for it. */
struct link_operation {
    const char *name;
    uint32_t sequence; /* all ranks count alike */
    struct tensor_op op;
    const void *in;
    void *out; /* may be `in` */
    uint32_t bytes;
    _Atomic uint32_t *carried; /* gets `sequence` when the result is there */
};

enum link_step { LINK_WAITS, LINK_ENDED, LINK_TO_ENGINE };

/* This rank may have such connections. */
static inline bool rank_link_is_possible(void)
{
    return !client.solo && atomic_load_explicit(&client.region.header->rank_link, memory_order_relaxed);
}

/* Bytes of an operation that may go this way. */
static inline uint64_t rank_link_bytes_max(void)
{
    return client.size > 2 ? LINK_PARTS_MAX : LINK_BYTES_MAX;
}

/* An operation of the name begins. `fits`: it could go this way. true: it does, and its elements were sent.
 * *linked: the caller's memory of the name, at first NULL. */
bool rank_link_begin(struct linked_name **linked, const struct link_operation *o, bool fits);
/* Does what can be done now for an operation that goes this way. */
enum link_step rank_link_step(struct linked_name *linked, const struct link_operation *o);
/* Sleeps until something comes, `ms` at most; the operation waits. false: another thread does that for all,
 * and rings. */
bool rank_link_sleep(const struct linked_name *linked, uint32_t sequence, unsigned ms);
/* Another thread does not look after the sockets any more. */
bool rank_link_is_unwatched(void);
/* For a rank that waits for something else: takes what has come, so that other ranks can go on sending. */
void rank_link_drain(void);
/* Nothing is exchanged any more in this epoch. */
void rank_link_stop(void);
/* The end of the epoch: what rank_link_begin has given is gone. */
void rank_link_close(void);
