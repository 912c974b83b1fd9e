#include "collectives/algorithms/algorithms.h"

#include "collectives/algorithms/pairwise.h"

static void add_vectors(struct pairwise *p)
{
    struct state *s = &p->s;
    uint64_t bytes = s->c.count * s->c.element_size;
    if (bytes == 0)
        return;
    for (uint32_t i = 0; i < s->c.x->hosts; i++)
        s->input[i] = i == s->c.x->self ? s->c.data : p->peer[i].to;
    state_sum(s, 0, bytes);
}

static void *start_eager(const struct collective *c, struct err *e)
{
    struct pairwise *p = pairwise_new(c, e);
    uint64_t bytes = c->count * c->element_size;
    if (!p)
        return NULL;
    if (state_stage(p, c->x->hosts * bytes, e) < 0) {
        state_end(p);
        return NULL;
    }
    p->finish = add_vectors;
    for (uint32_t i = 0; i < c->x->hosts; i++)
        if (i != c->x->self)
            p->peer[i] = (struct pairwise_peer){
                .from = c->data, .to = bytes ? p->s.stage + i * bytes : NULL, .send = bytes, .take = bytes};
    pairwise_begin(p);
    return p;
}

const struct algorithm allreduce_eager = {.name = "allreduce eager", .start = start_eager, PAIRWISE_METHODS};
