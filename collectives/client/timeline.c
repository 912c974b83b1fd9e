/* The timeline of this process: a file of its own with a lane for each tensor.
 *
 *   NEGOTIATE_ALLREDUCE   from the call until this rank has seen that all ranks have arrived
 *   ALLREDUCE             from then until it is done
 *
 * In the first lie MEMCPY_IN (a private input to shared memory) and WAIT, the moment in which hvd_wait
 * began; in the second MEMCPY_OUT. On one host a rank looks only when it polls or waits: without a WAIT it
 * was not asked.
 *
 * An operation on a device has NCCL or STAGED instead: from when its turn came until all of it was in the
 * device's stream.
 *
 * With more hosts the engine says when the operation was due, and writes what it does with it into its own
 * file. Marked cycles are the moments in which an operation begins, in lane 0. A thread that records holds a
 * read lock, and waits only while a timeline is started or stopped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "collectives/client/operation.h"
#include "common/base/trace.h"

#define LANE_CYCLES 0u
#define LANE_FIRST  1u

enum { OPEN_NOTHING, OPEN_NEGOTIATION, OPEN_OPERATION };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct trace *trace;
static bool mark_cycles;
static uint32_t number;        /* of timelines so far */
static _Atomic uint32_t lanes; /* of names so far: a name that was forgotten keeps its own */

static void put_event(const struct tensor *t, enum trace_phase phase, const char *prefix, const char *name,
                      uint64_t at)
{
    trace_put(trace, &(struct trace_event){phase, t->lane, prefix, name, at, 0});
}

/* Ends what is open; with `next`, begins that. */
static void advance_phase(struct tensor *t, uint8_t next, uint64_t at)
{
    static const char *const prefix[] = {NULL, "NEGOTIATE_", NULL};
    const char *name = op_event_name(t->op.what.kind);
    if (t->open != OPEN_NOTHING)
        put_event(t, TRACE_END, prefix[t->open], name, at);
    t->open = next;
    if (t->open != OPEN_NOTHING)
        put_event(t, TRACE_BEGIN, prefix[t->open], name, at);
}

static void record_point(struct tensor *t, enum point point, uint64_t since)
{
    uint64_t now = clock_now();
    static const char *const names[] = {[POINT_COPIED_IN] = "MEMCPY_IN",
                                        [POINT_COPIED_OUT] = "MEMCPY_OUT",
                                        [POINT_NCCL] = "NCCL",
                                        [POINT_STAGED] = "STAGED"};

    if (t->traced != number) {
        t->lane = LANE_FIRST + atomic_fetch_add(&lanes, 1);
        trace_lane(trace, t->lane, t->name);
        t->traced = number;
        t->open = OPEN_NOTHING; /* begun in another file, if at all */
    }
    struct trace_event copy = {TRACE_COMPLETE, t->lane, NULL, NULL, since, now - since};
    switch (point) {
    case POINT_SUBMIT:
        advance_phase(t, OPEN_NEGOTIATION, now);
        break;
    case POINT_AGREED:
        if (t->open == OPEN_NEGOTIATION)
            advance_phase(t, OPEN_OPERATION, since ? since : now);
        if (mark_cycles)
            trace_put(trace, &(struct trace_event){TRACE_INSTANT, LANE_CYCLES, NULL, "CYCLE_START", now, 0});
        break;
    case POINT_WAIT:
        put_event(t, TRACE_INSTANT, NULL, "WAIT", now);
        break;
    case POINT_ENDED:
        advance_phase(t, OPEN_NOTHING, now);
        break;
    case POINT_COPIED_IN:
    case POINT_COPIED_OUT:
    case POINT_NCCL:
    case POINT_STAGED:
        copy.name = names[point];
        if (since) /* else the timeline began meanwhile */
            trace_put(trace, &copy);
        break;
    }
}

static void hear_point(struct tensor *t, enum point point, uint64_t since)
{
    pthread_rwlock_rdlock(&lock);
    if (trace)
        record_point(t, point, since);
    pthread_rwlock_unlock(&lock);
}

/* ---- start and stop ------------------------------------------------------------------------------------ */

/* The number of a rank changes in an elastic job, that of a worker never. `resumes`: behind what this process
 * has written into that file before. */
static int start_trace(const char *pattern, bool mark, bool resumes)
{
    static char last[4096];
    int self = client.worker >= 0 ? client.worker : client.rank;
    char who[16];
    struct err e = ERR_INIT;
    snprintf(who, sizeof who, "%d", self);
    char process[32];
    snprintf(process, sizeof process, "%s %d", client.worker >= 0 ? "worker" : "rank", self);
    char path[sizeof last];
    if (trace_path(pattern, who, path, sizeof path, &e) != 0)
        return fail(HVD_ERR_INVALID, "%s", e.text);
    pthread_rwlock_wrlock(&lock);
    bool runs = trace != NULL;
    struct trace *made = NULL;
    if (!runs)
        made = (resumes && strcmp(path, last) == 0 ? trace_continue : trace_start)(path, (uint32_t)self,
                                                                                   process, TRACE_BYTES, &e);
    if (made) {
        snprintf(last, sizeof last, "%s", path);
        trace = made;
        mark_cycles = mark;
        number++;
        if (mark)
            trace_lane(trace, LANE_CYCLES, "cycles");
        watch_start(WATCHER_TIMELINE, hear_point);
    }
    pthread_rwlock_unlock(&lock);
    if (runs)
        return fail(HVD_ERR_IN_PROGRESS, "a timeline of this process is being written already");
    return made ? HVD_SUCCESS : fail(HVD_ERR_SYSTEM, "%s", e.text);
}

static int stop_trace(void)
{
    struct err e = ERR_INIT;
    pthread_rwlock_wrlock(&lock);
    struct trace *ended = trace;
    trace = NULL;
    watch_stop(WATCHER_TIMELINE);
    pthread_rwlock_unlock(&lock);
    return !ended || trace_stop(ended, &e) == 0 ? HVD_SUCCESS : fail(HVD_ERR_SYSTEM, "%s", e.text);
}

/* As in Horovod's variables: "1", "true", "yes", "on". */
static bool is_true(const char *text)
{
    return text && (strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0 ||
                    strcasecmp(text, "on") == 0);
}

int timeline_open(void)
{
    const char *pattern = getenv("HOROVOD_TIMELINE");
    /* DYNAMIC: Horovod's word for one that is started later. */
    if (!pattern || !*pattern || strcmp(pattern, "DYNAMIC") == 0)
        return HVD_SUCCESS;
    return start_trace(pattern, is_true(getenv("HOROVOD_TIMELINE_MARK_CYCLES")), true);
}

void timeline_close(void)
{
    stop_trace();
}

int hvd_timeline_start(const char *path, int mark)
{
    int status = client_check();
    if (status)
        return status;
    if (!path || !*path)
        return fail(HVD_ERR_INVALID, "a timeline needs the name of a file");
    return start_trace(path, mark != 0, false);
}

int hvd_timeline_stop(void)
{
    int status = client_check();
    return status ? status : stop_trace();
}
