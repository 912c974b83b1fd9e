#include "collectives/algorithms/scatter.h"

#define STAGE_BUDGET (32u << 20)

static uint8_t *stage_slot(const struct scatter *r, uint32_t peer, uint64_t offset)
{
    uint32_t index = peer < r->s.c.x->self ? peer : peer - 1;
    return r->s.stage + ((uint64_t)index * r->slots + offset / r->piece % r->slots) * r->piece;
}

/* How far peers may be ahead of the sum. */
static uint64_t grant_limit(const struct scatter *r)
{
    uint64_t limit = r->summed + (uint64_t)r->window * r->piece;
    return limit < r->own.size ? limit : r->own.size;
}

/* Does this host have its elements up to byte `end` of the tensor? */
static bool is_packed(const struct scatter *r, uint64_t end)
{
    struct exchange *x = r->s.c.x;
    return !x->packed || x->packed(x) >= end;
}

static bool send_part(struct scatter *r, uint32_t peer)
{
    struct exchange *x = r->s.c.x;
    struct scatter_peer *p = &r->peer[peer];
    uint64_t at = p->sent;
    if (at >= p->limit)
        return false;
    uint32_t n = segment_piece_at(p->limit, segment_piece(p->segment.size, x->piece_bytes), at);
    if (!is_packed(r, p->segment.offset + at + n))
        return false;
    p->sent += n;
    p->under_way++;
    x->send(x, peer, CHANNEL_REDUCE, at, r->s.c.data + p->segment.offset + at, n);
    return true;
}

static void send_pieces(struct scatter *r, uint32_t peer)
{
    struct scatter_peer *p = &r->peer[peer];
    while (p->begun && p->under_way < EXCHANGE_SENDS_MAX)
        if (!send_part(r, peer) && !(r->follow && r->follow(r, peer)))
            return;
}

/* Hosts begin with different peers, so that nobody is everybody's first. */
static void pump_all(struct scatter *r)
{
    uint32_t self = r->s.c.x->self, hosts = r->s.c.x->hosts;
    for (uint32_t i = 1; i < hosts; i++)
        send_pieces(r, (self + i) % hosts);
}

static bool piece_is_here(const struct scatter *r, uint64_t end)
{
    for (uint32_t i = 0; i < r->s.c.x->hosts; i++)
        if (i != r->s.c.x->self && r->peer[i].got < end)
            return false;
    return true;
}

static void sum_piece(struct scatter *r, uint32_t n)
{
    const uint8_t *own = r->s.c.data + r->own.offset + r->summed;
    for (uint32_t i = 0; i < r->s.c.x->hosts; i++)
        r->s.input[i] = i == r->s.c.x->self ? own : stage_slot(r, i, r->summed);
    state_sum(&r->s, r->own.offset + r->summed, n);
}

/* Half a window at a time: a grant for each piece would double the frames. */
static void grant_more(struct scatter *r)
{
    struct exchange *x = r->s.c.x;
    uint64_t limit = grant_limit(r), step = (uint64_t)((r->window + 1) / 2) * r->piece;
    for (uint32_t i = 0; i < x->hosts; i++) {
        struct scatter_peer *p = &r->peer[i];
        if (i == x->self || limit == p->granted || (limit < r->own.size && limit - p->granted < step))
            continue;
        p->granted = limit;
        x->grant(x, i, limit);
    }
}

static void advance_phase(struct scatter *r)
{
    uint64_t before = r->summed;
    while (r->summed < r->own.size) {
        uint32_t n = segment_piece_at(r->own.size, r->piece, r->summed);
        if (!piece_is_here(r, r->summed + n) || !is_packed(r, r->own.offset + r->summed + n))
            break;
        sum_piece(r, n);
        r->summed += n;
    }
    if (r->summed == before)
        return;
    grant_more(r);
    pump_all(r);
}

struct scatter *scatter_new(const struct collective *c, struct err *e)
{
    return state_new(c, sizeof(struct scatter) + c->x->hosts * sizeof(struct scatter_peer), e);
}

void *scatter_begin(struct scatter *r, struct err *e)
{
    struct exchange *x = r->s.c.x;
    r->own = r->peer[x->self].segment;
    r->piece = segment_piece(r->own.size, x->piece_bytes);
    r->window = segment_window(r->own.size, r->piece, x->hosts - 1, STAGE_BUDGET);
    /* Of a single peer a piece is summed before the next one begins: the slot stays in the cache. This holds
     * where all own elements are there. */
    r->slots = x->hosts == 2 && r->window > 1 && !x->packed ? 1 : r->window;
    if (state_stage(r, (size_t)(x->hosts - 1) * r->slots * r->piece, e) < 0) {
        state_end(r);
        return NULL;
    }
    uint64_t limit = grant_limit(r);
    for (uint32_t i = 1; i < x->hosts; i++) {
        uint32_t peer = (x->self + i) % x->hosts;
        r->peer[peer].granted = limit;
        x->grant(x, peer, limit); /* also when the segment is empty: it says that this host has begun */
    }
    advance_phase(r); /* of one host */
    return r;
}

void scatter_granted(void *state, uint32_t peer, uint64_t limit)
{
    struct scatter *r = state;
    struct scatter_peer *p = &r->peer[peer];
    p->begun = true;
    if (limit > p->segment.size)
        limit = p->segment.size;
    if (limit > p->limit)
        p->limit = limit;
    send_pieces(r, peer);
}

void *scatter_place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                    uint32_t length)
{
    struct scatter *r = state;
    struct scatter_peer *p = &r->peer[peer];
    bool fits = channel == CHANNEL_REDUCE && offset == p->got && offset < p->granted &&
                length == segment_piece_at(r->own.size, r->piece, offset);
    return fits ? stage_slot(r, peer, offset) : NULL;
}

void scatter_arrived(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                     uint32_t length)
{
    struct scatter *r = state;
    r->peer[peer].got += length;
    advance_phase(r);
}

void scatter_sent(void *state, uint32_t peer)
{
    struct scatter *r = state;
    r->peer[peer].under_way--;
    send_pieces(r, peer);
}

void scatter_more(void *state)
{
    advance_phase(state);
    pump_all(state);
}

/* Every peer's first grant is awaited even for no bytes: a grant that comes later would find no operation. */
bool scatter_complete(const void *state)
{
    const struct scatter *r = state;
    if (r->summed < r->own.size)
        return false;
    for (uint32_t i = 0; i < r->s.c.x->hosts; i++) {
        const struct scatter_peer *p = &r->peer[i];
        if (i != r->s.c.x->self && (!p->begun || p->under_way || p->sent < p->segment.size))
            return false;
    }
    return true;
}
