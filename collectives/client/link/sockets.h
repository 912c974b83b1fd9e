/* The connections to the only ranks of the other hosts, and the messages in them (link/rank_link.h).
 *
 * Nothing that comes over a connection is trusted: a message is whole, has its checksum and lengths that
 * fit, or the connections break. The bytes of a piece have no checksum, and come to no other place than that
 * of the piece.
 *
 * The caller holds the lock of link/rank_link.c. */
#pragma once

#include <poll.h>

#include "collectives/client/core.h"
#include "collectives/client/link/message.h"
#include "collectives/shm/worker_socket.h"

enum link_state { LINK_UNKNOWN, LINK_UP, LINK_NONE, LINK_BROKEN };

enum link_state link_state(void);
uint32_t link_ranks(void);
/* The ranks of several hosts share processors; or at least a machine. All ranks know the same. */
bool link_is_crowded(void);
bool link_is_near(void);
/* Asks the engine, once in an epoch. `declines`: this rank is not going to use the connections. */
void link_open(bool declines);
void link_close(void);
/* Nothing goes on. why NULL: the engines know, if another rank or its host has gone. */
void link_break(const char *why);
/* Ends the job if the engines have told nothing. For a rank that cannot go on. */
void link_tell_loss(void);

/* Sends what is left behind *sent bytes. false: the socket is full. */
bool link_send(const struct link_out *out, uint32_t rank, size_t *sent);

/* Reads once what is there. false: nothing was, the rank is held, or the connections have broken. */
bool link_receive(uint32_t rank);
/* The last link_receive has read all that was there. */
bool link_is_drained(uint32_t rank);
/* Pieces are coming: reads no more than the next message into memory of messages. */
void link_expect_pieces(bool coming);
/* The first message is a piece. Drops the message; the bytes that follow go to `place`, which must stay valid
 * until none are left. */
void link_place(uint32_t rank, void *place);
/* Bytes of that piece that have yet to come. */
size_t link_place_left(uint32_t rank);
/* Reads nothing of the rank: its first message has to wait. */
void link_hold(uint32_t rank, bool held);
/* The first whole message of the rank, until link_drop. NULL: none. */
const struct link_message *link_first(uint32_t rank);
void link_drop(uint32_t rank);
/* Instead of link_drop: the memory of the message becomes the caller's (link_room_put), if nothing else is in
 * that memory. NULL: something is, there is no memory, or the connections have broken. */
void *link_keep(uint32_t rank);

/* For poll(): the sockets of all other ranks, and for room in those of `full`, a bit each rank. Returns how
 * many. */
nfds_t link_list(struct pollfd to[LINK_HOSTS_MAX], uint32_t full);
/* For poll(), too: link_wake() ends it. Then link_woke() is due. */
struct pollfd link_bell(void);
void link_wake(void);
void link_woke(void);

static inline bool link_is_other(uint32_t rank)
{
    return rank != (uint32_t)client.rank;
}
