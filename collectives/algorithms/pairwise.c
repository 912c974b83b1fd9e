#include "collectives/algorithms/pairwise.h"

#include "collectives/algorithms/segments.h"

#define TOTAL_FACTOR 8 /* a host sends at most so many times eager_bytes at once */

bool eager_fits(uint64_t largest, uint64_t total, uint64_t eager_bytes)
{
    return largest <= eager_bytes && total <= eager_bytes * TOTAL_FACTOR;
}

struct pairwise *pairwise_new(const struct collective *c, struct err *e)
{
    return state_new(c, sizeof(struct pairwise) + c->x->hosts * sizeof(struct pairwise_peer), e);
}

static bool is_eager(const struct pairwise *p, uint64_t size)
{
    return size <= p->s.c.x->eager_bytes;
}

static void start_transfers(struct pairwise *p, uint32_t index)
{
    struct exchange *x = p->s.c.x;
    struct pairwise_peer *peer = &p->peer[index];
    while (peer->sent < peer->limit && peer->under_way < EXCHANGE_SENDS_MAX) {
        uint64_t at = peer->sent;
        uint32_t n = segment_piece_at(peer->send, segment_piece(peer->send, x->piece_bytes), at);
        peer->sent += n;
        peer->under_way++;
        x->send(x, index, CHANNEL_PART, at, peer->from + at, n);
    }
}

static bool all_is_done(const struct pairwise *p)
{
    for (uint32_t i = 0; i < p->s.c.x->hosts; i++) {
        const struct pairwise_peer *peer = &p->peer[i];
        if (i != p->s.c.x->self && ((is_eager(p, peer->take) ? !peer->here : peer->got < peer->take) ||
                                    peer->sent < peer->send || peer->under_way))
            return false;
    }
    return true;
}

static void finish_exchange(struct pairwise *p)
{
    if (p->finished || !all_is_done(p))
        return;
    p->finished = true;
    if (p->finish)
        p->finish(p);
}

static void is_final(struct pairwise *p, uint32_t index, uint64_t offset, uint64_t size)
{
    struct exchange *x = p->s.c.x;
    if (p->out && size > 0)
        x->final(x, (uint64_t)(p->peer[index].to - p->out) + offset, size);
}

void pairwise_begin(struct pairwise *p)
{
    struct exchange *x = p->s.c.x;
    is_final(p, x->self, 0, p->peer[x->self].take);
    /* Hosts begin with different peers, so that nobody is everybody's first. */
    for (uint32_t i = 1; i < x->hosts; i++) {
        uint32_t index = (x->self + i) % x->hosts;
        struct pairwise_peer *peer = &p->peer[index];
        if (!is_eager(p, peer->take))
            x->grant(x, index, peer->take);
        if (!is_eager(p, peer->send))
            continue;
        peer->sent = peer->send;
        peer->under_way++;
        x->send(x, index, CHANNEL_EAGER, 0, peer->from, (uint32_t)peer->send);
    }
    finish_exchange(p); /* of one host */
}

void pairwise_granted(void *state, uint32_t index, uint64_t limit)
{
    struct pairwise *p = state;
    struct pairwise_peer *peer = &p->peer[index];
    if (limit > peer->send)
        limit = peer->send;
    if (limit > peer->limit)
        peer->limit = limit;
    start_transfers(p, index);
}

void *pairwise_place(void *state, uint32_t index, enum exchange_channel channel, uint64_t offset,
                     uint32_t length)
{
    struct pairwise *p = state;
    struct pairwise_peer *peer = &p->peer[index];
    if (is_eager(p, peer->take)) {
        bool fits = channel == CHANNEL_EAGER && offset == 0 && length == peer->take && !peer->here;
        return !fits ? NULL : length > 0 ? peer->to : state; /* no bytes: any place will do */
    }
    bool fits =
        channel == CHANNEL_PART && offset == peer->got && offset < peer->take &&
        length == segment_piece_at(peer->take, segment_piece(peer->take, p->s.c.x->piece_bytes), offset);
    return fits ? peer->to + offset : NULL;
}

void pairwise_arrived(void *state, uint32_t index, enum exchange_channel channel, uint64_t offset,
                      uint32_t length)
{
    struct pairwise *p = state;
    p->peer[index].here = true;
    p->peer[index].got += length;
    is_final(p, index, offset, length);
    finish_exchange(p);
}

void pairwise_sent(void *state, uint32_t index)
{
    struct pairwise *p = state;
    p->peer[index].under_way--;
    start_transfers(p, index);
    finish_exchange(p);
}

bool pairwise_complete(const void *state)
{
    return ((const struct pairwise *)state)->finished;
}
