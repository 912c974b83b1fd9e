/* A connection between the only ranks of two hosts. They exchange the elements of small blocking allreduces
 * over it, and barriers, without their engines: one message each way, and no process has to be woken first.
 *
 * A name is exchanged so from its operation LINK_FIRST on, if both ranks can; both say so in the messages of
 * that operation. From then on each operation of the name begins with a message in each direction: the
 * elements; or that the name leaves, when this rank's operation is of another kind. Whoever has the other
 * one's elements and has sent its own has the result. If a message differs from what this rank asks for, or
 * says that the name leaves, the operation and all later ones go to the engine, which finds what is wrong. Both
 * ranks see the same two messages, so both go the same way, whatever comes first.
 *
 * RANK_LINK_STOPS ends it for all names: a rank in hvd_join or hvd_shutdown, and one that forgets names (it
 * would count its operations anew), is not there to answer. The other rank answers with the same; an operation
 * whose elements came before that is finished, any other one goes to the engine.
 *
 * The connection belongs to the job: when it breaks, the ranks wait for the engines to tell why, and fail the
 * job if nothing is told. Nothing that comes over it is trusted.
 *
 * Message, in the machine's byte order, as the elements are: struct link_message, the name and the elements,
 * each filled up to LINK_ALIGNED bytes. */
#pragma once

#include "collectives/client/core.h"
#include "collectives/shm/op.h"

#define LINK_FIRST     32u          /* an operation of a name; those before show that the name comes again */
#define LINK_BYTES_MAX (64u << 10)  /* of the elements; more is faster in the engine, which sends by pieces */

/* What this rank and the other one have said about a tensor. rank_link.c alone uses it. */
struct tensor_link {
    _Atomic enum { LINK_UNTRIED, LINK_TAKES, LINK_LEFT } use;
    uint32_t given; /* the operation whose elements this rank has sent last */
    uint32_t done;  /* the last one that has ended */
    /* What the other rank has sent and nobody has taken yet, by operation % 2: it may be one ahead. */
    struct link_given {
        uint32_t sequence, bytes;
        struct tensor_op op;
        uint8_t *elements; /* NULL: there is no room for them yet */
    } theirs[2];
};

/* What has become of an operation. */
enum link_step { LINK_WAITS, LINK_ENDED, LINK_TO_ENGINE };

/* This rank may have such a connection. */
static inline bool rank_link_is_possible(void)
{
    return !client.solo && client.region.header->rank_link != 0;
}

/* The tensor's operation begins: its elements are sent, if it goes this way: true. Its lock is held. */
bool rank_link_begin(struct tensor *t, bool will_wait);
/* Does what can be done now. The tensor's lock is held. */
enum link_step rank_link_step(struct tensor *t);
/* Sleeps until something comes, `ms` at most; the tensor's operation waits. false: another thread does that
 * for all, and rings. */
bool rank_link_sleep(const struct tensor *t, unsigned ms);
/* Nothing is exchanged any more in this epoch. The caller holds no names_lock. */
void rank_link_stop(void);
/* The end of the epoch. */
void rank_link_close(void);
/* The tensor is forgotten. */
void rank_link_forget(struct tensor_link *link);
