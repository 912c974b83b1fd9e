/* Communicators of the ranks of this host, and their operations from the rings to the streams.
 *
 * A rank gives one operation of a team at a time, in the team's order. It is begun at once, whether the
 * team's other ranks here have come to it or not: NCCL's calls never wait. While something is on its way the
 * loop looks after it, without sleep for a moment, then each millisecond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/gpu/gpu.h"
#include "collectives/engine/names.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define LOOK_MS  1
#define WATCH_NS (250 * NSEC_PER_MSEC)
#define ABORT_NS (2 * NSEC_PER_SEC) /* for all communicators together; who waits longer is taken for dead */

/* ---- words that the ranks read ------------------------------------------------------------------------- */

static struct shm_member_slot *shared_slot(const struct engine *engine, uint32_t slot, const struct set *set,
                                           uint32_t m)
{
    return &region_slot(&engine->region, slot)->member_slot[set->team->local[m]];
}

static void ring_member(const struct engine *engine, const struct set *set, uint32_t m)
{
    struct shm_mailbox *box = region_mailbox(&engine->region, set->team->local[m]);
    if (doorbell_has_sleeper(box))
        doorbell_ring(box);
    if (atomic_load(&box->alarm_wanted))
        alarm_ring(box);
}

static void tell_state(const struct engine *engine, struct gpu_set *s, uint32_t m)
{
    struct gpu_member *gpu_member = &s->member[m];
    enum communicator_state now = communicator_state(gpu_member->communicator);
    if (now == gpu_member->told)
        return;
    gpu_member->told = now;
    atomic_store(&shared_slot(engine, s->head, s->set, m)->launched, (uint64_t)now);
    ring_member(engine, s->set, m);
}

/* ---- joining and leaving ------------------------------------------------------------------------------- */

static struct gpu_set *find_set(const struct engine_gpus *d, const struct set *set)
{
    struct gpu_set *s = d->sets;
    while (s && s->set != set)
        s = s->next;
    return s;
}

static struct gpu_set *make_set(struct engine *engine, struct set *set, struct err *e)
{
    struct gpu_set *s = find_set(engine->gpus, set);
    uint32_t head = names_find(engine, set, SHM_DEVICE_NAME);
    if (s)
        return s;
    if (head == UINT32_MAX) {
        err_set(e, ERR_PROTOCOL, "process set %d has no order of devices", set->team->id);
        return NULL;
    }
    s = calloc(1, sizeof *s + set->team->members * sizeof s->member[0]);
    if (!s) {
        err_set(e, ERR_MEMORY, "no memory for devices of process set %d", set->team->id);
        return NULL;
    }
    s->set = set;
    set->lasts = true;
    s->head = head;
    s->next = engine->gpus->sets;
    return engine->gpus->sets = s;
}

static uint32_t member_of(const struct set *set, uint32_t local)
{
    return set ? ranks_find(set->team->local, set->team->members, local) : UINT32_MAX;
}

static int open_event(const struct driver *d, const uint8_t from[64], cu_event *event, struct err *e)
{
    struct cu_ipc_event handle;
    memcpy(&handle, from, sizeof handle);
    if (driver_check(d, d->cuIpcOpenEventHandle(event, handle), e, "opening an event in the engine") == 0)
        return 0;
    *event = NULL;
    return -1;
}

/* Before the rank hears that it has left: then its own go. */
static void close_events(const struct engine_gpus *d, struct gpu_member *gpu_member)
{
    if (!gpu_member->given || engine_gpu_enter(d, gpu_member->gpu, NULL) != 0)
        return;
    d->driver->cuEventDestroy(gpu_member->given);
    if (gpu_member->done)
        d->driver->cuEventDestroy(gpu_member->done);
    gpu_member->given = gpu_member->done = NULL;
    engine_gpu_leave(d);
}

static int open_member(struct engine_gpus *d, struct gpu_set *s, struct gpu_member *gpu_member,
                       const struct worker_device *q, struct err *e)
{
    const struct opened_gpu *g = &d->gpu[q->gpu];
    struct communicator_member who = {.d = d->driver,
                                      .n = d->nccl,
                                      .pack = g->pack,
                                      .context = g->context,
                                      .ordinal = g->what.device,
                                      .rank = (int)q->rank,
                                      .size = (int)q->size,
                                      .fuse = q->fuse};
    char label[24];
    snprintf(label, sizeof label, "set %d", s->set->team->id);
    struct nccl_id id;
    memcpy(&id, q->nccl_id, sizeof id);
    gpu_member->gpu = q->gpu;
    if (engine_gpu_enter(d, q->gpu, e) != 0)
        return -1;
    int rc = driver_stream(d->driver, &gpu_member->stream, e);
    if (rc == 0)
        rc = open_event(d->driver, q->given, &gpu_member->given, e);
    if (rc == 0)
        rc = open_event(d->driver, q->done, &gpu_member->done, e);
    engine_gpu_leave(d);
    if (rc != 0)
        return -1;
    gpu_member->communicator = communicator_new(&who, label, e);
    return gpu_member->communicator ? communicator_connect(gpu_member->communicator, &id, e) : -1;
}

/* The member's operations have ended, or a thread ends them. */
static void close_member(const struct engine_gpus *d, struct gpu_member *gpu_member)
{
    struct err e = ERR_INIT;
    if (!gpu_member->stream)
        return;
    communicator_free(gpu_member->communicator);
    close_events(d, gpu_member);
    if (engine_gpu_enter(d, gpu_member->gpu, &e) == 0) {
        d->driver->cuStreamDestroy(gpu_member->stream);
        engine_gpu_leave(d);
    }
    free(gpu_member->call.operation);
    free(gpu_member->call.counts);
    *gpu_member = (struct gpu_member){.gpu = 0};
}

int engine_gpu_join(struct engine *engine, uint32_t member, struct set *set, const struct worker_device *q,
                    struct err *e)
{
    struct engine_gpus *d = engine->gpus;
    uint32_t m = member_of(set, member);
    if (q->fuse > engine->region.fuse)
        return err_set(e, ERR_PROTOCOL, "the rank wants %u bytes for small tensors, more than the job has",
                       q->fuse);
    if (m == UINT32_MAX || q->size != set->team->size || q->rank != set->team->member[m])
        return err_set(e, ERR_PROTOCOL, "the rank asks for a process set that it is not in");
    if (d->aborted)
        return err_set(e, ERR_CLOSED, "the job has failed");
    struct gpu_set *s = make_set(engine, set, e);
    if (!s)
        return -1;
    if (s->member[m].stream)
        return err_set(e, ERR_PROTOCOL, "it has joined process set %d already", set->team->id);
    atomic_store(&shared_slot(engine, s->head, set, m)->launched, (uint64_t)COMMUNICATOR_NONE);
    if (open_member(d, s, &s->member[m], q, e) == 0)
        return 0;
    close_member(d, &s->member[m]);
    return -1;
}

struct gpu_member *engine_gpu_member_of(const struct engine *engine, uint32_t member, int32_t id)
{
    struct gpu_set *s = engine->gpus->sets;
    while (s && s->set->team->id != id) /* it may be removed by now */
        s = s->next;
    uint32_t m = s ? member_of(s->set, member) : UINT32_MAX;
    return m != UINT32_MAX && s->member[m].stream ? &s->member[m] : NULL;
}

int engine_gpu_leave_set(struct engine *engine, uint32_t member, int32_t id, struct err *e)
{
    struct gpu_member *gpu_member = engine_gpu_member_of(engine, member, id);
    if (!gpu_member)
        return err_set(e, ERR_PROTOCOL, "the rank asks for a process set that it is not in");
    gpu_member->leaves = true;
    if (gpu_member->pending || communicator_finish(gpu_member->communicator, e) != 0)
        communicator_abort(gpu_member->communicator, 0);
    return 0;
}

bool engine_gpu_is_idle(const struct engine *engine, uint32_t member)
{
    for (const struct gpu_set *s = engine->gpus->sets; s; s = s->next) {
        uint32_t m = member_of(s->set, member);
        if (m != UINT32_MAX && s->member[m].stream)
            return false;
    }
    return true;
}

static void abort_all(struct engine_gpus *d)
{
    for (struct gpu_set *s = d->sets; s; s = s->next)
        for (uint32_t m = 0; m < s->set->team->members; m++)
            if (s->member[m].stream)
                communicator_abort(s->member[m].communicator, 0);
}

void engine_gpu_sets_free(struct engine *engine)
{
    uint64_t until = clock_now() + ABORT_NS;
    abort_all(engine->gpus);
    struct gpu_set *s;
    while ((s = engine->gpus->sets) != NULL) {
        engine->gpus->sets = s->next;
        for (uint32_t m = 0; m < s->set->team->members; m++) {
            uint64_t now = clock_now();
            if (s->member[m].stream) {
                communicator_abort(s->member[m].communicator,
                                   now < until ? (int)((until - now) / NSEC_PER_MSEC) : 0);
                engine_gpu_settle(engine->gpus, s->member[m].gpu, s->member[m].stream, until);
            }
            close_member(engine->gpus, &s->member[m]);
        }
        free(s);
    }
}

void engine_gpus_abort(struct engine *engine)
{
    if (!engine->gpus || engine->gpus->aborted)
        return;
    engine->gpus->aborted = true;
    abort_all(engine->gpus);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static void fail_rank(struct engine *engine, const struct set *set, uint32_t m, const char *why)
{
    uint32_t rank = team_rank(set->team, m);
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "rank %u on %.100s: %.300s", rank, engine->host[engine->self].name, why);
    engine_poison(engine, HVD_ERR_PEER, text);
    engine_gpus_abort(engine);
}

/* A member's next operation. */
static void take_operation(struct engine *engine, uint32_t member, uint32_t slot)
{
    struct set *set = engine->names.name[slot].text ? engine->names.name[slot].set : NULL;
    struct gpu_set *s = set ? find_set(engine->gpus, set) : NULL;
    uint32_t m = member_of(set, member);
    struct gpu_member *gpu_member = s && m != UINT32_MAX ? &s->member[m] : NULL;
    struct err e = ERR_INIT;
    if (!gpu_member || !gpu_member->stream || gpu_member->pending || gpu_member->leaves) {
        err_set(&e, ERR_PROTOCOL, "rank %u on %.100s asks for an operation on a GPU out of turn",
                engine->region.rank[member], engine->host[engine->self].name);
        engine_poison(engine, HVD_ERR_PEER, e.text);
        engine_gpus_abort(engine);
        return;
    }
    gpu_member->slot = slot;
    gpu_member->pending = true;
    if (engine_gpu_take_call(engine, member, gpu_member, (int)set->team->member[m], (int)set->team->size,
                             atomic_load(&shared_slot(engine, slot, set, m)->call), &e) != 0)
        fail_rank(engine, set, m, e.text);
}

static void collect_operations(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->workers.members; i++) {
        uint32_t slot;
        int rc;
        while (!engine->gpus->aborted &&
               (rc = ring_take(&region_mailbox(&engine->region, i)->launch, &slot)) != 0)
            if (rc == 1)
                take_operation(engine, i, slot);
            else
                fail_rank(engine, engine->sets.world, i, "has overwritten its shared memory");
    }
}

static int launch_operation(const struct engine_gpus *d, struct gpu_member *gpu_member, struct err *e)
{
    int rc = engine_gpu_enter(d, gpu_member->gpu, e);
    if (rc == 0) {
        rc = driver_check(d->driver, d->driver->cuStreamWaitEvent(gpu_member->stream, gpu_member->given, 0),
                          e, "letting a stream wait for an event");
        engine_gpu_leave(d);
    }
    if (rc == 0)
        rc = communicator_run(gpu_member->communicator, gpu_member->call.operation,
                              gpu_member->call.operations, gpu_member->stream, e);
    gpu_member->launching = rc == 0;
    return rc;
}

/* Begins the operation that a member has given, if it can be begun. Others of its team may come later: NCCL's
 * calls wait for none. */
static void begin_operation(struct engine *engine, struct gpu_set *s, uint32_t m, uint64_t now)
{
    struct gpu_member *gpu_member = &s->member[m];
    struct err e = ERR_INIT;
    if (!gpu_member->pending || gpu_member->launching || engine->gpus->aborted ||
        communicator_state(gpu_member->communicator) != COMMUNICATOR_READY)
        return;
    engine->gpus->since = now;
    engine_gpu_close_idle(engine, gpu_member->gpu);
    if (launch_operation(engine->gpus, gpu_member, &e) != 0)
        fail_rank(engine, s->set, m, e.text);
}

/* It is in the stream. */
static void end_operation(struct engine *engine, struct gpu_set *s, uint32_t m)
{
    struct engine_gpus *d = engine->gpus;
    struct gpu_member *gpu_member = &s->member[m];
    struct err e = ERR_INIT;
    int rc = engine_gpu_enter(d, gpu_member->gpu, &e);
    if (rc == 0) {
        rc = driver_check(d->driver, d->driver->cuEventRecord(gpu_member->done, gpu_member->stream), &e,
                          "using a GPU in the engine");
        engine_gpu_leave(d);
    }
    if (rc != 0) {
        fail_rank(engine, s->set, m, e.text);
        return;
    }
    gpu_member->pending = gpu_member->launching = false;
    atomic_store(&shared_slot(engine, gpu_member->slot, s->set, m)->launched,
                 shm_tagged(gpu_member->operation, 1));
    ring_member(engine, s->set, m);
}

/* true: something is on its way that nobody rings for. */
static bool look_at(struct engine *engine, struct gpu_set *s, uint32_t m)
{
    struct gpu_member *gpu_member = &s->member[m];
    struct err e = ERR_INIT;
    enum communicator_state before = communicator_state(gpu_member->communicator);
    if (before == COMMUNICATOR_READY && !gpu_member->launching)
        return false;
    enum communicator_state now = communicator_poll(gpu_member->communicator, &e);
    if (now == COMMUNICATOR_FAILED && before == COMMUNICATOR_CONNECTING)
        log_warning("rank %u: %s", team_rank(s->set->team, m), e.text);
    else if (now == COMMUNICATOR_FAILED && !gpu_member->leaves && before == COMMUNICATOR_LAUNCHING)
        fail_rank(engine, s->set, m, e.text);
    else if (now == COMMUNICATOR_READY && gpu_member->launching)
        end_operation(engine, s, m);
    bool has_left = gpu_member->leaves && (now == COMMUNICATOR_FINISHED || now == COMMUNICATOR_ABORTED);
    if (has_left)
        close_events(engine->gpus, gpu_member);
    tell_state(engine, s, m);
    if (gpu_member->leaves && now == COMMUNICATOR_FAILED)
        communicator_abort(gpu_member->communicator, 0);
    if (has_left) {
        close_member(engine->gpus, gpu_member);
        return false;
    }
    return now != COMMUNICATOR_READY && now != COMMUNICATOR_FAILED && now != COMMUNICATOR_ABORTED;
}

/* A kernel that has failed ends the streams of its GPU's context, and nobody is told. */
static int watch_stream(const struct engine_gpus *d, const struct gpu_member *gpu_member, struct err *e)
{
    int rc = engine_gpu_enter(d, gpu_member->gpu, e);
    if (rc == 0) {
        cu_result result = d->driver->cuStreamQuery(gpu_member->stream);
        rc = result == CU_NOT_READY ? 0 : driver_check(d->driver, result, e, "using a GPU in the engine");
        engine_gpu_leave(d);
    }
    return rc;
}

/* NCCL may notice by itself that a rank has gone. */
static void watch_set(struct engine *engine, struct gpu_set *s)
{
    struct err e = ERR_INIT;
    for (uint32_t m = 0; m < s->set->team->members && !engine->gpus->aborted; m++) {
        struct gpu_member *gpu_member = &s->member[m];
        bool bad = gpu_member->stream && watch_stream(engine->gpus, gpu_member, &e) != 0;
        if (!bad && gpu_member->stream && communicator_state(gpu_member->communicator) == COMMUNICATOR_READY)
            bad = communicator_poll(gpu_member->communicator, &e) == COMMUNICATOR_FAILED;
        if (bad)
            fail_rank(engine, s->set, m, e.text);
    }
}

bool engine_gpus_waiting(const struct engine *engine)
{
    for (uint32_t i = 0; engine->gpus && i < engine->workers.members; i++)
        if (!ring_empty(&region_mailbox(&engine->region, i)->launch))
            return true;
    return false;
}

int engine_gpus_progress(struct engine *engine, uint64_t now)
{
    struct engine_gpus *d = engine->gpus;
    bool busy = false;
    if (d)
        engine_gpu_open_progress(engine);
    if (!d || !d->driver)
        return -1;
    bool closing = engine_gpu_close_progress(engine, now);
    collect_operations(engine);
    bool watching = now - d->watched > WATCH_NS;
    for (struct gpu_set *s = d->sets; s; s = s->next) {
        for (uint32_t m = 0; m < s->set->team->members; m++)
            begin_operation(engine, s, m, now);
        for (uint32_t m = 0; m < s->set->team->members; m++)
            busy = (s->member[m].stream && look_at(engine, s, m)) || busy;
        if (watching)
            watch_set(engine, s);
    }
    if (watching)
        d->watched = now;
    return !busy ? (closing ? ENGINE_GPU_CLOSE_MS : -1) : now - d->since < ENGINE_GPU_LAUNCH_NS ? 0 : LOOK_MS;
}
