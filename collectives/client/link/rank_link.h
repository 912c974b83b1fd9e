/* Connections between ranks that are the only ones of their hosts. If the callers block or promise to wait,
 * the ranks exchange the elements of allreduces over them, and barriers. No engine has to be woken first, and
 * a message travels from rank to rank. link/way.h has the ways.
 *
 * A name is exchanged so from its operation LINK_FIRST on, if all ranks can; all say so in the messages of
 * that operation. From then on a rank begins each operation of the name with messages: the elements, or that
 * the name leaves, when this rank's operation is of another kind. If a message differs from what this rank
 * asks for, or says that the name leaves, the operation and all later ones of the name go to the engine,
 * which finds what is wrong.
 *
 * In all ways but LINK_ROOT each rank hears of all others. So all ranks see the same messages of an operation
 * and go the same way, whatever comes first. In LINK_ROOT the root alone hears of all, so the root decides:
 * each operation that it has begun ends with its message to all others, which is the result, or says that the
 * name leaves. In LINK_STREAM the ranks' first messages have no elements. A rank that has them all begins to
 * send pieces (link/stream.h), and the operation does not leave any more.
 *
 * LINK_STOPS ends it for all names: a rank in hvd_join or hvd_shutdown, and one that forgets names (it would
 * count their operations anew), is not there to answer. The other ranks say the same. An operation for which
 * all ranks had sent their elements before is finished, any other one goes to the engine. In LINK_ROOT an
 * operation is finished if the root has made its result before it says LINK_STOPS itself.
 *
 * When a connection breaks, the ranks wait for the engines to tell why, and fail the job if nothing is told.
 *
 * Threads: any; one of those that wait reads for all. link/message.h has the messages. */
#pragma once

#include "collectives/client/core.h"
#include "collectives/client/link/way.h"

struct linked_name;

enum link_step { LINK_WAITS, LINK_ENDED, LINK_TO_ENGINE };

/* This rank may have such connections. */
static inline bool rank_link_is_possible(void)
{
    return !client.solo && atomic_load_explicit(&client.region.header->rank_link, memory_order_relaxed);
}

/* An operation of the name begins. `fits`: it could go this way. true: it does, and its elements were sent.
 * *linked: the caller's memory of the name, at first NULL. */
bool rank_link_begin(struct linked_name **linked, const struct link_operation *o, bool fits);
/* Does what can be done now for an operation that goes this way. */
enum link_step rank_link_step(struct linked_name *linked, const struct link_operation *o);
/* Sleeps until something comes, `ms` at most; the operation waits. false: another thread does that for all
 * and rings, or there are no connections. */
bool rank_link_sleep(const struct linked_name *linked, uint32_t sequence, unsigned ms);
/* The operation goes in pieces, which have begun to travel. For the thread that waits for it. */
bool rank_link_is_streaming(const struct linked_name *linked, uint32_t sequence);
/* The operation that goes this way has failed: its caller's memory is not touched any more. */
void rank_link_abandon(struct linked_name *linked);
/* Another thread does not look after the sockets any more. */
bool rank_link_is_unwatched(void);
/* For a rank that waits for something else: takes what has come, so that other ranks can go on sending. */
void rank_link_drain(void);
/* Nothing is exchanged any more in this epoch. */
void rank_link_stop(void);
/* The end of the epoch: what rank_link_begin has given is gone. */
void rank_link_close(void);
