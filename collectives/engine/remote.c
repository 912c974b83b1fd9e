/* Operations of a job on several hosts, from "complete on this host" to "settled".
 *
 *   remote_complete   the last member of this host has arrived: check, announce (readiness)
 *   the execution list names it: a run is appended to the queue
 *   DUE -> REDUCE     this host's members are reduced into one place, a piece a turn
 *       -> NETWORK    the backend makes it the result over all hosts
 *       -> SPREAD     the result is copied to the other members, a piece a turn
 *       -> SETTLED    status and result are published, the members wake
 *
 * Runs start on the network strictly in the order of the list; they end in any order. The one place is the
 * slot's result for small tensors and the first member's output for large ones, so no memory is taken. An
 * entry whose ranks disagree, a barrier and a shutdown are settled when they are due. After a failure nothing
 * is settled any more: the poison ends every wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/dtype.h"
#include "collectives/engine/engine.h"
#include "collectives/shm/doorbell.h"
#include "common/log.h"

#define PIECE_BYTES (1u << 20)

enum run_phase { RUN_DUE, RUN_REDUCE, RUN_NETWORK, RUN_SPREAD, RUN_SETTLED };

struct run {
    struct run *next;
    struct engine *engine;
    struct list_entry entry;
    struct tensor_view *view;
    enum run_phase phase;
    char *place;       /* this host's one buffer */
    uint64_t progress; /* elements that the phase has done */
};

int remote_start(struct engine *engine, struct err *e)
{
    struct readiness_host *hosts = calloc(engine->hosts, sizeof *hosts);
    struct readiness_config config = {engine->epoch, engine->self, engine->hosts, hosts};

    if (!hosts)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", engine->hosts);
    for (uint32_t i = 0; i < engine->hosts; i++)
        hosts[i] =
            (struct readiness_host){engine->host[i].name, engine->host[i].first_rank, engine->host[i].ranks};
    engine->readiness = readiness_new(&config, e);
    free(hosts);
    return engine->readiness ? 0 : -1;
}

void remote_free(struct engine *engine)
{
    while (engine->run_first) {
        struct run *run = engine->run_first;
        engine->run_first = run->next;
        free(run);
    }
    readiness_free(engine->readiness);
}

/* ---- complete on this host ----------------------------------------------------------------------------- */

void remote_complete(struct engine *engine, uint32_t slot)
{
    struct tensor_resolver resolver = {segments_resolve, engine};
    struct tensor_view *v = local_view(engine, slot);
    struct name *n = &engine->name[slot];
    char error[SHM_TEXT_MAX] = "";
    struct tensor_desc desc;
    struct err e = ERR_INIT;
    uint32_t before = v ? v->sequence : 0;

    if (!v || n->announced || region_poisoned(&engine->region))
        return; /* announced: two members came last at once, and both said so */
    tensor_begin(v, before + 1);
    if (!tensor_arrived(v)) {
        tensor_begin(v, before);
        return;
    }
    int status = n->status = tensor_open(v, n->text, &resolver, error, sizeof error);
    desc.what = v->op;
    snprintf(desc.name, sizeof desc.name, "%s", n->text);
    if (readiness_local(engine->readiness, &desc, status == HVD_SUCCESS ? NULL : error, &e) != 0)
        engine_poison(engine, HVD_ERR_ENGINE, status == HVD_SUCCESS ? e.text : error);
    n->announced = true;
}

/* ---- settled ------------------------------------------------------------------------------------------- */

static void settle(struct run *run, int status, const char *text)
{
    struct engine *engine = run->engine;
    struct shm_slot *slot = run->view->slot;

    slot->status = status;
    if (text)
        snprintf((char *)slot->result, SHM_TEXT_MAX, "%s", text);
    run->phase = RUN_SETTLED;
    if (run->entry.desc.what.kind == SHM_BARRIER)
        engine->started = true;
    if (run->entry.desc.what.kind == SHM_SHUTDOWN)
        engine->finished = true;
    atomic_store(&slot->settled, run->view->sequence);
    doorbell_ring_sleepers(&engine->region, UINT32_MAX);
}

/* ---- the phases ---------------------------------------------------------------------------------------- */

static uint32_t host_of(const struct engine *engine, uint32_t rank)
{
    uint32_t i = 0;

    while (i + 1 < engine->hosts && rank - engine->host[i].first_rank >= engine->host[i].ranks)
        i++;
    return i;
}

/* The member of this host that is the broadcast's root; UINT32_MAX: it is elsewhere. */
static uint32_t root_member(const struct run *run)
{
    uint32_t member = run->view->op.root - run->engine->region.first_rank;

    return run->view->op.kind == SHM_BROADCAST && member < run->engine->members ? member : UINT32_MAX;
}

static void choose_place(struct run *run)
{
    struct tensor_view *v = run->view;
    uint32_t root = root_member(run);

    if (v->place == SHM_INLINE)
        run->place = (char *)v->slot->result;
    else
        run->place = root == UINT32_MAX ? v->out[0] : (char *)(uintptr_t)v->in[root];
    if (v->place == SHM_INLINE && root != UINT32_MAX)
        memcpy(run->place, v->in[root], v->bytes);
}

static void begin(struct run *run)
{
    struct engine *engine = run->engine;
    uint32_t slot = names_find(engine, run->entry.desc.name);
    bool complete = slot != UINT32_MAX && engine->name[slot].announced;
    char text[SHM_TEXT_MAX];

    /* What this host could not open has no elements here, whatever the list says. */
    if (!complete || (!run->entry.error[0] && engine->name[slot].status != HVD_SUCCESS)) {
        snprintf(text, sizeof text, "the execution list names tensor \"%.255s\", which is not %s on %.100s",
                 run->entry.desc.name, complete ? "valid" : "complete", engine->host[engine->self].name);
        run->phase = RUN_SETTLED;
        engine_poison(engine, HVD_ERR_ENGINE, text);
        return;
    }
    engine->name[slot].announced = false;
    run->view = &engine->name[slot].view;
    if (run->entry.error[0]) {
        settle(run, HVD_ERR_MISMATCH, run->entry.error);
    } else if (run->view->bytes == 0) {
        settle(run, HVD_SUCCESS, NULL);
    } else {
        choose_place(run);
        run->phase = RUN_REDUCE;
    }
}

/* How many elements the next piece has. */
static uint64_t piece(const struct run *run)
{
    uint64_t left = run->view->op.count - run->progress, most = PIECE_BYTES / dtype_size(run->view->op.dtype);

    return left < most ? left : most;
}

static void network_done(void *ctx, const struct err *error)
{
    struct run *run = ctx;

    if (error) {
        engine_poison(run->engine, HVD_ERR_PEER, error->text);
        run->phase = RUN_SETTLED;
        return;
    }
    run->progress = 0;
    run->phase = RUN_SPREAD;
}

static void start_network(struct run *run)
{
    struct engine *engine = run->engine;
    const struct tensor_op *op = &run->view->op;
    struct backend_request request = {
        .kind = op->kind == SHM_ALLREDUCE ? BACKEND_ALLREDUCE : BACKEND_BROADCAST,
        .sequence = run->entry.number,
        .data = run->place,
        .count = op->count,
        .dtype = (hvd_dtype)op->dtype,
        .op = (hvd_op)op->op,
        .divisor = engine->size,
        .root = host_of(engine, op->root),
        .done = network_done,
        .ctx = run,
    };
    struct err e = ERR_INIT;

    run->phase = RUN_NETWORK; /* done may come before start returns */
    if (engine->backend->ops->start(engine->backend, &request, &e) != 0)
        network_done(run, &e);
}

static void reduce(struct run *run)
{
    struct tensor_view *v = run->view;
    uint64_t count = piece(run);

    if (v->op.kind == SHM_ALLREDUCE && !(run->engine->members == 1 && v->in[0] == (void *)run->place))
        tensor_reduce_local(v, run->place, run->progress, count);
    run->progress += count;
    if (v->op.kind == SHM_BROADCAST || run->progress == v->op.count)
        start_network(run);
}

static void spread(struct run *run)
{
    struct tensor_view *v = run->view;
    size_t size = dtype_size(v->op.dtype);
    uint64_t count = piece(run);

    for (uint32_t i = 0; v->place == SHM_SEGMENT && i < run->engine->members; i++)
        if (v->out[i] != run->place)
            memcpy((char *)v->out[i] + run->progress * size, run->place + run->progress * size, count * size);
    run->progress += count;
    if (run->progress == v->op.count)
        settle(run, HVD_SUCCESS, NULL);
}

/* ---- the queue ----------------------------------------------------------------------------------------- */

static void send_readiness(struct engine *engine)
{
    const void *message;
    struct err e = ERR_INIT;
    uint32_t to;
    size_t size;

    while (readiness_next_message(engine->readiness, &to, &message, &size))
        if (links_send_control(engine->links, to, message, size, &e) != 0)
            return; /* the link is lost; its own event says so */
}

static int take_entries(struct engine *engine)
{
    struct run *run;

    for (;;) {
        if (!(run = malloc(sizeof *run)))
            return -1;
        if (!readiness_next_entry(engine->readiness, &run->entry))
            break;
        run->next = NULL;
        run->engine = engine;
        run->phase = RUN_DUE;
        run->progress = 0;
        if (engine->run_last)
            engine->run_last->next = run;
        else
            engine->run_first = run;
        engine->run_last = run;
    }
    free(run);
    return 0;
}

/* One piece of each run that may go on. true: some can go on at once. */
static bool advance(struct engine *engine)
{
    uint32_t in_flight = 0;
    bool more = false;

    for (struct run *run = engine->run_first; run; run = run->next) {
        if (run->phase < RUN_NETWORK && in_flight >= BACKEND_IN_FLIGHT_MAX)
            break;
        if (run->phase == RUN_DUE)
            begin(run);
        if (run->phase == RUN_REDUCE)
            reduce(run);
        if (run->phase == RUN_SPREAD)
            spread(run);
        in_flight += run->phase == RUN_NETWORK;
        more = more || run->phase == RUN_REDUCE || run->phase == RUN_SPREAD;
        if (run->phase == RUN_REDUCE)
            break; /* the next one may not overtake it */
    }
    return more;
}

static void drop_settled(struct engine *engine)
{
    struct run **at = &engine->run_first;

    engine->run_last = NULL;
    while (*at) {
        struct run *run = *at;
        if (run->phase == RUN_SETTLED) {
            *at = run->next;
            free(run);
        } else {
            engine->run_last = run;
            at = &run->next;
        }
    }
}

bool remote_progress(struct engine *engine)
{
    bool more;

    if (engine->hosts == 1 || !engine->links_up || region_poisoned(&engine->region))
        return false;
    send_readiness(engine);
    if (take_entries(engine) != 0)
        engine_poison(engine, HVD_ERR_MEMORY, "no memory for the execution list");
    if (!engine->run_first)
        return false;
    more = advance(engine);
    drop_settled(engine);
    return more;
}
