/* Direct, not a ring: the bytes over each host's wire are the same, no part waits for another host on its
 * way, and ragged parts cost nothing more. */
#include "collectives/algorithms/algorithms.h"

#include "collectives/algorithms/pairwise.h"

static void *start_allgather(const struct collective *c, struct err *e)
{
    struct pairwise *p = pairwise_new(c, e);
    uint64_t at = 0, own = c->part[c->x->self] * c->element_size;
    if (!p)
        return NULL;
    p->out = c->data;
    for (uint32_t i = 0; i < c->x->hosts; i++) {
        uint64_t size = c->part[i] * c->element_size;
        p->peer[i] = (struct pairwise_peer){.to = c->data + at, .send = own, .take = size};
        at += size;
    }
    for (uint32_t i = 0; i < c->x->hosts; i++)
        p->peer[i].from = p->peer[c->x->self].to;
    pairwise_begin(p);
    return p;
}

const struct algorithm allgather = {.name = "allgather", .start = start_allgather, PAIRWISE_METHODS};
