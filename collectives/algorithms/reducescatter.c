#include "collectives/algorithms/algorithms.h"

#include "collectives/algorithms/pairwise.h"
#include "collectives/algorithms/scatter.h"

static void *start_direct(const struct collective *c, struct err *e)
{
    struct scatter *r = scatter_new(c, e);
    uint64_t at = 0;
    if (!r)
        return NULL;
    for (uint32_t i = 0; i < c->x->hosts; i++) {
        r->peer[i].segment = (struct segment){at, c->part[i] * c->element_size};
        at += r->peer[i].segment.size;
    }
    return scatter_begin(r, e);
}

static void sum_parts(struct pairwise *p)
{
    struct state *s = &p->s;
    struct exchange *x = s->c.x;
    struct pairwise_peer *own = &p->peer[x->self];
    if (own->take == 0)
        return;
    for (uint32_t i = 0; i < x->hosts; i++)
        s->input[i] = p->peer[i].to;
    state_sum(s, (uint64_t)(own->to - s->c.data), own->take);
}

static void *start_eager(const struct collective *c, struct err *e)
{
    struct pairwise *p = pairwise_new(c, e);
    uint64_t at = 0, own = c->part[c->x->self] * c->element_size;
    if (!p)
        return NULL;
    if (state_stage(p, c->x->hosts * own, e) < 0) {
        state_end(p);
        return NULL;
    }
    p->finish = sum_parts;
    for (uint32_t i = 0; i < c->x->hosts; i++) {
        uint64_t size = c->part[i] * c->element_size;
        p->peer[i] = (struct pairwise_peer){
            .from = c->data + at, .to = own ? p->s.stage + i * own : NULL, .send = size, .take = own};
        if (i == c->x->self)
            p->peer[i].to = c->data + at;
        at += size;
    }
    pairwise_begin(p);
    return p;
}

const struct algorithm reducescatter_direct = {.name = "reducescatter direct",
                                               .start = start_direct,
                                               .granted = scatter_granted,
                                               .place = scatter_place,
                                               .arrived = scatter_arrived,
                                               .sent = scatter_sent,
                                               .complete = scatter_complete,
                                               .end = state_end};

const struct algorithm reducescatter_eager = {
    .name = "reducescatter eager", .start = start_eager, PAIRWISE_METHODS};
