/* Direct reduce-scatter, then allgather, in one pipeline of pieces.
 *
 * Every element is summed at one place, the owner of its segment, from host 0's value to the last host's: the
 * bits depend on nothing else. The owner stages `window` pieces of each peer and grants more as it sums, so a
 * fast peer waits for a slow one at the sender. A piece that is summed lies in its final place and goes out
 * from there; it lands in the others' final place, which they have sent from already: the owner cannot have
 * summed what they had not sent.
 *
 *   peer p:  REDUCE my part of p's segment, as far as p grants -> p's stage;   GATHER my summed pieces -> p's
 * data
 */
#include "collectives/algorithms/allreduce_direct.h"

#include <stdlib.h>

#include "collectives/algorithms/reduce.h"
#include "collectives/algorithms/segments.h"

#define STAGE_BUDGET (32u << 20)

struct direct_peer {
    struct segment segment; /* what it owns */
    bool begun;             /* it has granted something: its buffers exist */
    uint64_t limit;         /* it takes my REDUCE up to here */
    uint64_t reduce_sent, gather_sent;
    uint64_t reduce_got, gather_got;
    uint64_t granted; /* by me */
    uint32_t under_way;
};

struct direct {
    struct collective c;
    struct segment own;
    uint32_t piece, window; /* of the own segment */
    uint64_t summed;
    uint8_t *stage;
    size_t stage_size;
    const void **input; /* [hosts], for reduce_range */
    struct direct_peer peer[];
};

static uint8_t *stage_slot(const struct direct *d, uint32_t peer, uint64_t offset)
{
    uint32_t index = peer < d->c.x->self ? peer : peer - 1;
    return d->stage + ((uint64_t)index * d->window + offset / d->piece % d->window) * d->piece;
}

/* How far peers may be ahead of the sum. */
static uint64_t grant_limit(const struct direct *d)
{
    uint64_t limit = d->summed + (uint64_t)d->window * d->piece;
    return limit < d->own.size ? limit : d->own.size;
}

static void pump(struct direct *d, uint32_t peer)
{
    struct exchange *x = d->c.x;
    struct direct_peer *p = &d->peer[peer];
    while (p->begun && p->under_way < EXCHANGE_SENDS_MAX) {
        if (p->reduce_sent < p->limit) {
            uint64_t at = p->reduce_sent;
            uint32_t n = segment_piece_at(p->limit, segment_piece(p->segment.size), at);
            p->reduce_sent += n;
            p->under_way++;
            x->send(x, peer, CHANNEL_REDUCE, at, d->c.data + p->segment.offset + at, n);
        } else if (p->gather_sent < d->summed) {
            uint64_t at = p->gather_sent;
            uint32_t n = segment_piece_at(d->own.size, d->piece, at);
            p->gather_sent += n;
            p->under_way++;
            x->send(x, peer, CHANNEL_GATHER, at, d->c.data + d->own.offset + at, n);
        } else {
            break;
        }
    }
}

/* Hosts begin with different peers, so that nobody is everybody's first. */
static void pump_all(struct direct *d)
{
    uint32_t self = d->c.x->self, hosts = d->c.x->hosts;
    for (uint32_t i = 1; i < hosts; i++)
        pump(d, (self + i) % hosts);
}

static bool piece_is_here(const struct direct *d, uint64_t end)
{
    for (uint32_t i = 0; i < d->c.x->hosts; i++)
        if (i != d->c.x->self && d->peer[i].reduce_got < end)
            return false;
    return true;
}

static void sum_piece(struct direct *d, uint32_t n)
{
    uint8_t *own = d->c.data + d->own.offset + d->summed;
    void *out = own;
    for (uint32_t i = 0; i < d->c.x->hosts; i++)
        d->input[i] = i == d->c.x->self ? own : stage_slot(d, i, d->summed);
    struct reduce_job job = {.in = d->input,
                             .inputs = d->c.x->hosts,
                             .out = &out,
                             .outputs = 1,
                             .dtype = d->c.dtype,
                             .op = d->c.op,
                             .divisor = d->c.divisor};
    reduce_range(&job, 0, n / d->c.element_size);
}

/* Half a window at a time: a grant for each piece would double the frames. */
static void grant_more(struct direct *d)
{
    struct exchange *x = d->c.x;
    uint64_t limit = grant_limit(d), step = (uint64_t)((d->window + 1) / 2) * d->piece;
    for (uint32_t i = 0; i < x->hosts; i++) {
        struct direct_peer *p = &d->peer[i];
        if (i == x->self || limit == p->granted || (limit < d->own.size && limit - p->granted < step))
            continue;
        p->granted = limit;
        x->grant(x, i, limit);
    }
}

static void advance(struct direct *d)
{
    uint64_t before = d->summed;
    while (d->summed < d->own.size) {
        uint32_t n = segment_piece_at(d->own.size, d->piece, d->summed);
        if (!piece_is_here(d, d->summed + n))
            break;
        sum_piece(d, n);
        d->c.x->final(d->c.x, d->own.offset + d->summed, n);
        d->summed += n;
    }
    if (d->summed == before)
        return;
    grant_more(d);
    pump_all(d);
}

static void end(void *state)
{
    struct direct *d = state;
    if (d->stage)
        d->c.x->give_back(d->c.x, d->stage, d->stage_size);
    free(d->input);
    free(d);
}

static void *start(const struct collective *c, struct err *e)
{
    struct exchange *x = c->x;
    struct direct *d = calloc(1, sizeof *d + x->hosts * sizeof *d->peer);
    const void **input = calloc(x->hosts, sizeof *input);
    if (!d || !input) {
        free(d);
        free(input);
        err_set(e, ERR_MEMORY, "no memory for an allreduce");
        return NULL;
    }
    d->c = *c;
    d->input = input;
    for (uint32_t i = 0; i < x->hosts; i++)
        d->peer[i].segment = segment_of(c->count, c->element_size, x->hosts, i);
    d->own = d->peer[x->self].segment;
    d->piece = segment_piece(d->own.size);
    d->window = segment_window(d->own.size, d->piece, x->hosts - 1, STAGE_BUDGET);
    d->stage_size = (size_t)(x->hosts - 1) * d->window * d->piece;
    if (d->stage_size > 0 && !(d->stage = x->borrow(x, d->stage_size))) {
        end(d);
        err_set(e, ERR_MEMORY, "no memory for an allreduce");
        return NULL;
    }
    uint64_t limit = grant_limit(d);
    for (uint32_t i = 1; i < x->hosts; i++) {
        uint32_t peer = (x->self + i) % x->hosts;
        d->peer[peer].granted = limit;
        x->grant(x, peer, limit); /* also when the segment is empty: it says that this host has begun */
    }
    advance(d); /* of one host */
    return d;
}

static void granted(void *state, uint32_t peer, uint64_t limit)
{
    struct direct *d = state;
    struct direct_peer *p = &d->peer[peer];
    p->begun = true;
    if (limit > p->segment.size)
        limit = p->segment.size;
    if (limit > p->limit)
        p->limit = limit;
    pump(d, peer);
}

static void *place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                   uint32_t length)
{
    struct direct *d = state;
    struct direct_peer *p = &d->peer[peer];
    if (channel == CHANNEL_REDUCE) {
        bool fits = offset == p->reduce_got && offset < p->granted &&
                    length == segment_piece_at(d->own.size, d->piece, offset);
        return fits ? stage_slot(d, peer, offset) : NULL;
    }
    uint64_t size = p->segment.size;
    bool fits = channel == CHANNEL_GATHER && offset == p->gather_got && offset < size &&
                length == segment_piece_at(size, segment_piece(size), offset);
    return fits ? d->c.data + p->segment.offset + offset : NULL;
}

static void arrived(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                    uint32_t length)
{
    struct direct *d = state;
    struct direct_peer *p = &d->peer[peer];
    if (channel == CHANNEL_GATHER) {
        p->gather_got += length;
        d->c.x->final(d->c.x, p->segment.offset + offset, length);
        return;
    }
    p->reduce_got += length;
    advance(d);
}

static void sent(void *state, uint32_t peer)
{
    struct direct *d = state;
    d->peer[peer].under_way--;
    pump(d, peer);
}

static bool complete(const void *state)
{
    const struct direct *d = state;
    if (d->summed < d->own.size)
        return false;
    for (uint32_t i = 0; i < d->c.x->hosts; i++) {
        const struct direct_peer *p = &d->peer[i];
        if (i != d->c.x->self && (p->under_way || p->reduce_sent < p->segment.size ||
                                  p->gather_got < p->segment.size || p->gather_sent < d->own.size))
            return false;
    }
    return true;
}

const struct algorithm allreduce_direct = {.name = "direct",
                                           .start = start,
                                           .granted = granted,
                                           .place = place,
                                           .arrived = arrived,
                                           .sent = sent,
                                           .complete = complete,
                                           .end = end};
