#include "common/status/flight_message.h"

#include <stdlib.h>

#include "common/base/clock.h"

/* A worker's message, and what the message points to. */
struct worker_message {
    Hvd__Flight told;
    struct flight_operation *read;
    Hvd__FlightOperation *item, **list;
};

static void free_worker(struct worker_message *w)
{
    if (!w)
        return;
    free(w->read);
    free(w->item);
    free(w->list);
    free(w);
}

static void fill_operation(Hvd__FlightOperation *out, struct flight_operation *in)
{
    hvd__flight_operation__init(out);
    out->thread = in->ring;
    out->number = in->number;
    out->tensor = in->name;
    out->operation = in->operation;
    out->kind = in->kind;
    out->type = in->type;
    out->set = in->set;
    out->count = in->count;
    out->bytes = in->bytes;
    out->began = in->began;
    out->ended = in->ended;
    out->status = in->status;
}

/* *none: no such worker has come. NULL, too, when there is no memory. */
static Hvd__Flight *make_worker(const struct flight *f, uint32_t number, size_t each, bool *none)
{
    struct worker_message *w = calloc(1, sizeof *w);
    struct flight_worker who;
    if (w) {
        w->read = calloc(each, sizeof *w->read);
        w->item = calloc(each, sizeof *w->item);
        w->list = calloc(each, sizeof *w->list);
    }
    if (!w || !w->read || !w->item || !w->list) {
        free_worker(w);
        return NULL;
    }
    uint64_t now = clock_now();
    size_t count = flight_read(f, number, &who, w->read, each);
    *none = count == SIZE_MAX;
    if (*none) {
        free_worker(w);
        return NULL;
    }
    hvd__flight__init(&w->told);
    w->told.rank = who.rank;
    w->told.pid = who.pid;
    w->told.time = now;
    w->told.operations = who.operations;
    w->told.n_operation = count;
    w->told.operation = w->list;
    for (size_t i = 0; i < count; i++) {
        w->list[i] = &w->item[i];
        fill_operation(&w->item[i], &w->read[i]);
    }
    return &w->told;
}

void flight_messages_make(struct flight_messages *m, const struct flight *f, size_t each)
{
    bool none = false;
    *m = (struct flight_messages){.list = calloc(FLIGHT_ENGINE + 1, sizeof(Hvd__Flight *))};
    if (each > FLIGHT_EACH_MAX)
        each = FLIGHT_EACH_MAX;
    for (uint32_t i = 0; m->list && i < FLIGHT_WORKERS && !none; i++) {
        Hvd__Flight *worker = each > 0 ? make_worker(f, i, each, &none) : NULL;
        if (worker)
            m->list[m->count++] = worker;
    }
    Hvd__Flight *engine = m->list && each > 0 ? make_worker(f, FLIGHT_ENGINE, each, &none) : NULL;
    if (engine)
        m->list[m->count++] = engine;
}

void flight_messages_free(struct flight_messages *m)
{
    for (size_t i = 0; i < m->count; i++)
        free_worker((struct worker_message *)m->list[i]); /* `told` is its first member */
    free(m->list);
    *m = (struct flight_messages){NULL, 0};
}
