#include "collectives/algorithms/algorithms.h"

#include "collectives/algorithms/pairwise.h"

#define EAGER_FACTOR 64 /* of two hosts: as many bytes either way */
#define TRIPS_FACTOR 6  /* so many times eager_bytes take as long as two trips */

bool eager_allreduce_fits(uint64_t bytes, const struct exchange *x)
{
    uint64_t hosts = x->hosts;
    uint64_t more = hosts > 2 ? (hosts - 1) * (hosts - 2) * bytes / hosts : 0;
    return bytes <= x->eager_bytes * EAGER_FACTOR && more <= x->eager_bytes * TRIPS_FACTOR;
}

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
    if (bytes > c->x->eager_bytes)
        c->x->eager_bytes = bytes;
    for (uint32_t i = 0; i < c->x->hosts; i++)
        if (i != c->x->self)
            p->peer[i] = (struct pairwise_peer){
                .from = c->data, .to = bytes ? p->s.stage + i * bytes : NULL, .send = bytes, .take = bytes};
    pairwise_begin(p);
    return p;
}

const struct algorithm allreduce_eager = {.name = "allreduce eager", .start = start_eager, PAIRWISE_METHODS};
