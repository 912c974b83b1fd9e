/* Direct reduce-scatter, then allgather, in one pipeline of pieces.
 *
 * A piece that is summed (scatter.h) lies in its final place and goes out from there; it lands in the others'
 * final place, which they have sent from already: the owner cannot have summed what they had not sent. When
 * the result is rounded, that place is in `out`, and a piece has half of its bytes on the second way.
 *
 *   to peer p:  REDUCE  my part of p's segment, as far as p grants  -> p's stage
 *               GATHER  my summed pieces                            -> p's data
 */
#include "collectives/algorithms/algorithms.h"

#include "collectives/algorithms/scatter.h"

static bool send_summed(struct scatter *r, uint32_t peer)
{
    struct exchange *x = r->s.c.x;
    struct scatter_peer *p = &r->peer[peer];
    uint64_t at = p->gather_sent;
    if (at >= r->summed)
        return false;
    uint32_t n = segment_piece_at(r->own.size, r->piece, at);
    p->gather_sent += n;
    p->under_way++;
    x->send(x, peer, CHANNEL_GATHER, state_result_bytes(&r->s, at),
            state_result(&r->s) + state_result_bytes(&r->s, r->own.offset + at),
            (uint32_t)state_result_bytes(&r->s, n));
    return true;
}

static void *start_direct(const struct collective *c, struct err *e)
{
    struct scatter *r = scatter_new(c, e);
    if (!r)
        return NULL;
    r->follow = send_summed;
    for (uint32_t i = 0; i < c->x->hosts; i++)
        r->peer[i].segment = segment_of(c->count, c->element_size, c->x->hosts, i);
    return scatter_begin(r, e);
}

static void *find_place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                        uint32_t length)
{
    struct scatter *r = state;
    struct scatter_peer *p = &r->peer[peer];
    uint64_t size = p->segment.size;
    if (channel != CHANNEL_GATHER)
        return scatter_place(state, peer, channel, offset, length);
    if (p->gather_got >= size || offset != state_result_bytes(&r->s, p->gather_got))
        return NULL;
    uint32_t n = segment_piece_at(size, segment_piece(size, r->s.c.x->piece_bytes), p->gather_got);
    if (length != state_result_bytes(&r->s, n))
        return NULL;
    return state_result(&r->s) + state_result_bytes(&r->s, p->segment.offset) + offset;
}

static void take_arrival(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                         uint32_t length)
{
    struct scatter *r = state;
    struct scatter_peer *p = &r->peer[peer];
    if (channel != CHANNEL_GATHER) {
        scatter_arrived(state, peer, channel, offset, length);
        return;
    }
    p->gather_got += segment_piece_at(p->segment.size, segment_piece(p->segment.size, r->s.c.x->piece_bytes),
                                      p->gather_got);
    r->s.c.x->final(r->s.c.x, state_result_bytes(&r->s, p->segment.offset) + offset, length);
}

static bool is_complete(const void *state)
{
    const struct scatter *r = state;
    for (uint32_t i = 0; i < r->s.c.x->hosts; i++)
        if (i != r->s.c.x->self &&
            (r->peer[i].gather_got < r->peer[i].segment.size || r->peer[i].gather_sent < r->own.size))
            return false;
    return scatter_complete(state);
}

const struct algorithm allreduce_direct = {.name = "allreduce direct",
                                           .start = start_direct,
                                           .granted = scatter_granted,
                                           .place = find_place,
                                           .arrived = take_arrival,
                                           .sent = scatter_sent,
                                           .more = scatter_more,
                                           .complete = is_complete,
                                           .end = state_end};
