/* The engine's own timeline: a lane for each tensor, in a file beside those of the ranks.
 *
 *   NEGOTIATE_ALLREDUCE   from complete on this host until all hosts were known to have it
 *   ALLREDUCE             until settled; in it QUEUE (operations before it on the execution list), REDUCE
 *                         (the ranks of this host), NETWORK, MEMCPY_OUT (to the ranks), one after the other
 *   CYCLE_START           in lane 0, when asked for: a turn of the loop that executed something
 *
 * On one host the ranks do the work, and only the marks are here. A file that cannot be written is told, and
 * the job goes on without. */
#include "collectives/engine/timeline.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/trace.h"

#define LANE_CYCLES 0u
#define LANE_FIRST  1u
#define PID_FIRST   10000000u /* of host 0: after all ranks */

struct timeline {
    struct trace *trace;
    bool mark_cycles, executed;
    uint32_t lanes; /* of names so far */
    struct {
        uint32_t lane;        /* 0: it has none yet */
        const char *activity; /* that is open */
    } slot[SHM_SLOTS];
};

static void open_timeline(struct engine *engine, const Hvd__EngineTuning *tuning)
{
    char who[TRACE_WHO_MAX];
    struct err e = ERR_INIT;
    struct timeline *t = calloc(1, sizeof *t);
    char process[96];
    snprintf(process, sizeof process, "engine of %.60s", engine->host[engine->self].name);
    char path[4096];
    if (t && trace_path(tuning->timeline, trace_engine_who(engine->host[engine->self].name, who), path,
                        sizeof path, &e) == 0)
        t->trace = trace_start(path, PID_FIRST + engine->self, process, TRACE_BYTES, &e);
    if (!t || !t->trace) {
        engine_notice(engine, LOG_WARNING, t ? e.text : "no memory for the engine's timeline");
        free(t);
        return;
    }
    t->mark_cycles = tuning->timeline_mark_cycles;
    if (t->mark_cycles)
        trace_lane(t->trace, LANE_CYCLES, "cycles");
    engine->timeline = t;
}

/* Completes the file, if there is one. */
static void stop_timeline(struct engine *engine)
{
    struct err e = ERR_INIT;
    if (engine->timeline && trace_stop(engine->timeline->trace, &e) != 0)
        engine_notice(engine, LOG_WARNING, e.text);
    free(engine->timeline);
    engine->timeline = NULL;
}

static int start_timeline(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    (void)e;
    if (config->tuning && *config->tuning->timeline)
        open_timeline(engine, config->tuning);
    return 0;
}

static uint32_t slot_of(const struct engine *engine, const struct tensor_view *view)
{
    const struct name *name = (const struct name *)((const char *)view - offsetof(struct name, view));
    return (uint32_t)(name - engine->names.name);
}

static void put_event(struct timeline *t, uint32_t slot, enum trace_phase phase, const char *prefix,
                      const char *name, uint64_t at)
{
    trace_put(t->trace, &(struct trace_event){phase, t->slot[slot].lane, prefix, name, at, 0});
}

void engine_timeline_record(struct engine *engine, const struct tensor_view *view, enum timeline_point point,
                            uint64_t since)
{
    struct timeline *t = engine->timeline;
    static const char *const activity[] = {
        [TIMELINE_REDUCE] = "REDUCE", [TIMELINE_NETWORK] = "NETWORK", [TIMELINE_SPREAD] = "MEMCPY_OUT"};
    uint32_t slot = slot_of(engine, view);
    const char *name = op_event_name(view->op.kind);
    uint64_t now = clock_now();

    if (t->slot[slot].lane == 0) {
        t->slot[slot].lane = LANE_FIRST + t->lanes++;
        trace_lane(t->trace, t->slot[slot].lane, engine->names.name[slot].text);
    }
    struct trace_event queue = {TRACE_COMPLETE, t->slot[slot].lane, NULL, "QUEUE", since, now - since};
    if (t->slot[slot].activity)
        put_event(t, slot, TRACE_END, NULL, t->slot[slot].activity, now);
    t->slot[slot].activity = NULL;
    t->executed = t->executed || point != TIMELINE_ANNOUNCED;
    if (point == TIMELINE_ANNOUNCED) {
        put_event(t, slot, TRACE_BEGIN, "NEGOTIATE_", name, now);
    } else if (point == TIMELINE_DUE) {
        put_event(t, slot, TRACE_END, "NEGOTIATE_", name, since);
        put_event(t, slot, TRACE_BEGIN, NULL, name, since);
        trace_put(t->trace, &queue);
    } else if (point == TIMELINE_SETTLED) {
        put_event(t, slot, TRACE_END, NULL, name, now);
    } else {
        t->slot[slot].activity = activity[point];
        put_event(t, slot, TRACE_BEGIN, NULL, activity[point], now);
    }
}

void engine_timeline_forget(struct engine *engine, uint32_t slot)
{
    if (engine->timeline)
        engine->timeline->slot[slot].lane = 0;
}

static void mark_turn(struct engine *engine, struct turn *turn)
{
    struct timeline *t = engine->timeline;
    if (__builtin_expect(t == NULL, 1))
        return;
    if (t->mark_cycles && (turn->helped || t->executed))
        trace_put(t->trace,
                  &(struct trace_event){TRACE_INSTANT, LANE_CYCLES, NULL, "CYCLE_START", clock_now(), 0});
    t->executed = false;
}

/* No rank waits for the engine's own end, so the file is complete when all have left. */
const struct engine_part timeline_part = {
    .start = start_timeline, .progress = mark_turn, .all_left = stop_timeline, .free = stop_timeline};
