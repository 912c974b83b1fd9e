/* Operations of a job on several hosts, from "complete on this host" to a run (run.h) that is settled.
 *
 *   remote_complete   the last member of this host has arrived: check, announce (readiness)
 *   the execution list names it: a run is appended to the queue
 *   remote_progress   gives each run that may go on a turn, until it is settled
 *
 * Runs start on the network strictly in the order of the list; they end in any order. An entry whose ranks
 * disagree, a barrier and a shutdown are settled when they are due. After a failure nothing is settled any
 * more: the poison ends every wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/run.h"
#include "common/clock.h"

int remote_start(struct engine *engine, struct err *e)
{
    struct readiness_host *hosts = calloc(engine->hosts, sizeof *hosts);
    struct readiness_config config = {.epoch = engine->epoch,
                                      .self = engine->self,
                                      .hosts = engine->hosts,
                                      .host = hosts,
                                      .data_bytes = ENGINE_DATA_BYTES,
                                      .fusion_bytes = ENGINE_FUSION_BYTES,
                                      .cache_capacity = SHM_SLOTS};

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
        run_free(run);
    }
    scratch_free(&engine->scratch);
    readiness_free(engine->readiness);
}

/* The list grows only as far as the network has work: what becomes complete meanwhile is fused. */
static void hold_list(struct engine *engine)
{
    uint32_t waiting = 0;

    for (const struct run *run = engine->run_first; run; run = run->next)
        waiting += run->phase < RUN_SPREAD;
    readiness_hold(engine->readiness, waiting >= ENGINE_RUNS_AHEAD);
}

/* ---- complete on this host ----------------------------------------------------------------------------- */

/* All of this host agree: says so, and what they have to add when it is little. */
static int announce(struct engine *engine, const struct tensor_desc *desc, const char *error,
                    struct tensor_view *v, struct err *e)
{
    _Alignas(64) uint8_t data[TENSOR_DATA_MAX];
    size_t bytes = error ? 0 : readiness_data(engine->readiness, &desc->what);
    uint32_t root = v->op.root - engine->region.first_rank;
    const void *mine = data;

    if (bytes > 0 && v->op.kind == SHM_BROADCAST)
        mine = root < engine->members ? v->in[root] : NULL;
    else if (bytes > 0)
        tensor_reduce_local(v, data, 0, v->op.count);
    return readiness_local(engine->readiness, desc, error, mine, e);
}

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
    if (announce(engine, &desc, status == HVD_SUCCESS ? NULL : error, v, &e) != 0)
        engine_poison(engine, HVD_ERR_ENGINE, status == HVD_SUCCESS ? e.text : error);
    n->announced = true;
    timeline(engine, v, TIMELINE_ANNOUNCED, 0);
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

static void append_run(struct engine *engine, struct run *run)
{
    if (engine->run_last)
        engine->run_last->next = run;
    else
        engine->run_first = run;
    engine->run_last = run;
}

/* Entries of one batch always come together. */
static int take_entries(struct engine *engine)
{
    struct run *run, *leader = NULL;

    for (;;) {
        if (!(run = calloc(1, sizeof *run)))
            return -1;
        if (!readiness_next_entry(engine->readiness, &run->entry))
            break;
        run->engine = engine;
        run->listed = clock_now();
        if (leader && !batch_add(leader, run)) {
            free(run);
            engine_poison(engine, HVD_ERR_PEER, "the execution list joins what does not go together");
            return 0;
        }
        if (!leader)
            append_run(engine, run);
        if (!run->entry.joined)
            leader = NULL;
        else if (!leader)
            leader = run;
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
            run_begin(run);
        if (run->phase == RUN_PACK)
            run_pack(run);
        if (run->phase == RUN_SPREAD)
            run_spread(run);
        in_flight += run->phase == RUN_NETWORK;
        more = more || run->phase == RUN_PACK || run->phase == RUN_SPREAD;
        if (run->phase == RUN_SIZES || run->phase == RUN_PACK)
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
            run_free(run);
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
    hold_list(engine);
    send_readiness(engine);
    if (take_entries(engine) != 0)
        engine_poison(engine, HVD_ERR_MEMORY, "no memory for the execution list");
    if (!engine->run_first)
        return false;
    more = advance(engine);
    drop_settled(engine);
    hold_list(engine);
    return more || readiness_wants_more(engine->readiness);
}
