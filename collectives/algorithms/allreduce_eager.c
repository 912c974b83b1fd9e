#include "collectives/algorithms/allreduce_eager.h"

#include <stdlib.h>

#include "collectives/algorithms/reduce.h"

#define TOTAL_FACTOR 8 /* a host sends at most so many times eager_bytes */

struct eager {
    struct collective c;
    uint32_t bytes;
    uint32_t arrived, under_way;
    bool finished;
    uint8_t *stage; /* [hosts] contributions */
    size_t stage_size;
    const void **input;
    bool here[]; /* [hosts] */
};

bool allreduce_eager_fits(uint64_t bytes, uint32_t hosts, uint64_t eager_bytes)
{
    return bytes <= eager_bytes && bytes <= EAGER_BYTES_MAX &&
           bytes * (hosts - 1) <= eager_bytes * TOTAL_FACTOR;
}

/* Own data is what is being sent: it may change only when it was. */
static void finish(struct eager *a)
{
    struct exchange *x = a->c.x;
    void *out = a->c.data;
    if (a->finished || a->arrived < x->hosts - 1 || a->under_way > 0)
        return;
    a->finished = true;
    if (a->bytes == 0)
        return;
    for (uint32_t i = 0; i < x->hosts; i++)
        a->input[i] = i == x->self ? a->c.data : a->stage + (size_t)i * a->bytes;
    struct reduce_job job = {.in = a->input,
                             .inputs = x->hosts,
                             .out = &out,
                             .outputs = 1,
                             .dtype = a->c.dtype,
                             .op = a->c.op,
                             .divisor = a->c.divisor};
    reduce_range(&job, 0, a->c.count);
    x->final(x, 0, a->bytes);
}

static void end(void *state)
{
    struct eager *a = state;
    if (a->stage)
        a->c.x->give_back(a->c.x, a->stage, a->stage_size);
    free(a->input);
    free(a);
}

static void *start(const struct collective *c, struct err *e)
{
    struct exchange *x = c->x;
    struct eager *a = calloc(1, sizeof *a + x->hosts * sizeof *a->here);
    if (a) {
        a->c = *c;
        a->bytes = (uint32_t)(c->count * c->element_size);
        a->stage_size = (size_t)x->hosts * a->bytes;
        a->input = calloc(x->hosts, sizeof *a->input);
        a->stage = a->stage_size ? x->borrow(x, a->stage_size) : NULL;
    }
    if (!a || !a->input || (a->stage_size && !a->stage)) {
        if (a)
            end(a);
        err_set(e, ERR_MEMORY, "no memory for an allreduce");
        return NULL;
    }
    for (uint32_t i = 1; i < x->hosts; i++) {
        a->under_way++;
        x->send(x, (x->self + i) % x->hosts, CHANNEL_EAGER, 0, c->data, a->bytes);
    }
    finish(a); /* of one host */
    return a;
}

static void granted(void *state, uint32_t peer, uint64_t limit)
{
}

static void *place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                   uint32_t length)
{
    struct eager *a = state;
    bool fits = channel == CHANNEL_EAGER && offset == 0 && length == a->bytes && !a->here[peer];
    if (!fits)
        return NULL;
    return a->stage ? a->stage + (size_t)peer * a->bytes : (void *)a; /* no bytes: any place will do */
}

static void arrived(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                    uint32_t length)
{
    struct eager *a = state;
    a->here[peer] = true;
    a->arrived++;
    finish(a);
}

static void sent(void *state, uint32_t peer)
{
    struct eager *a = state;
    a->under_way--;
    finish(a);
}

static bool complete(const void *state)
{
    return ((const struct eager *)state)->finished;
}

const struct algorithm allreduce_eager = {.name = "eager",
                                          .eager = true,
                                          .start = start,
                                          .granted = granted,
                                          .place = place,
                                          .arrived = arrived,
                                          .sent = sent,
                                          .complete = complete,
                                          .end = end};
