/* Operations of a job on several hosts, from "complete on this host" to a run (run.h) that is settled.
 *
 *   remote_complete   the last member of this host has arrived: check, announce (readiness)
 *   the execution list names it: a run is appended to the queue
 *   remote_progress   gives each run that may go on a turn, until it is settled
 *
 * Runs start on the network strictly in the order of the list; they end in any order. An entry whose ranks
 * disagree, a barrier and a shutdown are settled when they are due. After a failure nothing is settled any
 * more: the poison ends every wait. */
#include "collectives/engine/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/joins.h"
#include "collectives/engine/names.h"
#include "collectives/engine/partial.h"
#include "collectives/engine/peers.h"
#include "collectives/engine/rank_link.h"
#include "collectives/engine/run/results.h"
#include "collectives/engine/run/run.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/timeline.h"
#include "collectives/engine/tuning.h"
#include "common/base/clock.h"

static void free_runs(struct engine *engine)
{
    for (struct set *set = engine->sets.first; set; set = set->next)
        while (set->run_first) {
            struct run *run = set->run_first;
            set->run_first = run->next;
            run_free(run);
        }
    free(engine->runs.spare);
    engine->runs.spare = NULL;
    scratch_free(&engine->runs.scratch);
    results_free(engine);
}

/* ---- complete on this host ----------------------------------------------------------------------------- */

/* All of this host agree: says so, and what they have to add when it is little. */
static int announce_tensor(const struct set *set, const struct tensor_desc *desc, const char *error,
                           struct tensor_view *v, struct err *e)
{
    _Alignas(64) uint8_t data[TENSOR_DATA_MAX];
    struct readiness *readiness = set->readiness;
    struct partial partial = partial_of(&desc->what, &set->shape);
    size_t bytes = error ? 0 : readiness_data(readiness, &desc->what);
    uint32_t root = team_member(v->team, v->op.root);
    const void *mine = data;
    if (bytes > 0 && v->op.kind == SHM_BROADCAST)
        mine = root < v->team->members ? v->in[root] : NULL;
    else if (bytes > 0)
        tensor_reduce_local(v, data, partial.dtype, partial.scale, 0, v->op.count);
    return readiness_local(readiness, desc, error, mine, e);
}

static void not_announced(struct engine *engine, const struct err *e)
{
    if (e->code == ERR_MEMORY)
        engine_out_of_memory(engine, e->text);
    else
        engine_poison(engine, HVD_ERR_ENGINE, e->text);
}

void remote_complete(struct engine *engine, uint32_t slot)
{
    struct tensor_resolver resolver = {segments_resolve, engine};
    struct tensor_view *v = names_view(engine, slot);
    struct name *n = &engine->names.name[slot];
    struct err e = ERR_INIT;
    uint32_t before = v ? rank_link_operation(engine, v, v->sequence + 1) - 1 : 0;
    if (!v || n->announced || n->running || region_poisoned(&engine->region))
        return; /* announced: two members came last at once, and both said so */
    tensor_begin(v, before + 1);
    if (!tensor_arrived(v)) {
        tensor_begin(v, before);
        return;
    }
    char error[SHM_TEXT_MAX];
    error[0] = '\0';
    int status = n->status = tensor_open(v, n->text, &resolver, error, sizeof error);
    if (status == HVD_SUCCESS && v->streamed && !results_make_buffer(engine, v)) {
        engine_out_of_memory(engine, "no memory for an operation between hosts");
        return;
    }
    struct tensor_desc desc;
    desc.what = v->op;
    desc.known = status == HVD_SUCCESS && v->op.device && v->op.device != OP_EITHER ? v->device_memory : 0;
    memcpy(desc.name, n->text, strlen(n->text) + 1); /* at most SHM_NAME_MAX bytes */
    sets_wake(engine, n->set);
    if (announce_tensor(n->set, &desc, status == HVD_SUCCESS ? NULL : error, v, &e) != 0)
        not_announced(engine, &e);
    n->announced = true;
    joins_announced(engine, slot);
    timeline_mark(engine, v, TIMELINE_ANNOUNCED, 0);
}

/* ---- the queue ----------------------------------------------------------------------------------------- */

/* --cycle-time-ms: what could travel with others waits for them, until the first has waited so long. */
static bool still_gathers(const struct engine *engine, struct set *set)
{
    if (engine->options.cycle_ns == 0)
        return false;
    if (!execution_list_could_gather(readiness_list(set->readiness))) {
        set->gathers_since = 0;
        return set->gathers = false;
    }
    uint64_t now = clock_now();
    if (set->gathers_since == 0)
        set->gathers_since = now;
    return set->gathers = now - set->gathers_since < engine->options.cycle_ns;
}

static void wait_for_gathers(const struct engine *engine, struct turn *turn)
{
    for (const struct set *set = engine->sets.active; engine->options.cycle_ns && set; set = set->next_active)
        if (set->gathers)
            turn_until(turn, set->gathers_since + engine->options.cycle_ns);
}

/* The list grows only as far as the network has work: what becomes complete meanwhile is fused. */
static void hold_list(const struct engine *engine, struct set *set)
{
    uint32_t waiting = 0;
    for (const struct run *run = set->run_first; run; run = run->next)
        waiting += run->phase < RUN_SPREAD;
    bool gather = still_gathers(engine, set);
    execution_list_hold(readiness_list(set->readiness), gather || waiting >= tuning_runs_ahead(engine, set));
}

static void append_run(struct set *set, struct run *run)
{
    if (set->run_last)
        set->run_last->next = run;
    else
        set->run_first = run;
    set->run_last = run;
}

/* Entries of one batch always come together. */
static int take_entries(struct engine *engine, struct set *set)
{
    struct run *run, *leader = NULL;
    while (execution_list_has_next(readiness_list(set->readiness))) {
        run = run_new(engine);
        if (!run)
            return -1;
        execution_list_next(readiness_list(set->readiness), &run->entry);
        run->set = set;
        run->values = *tuning_of_entry(engine, set, run->entry.number);
        run->listed = clock_now();
        if (leader && !batch_add(leader, run)) {
            run_free(run);
            engine_poison(engine, HVD_ERR_PEER, "the execution list joins what does not go together");
            return 0;
        }
        if (!leader)
            append_run(set, run);
        if (!run->entry.joined)
            leader = NULL;
        else if (!leader)
            leader = run;
    }
    return 0;
}

/* Can it do a piece without waiting for anybody? */
static bool can_go_on(const struct run *run)
{
    return run->phase == RUN_PACK || run->phase == RUN_COMBINE || run->phase == RUN_SPREAD;
}

/* One piece of each run that may go on. true: some can go on at once. */
static bool advance_runs(struct set *set)
{
    uint32_t in_flight = 0;
    bool more = false;
    for (struct run *run = set->run_first; run; run = run->next) {
        if (run->phase < RUN_NETWORK && in_flight >= run->values.of[AUTOTUNE_IN_FLIGHT])
            break;
        if (run->phase == RUN_DUE)
            run_begin(run);
        if (run->phase == RUN_PACK)
            run_pack(run);
        if (run->phase == RUN_COMBINE)
            unreduced_combine(run);
        if (run->phase == RUN_SPREAD)
            run_spread(run);
        if (run->phase == RUN_NETWORK)
            run_look_for_pieces(run);
        in_flight += run->phase == RUN_NETWORK;
        more = more || can_go_on(run);
        if (run->phase < RUN_NETWORK)
            break; /* the next one may not overtake it */
    }
    return more;
}

static void drop_settled(struct set *set)
{
    struct run **at = &set->run_first;
    set->run_last = NULL;
    while (*at) {
        struct run *run = *at;
        if (run->phase == RUN_SETTLED) {
            *at = run->next;
            run_free(run);
        } else {
            set->run_last = run;
            at = &run->next;
        }
    }
}

/* true: some of its runs can go on at once. */
static bool progress_set(struct engine *engine, struct set *set)
{
    hold_list(engine, set);
    sets_send(engine, set);
    if (take_entries(engine, set) != 0)
        engine_out_of_memory(engine, "no memory for the execution list");
    if (!set->run_first)
        return false;
    bool more = advance_runs(set);
    drop_settled(set);
    hold_list(engine, set);
    return more || execution_list_wants_more(readiness_list(set->readiness));
}

/* However many sets there are, only those are looked at that have something on its way. */
bool remote_progress(struct engine *engine)
{
    struct set *set = engine->sets.active;
    bool more = false;
    if (engine->hosts == 1 || !engine->peers.up)
        return false;
    struct set *next;
    for (engine->sets.active = NULL; set && !region_poisoned(&engine->region); set = next) {
        next = set->next_active;
        more = progress_set(engine, set) || more;
        set->active = false;
        if (set->run_first || !readiness_is_idle(set->readiness))
            sets_wake(engine, set);
    }
    return more;
}

static void progress_runs(struct engine *engine, struct turn *turn)
{
    turn->more = remote_progress(engine) || turn->more;
    if (peers_look(engine, turn->now)) {
        turn->active = true;
        turn->more = remote_progress(engine) || turn->more;
    }
    wait_for_gathers(engine, turn);
    if (engine->peers.links && !engine->peers.down)
        turn_within(turn, links_timeout(engine->peers.links, turn->now));
}

const struct engine_part remote_part = {.progress = progress_runs, .epoch_end = free_runs, .free = free_runs};
