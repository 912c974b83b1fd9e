#include "collectives/algorithms/algorithms.h"

#include <string.h>

#include "collectives/algorithms/pairwise.h"

static void *start_alltoall(const struct collective *c, struct err *e)
{
    struct pairwise *p = pairwise_new(c, e);
    uint64_t from = 0, to = 0;
    if (!p)
        return NULL;
    p->out = c->out;
    for (uint32_t i = 0; i < c->x->hosts; i++) {
        uint64_t send = c->part[i] * c->element_size, take = c->part_in[i] * c->element_size;
        p->peer[i] =
            (struct pairwise_peer){.from = c->data + from, .to = c->out + to, .send = send, .take = take};
        from += send;
        to += take;
    }
    const struct pairwise_peer *own = &p->peer[c->x->self];
    if (own->take > 0)
        memcpy(own->to, own->from, own->take);
    pairwise_begin(p);
    return p;
}

const struct algorithm alltoall = {.name = "alltoall", .start = start_alltoall, PAIRWISE_METHODS};
