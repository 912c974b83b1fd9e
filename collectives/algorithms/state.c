#include "collectives/algorithms/state.h"

#include <stdlib.h>

#include "collectives/kernels/reduce.h"

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

uint8_t *state_result(const struct state *s)
{
    return s->c.rounded ? s->c.out : s->c.data;
}

uint64_t state_result_bytes(const struct state *s, uint64_t bytes)
{
    return s->c.rounded ? bytes / sizeof(float) * sizeof(uint16_t) : bytes;
}

void state_sum(struct state *s, uint64_t at, uint64_t bytes)
{
    uint64_t offset = state_result_bytes(s, at);
    void *out = state_result(s) + offset;
    struct reduce_job job = {.in = s->input,
                             .inputs = s->c.x->hosts,
                             .out = &out,
                             .outputs = 1,
                             .dtype = s->c.dtype,
                             .op = s->c.op,
                             .divisor = s->c.divisor,
                             .postscale = s->c.postscale,
                             .out_dtype = s->c.rounded};
    reduce_range(&job, 0, bytes / s->c.element_size);
    s->c.x->final(s->c.x, offset, state_result_bytes(s, bytes));
}

void state_end(void *state)
{
    struct state *s = state;
    if (s->stage)
        s->c.x->give_back(s->c.x, s->stage, s->stage_size);
    free(s->input);
    free(s);
}
