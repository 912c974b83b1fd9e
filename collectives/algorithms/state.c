#include "collectives/algorithms/state.h"

#include <stdlib.h>

#include "collectives/algorithms/reduce.h"

void *state_new(const struct collective *c, size_t size, struct err *e)
{
    struct state *s = calloc(1, size);
    if (s)
        s->input = calloc(c->x->hosts, sizeof *s->input);
    if (!s || !s->input) {
        free(s);
        err_set(e, ERR_MEMORY, "no memory for an operation between hosts");
        return NULL;
    }
    s->c = *c;
    return s;
}

int state_stage(void *state, size_t size, struct err *e)
{
    struct state *s = state;
    if (size == 0)
        return 0;
    s->stage = s->c.x->borrow(s->c.x, size);
    s->stage_size = size;
    return s->stage ? 0 : err_set(e, ERR_MEMORY, "no memory for an operation between hosts");
}

void state_sum(struct state *s, void *out, uint64_t bytes)
{
    struct reduce_job job = {.in = s->input,
                             .inputs = s->c.x->hosts,
                             .out = &out,
                             .outputs = 1,
                             .dtype = s->c.dtype,
                             .op = s->c.op,
                             .divisor = s->c.divisor,
                             .postscale = s->c.postscale};
    reduce_range(&job, 0, bytes / s->c.element_size);
}

void state_end(void *state)
{
    struct state *s = state;
    if (s->stage)
        s->c.x->give_back(s->c.x, s->stage, s->stage_size);
    free(s->input);
    free(s);
}
