/* A large operation in pieces between ranks that are connected with each other (link/rank_link.h).
 *
 *      to each other rank         from each other rank         when one piece of all ranks is there
 *      pieces of its part    ->   pieces of my part: slots ->  summed into `out`, and from there to all
 *      pieces of my result   ->   pieces of its result: to `out`
 *
 * The part of a rank is link_part_of(), a piece LINK_PIECE_MAX bytes of the part, the last one less. Pieces
 * of one kind come in the order of the part, so a rank knows each piece that is to come, and refuses any
 * other. A rank has STREAM_SLOTS slots for each other one. When they are full, nothing of that rank is read
 * until the piece of the slowest rank has come. Each rank sends results before elements, so the rank that is
 * behind most of all misses nothing that others hold back.
 *
 * A rank begins a piece for another one when as many bytes have come from there as it has begun before, but
 * for a few. Both sides send as many bytes, so not both of the two can be that far ahead.
 * Bytes under way stay in the caches of a machine that ranks share. On a network a rank begins a piece while
 * the end of another one is on its way.
 *
 * A rank has one stream at a time. The ranks have agreed about the operation before; a piece that comes
 * earlier than the last rank's agreement is left where it is.
 *
 * The caller holds the lock of link/rank_link.c. Elements and result are the caller's of the operation, and
 * are not touched after stream_end(). */
#pragma once

#include "collectives/client/link/message.h"
#include "collectives/client/link/sockets.h"

#define STREAM_SLOTS      2u
#define STREAM_AHEAD      (LINK_PIECE_MAX / 2)
#define STREAM_AHEAD_NEAR (4u << 10) /* more than two parts differ by */

/* All ranks have agreed. false: no memory. */
bool stream_begin(const struct link_operation *o);
/* Nothing goes on, whether all has come or not; also where the ranks have not agreed. */
void stream_end(void);
/* Frees the slots that are kept for later streams. */
void stream_free(void);

bool stream_is_complete(void);
/* The first message of the rank is a piece: its bytes go to their place. false: it has to wait, or the
 * connections have broken, since it is not the piece that is to come. */
bool stream_take(uint32_t rank, const struct link_message *m);
/* Bytes have come: counts a piece that is whole. false: none is. */
bool stream_count(uint32_t rank);
/* The rank has sent all that it has to. */
bool stream_has_all(uint32_t rank);
/* A piece of the rank has yet to be summed: those of other ranks may be missing. */
bool stream_is_ahead(uint32_t rank);
/* Sums what has come from all ranks. true: there was something, and slots are free. */
bool stream_sum(void);

/* Sends one piece, or a part of one, to the rank. false: nothing was sent. */
bool stream_send(uint32_t rank);
/* Sends the rest of a piece that has begun, so that another message may follow. false: the socket is full. */
bool stream_send_rest(uint32_t rank);
/* A bit for each rank to which something is to be sent now. */
uint32_t stream_to_send(void);
