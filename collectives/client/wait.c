/* Progress of a pending operation, and waiting for it.
 *
 * Nobody makes progress for a rank on one node but the ranks themselves: a waiting one looks who has arrived,
 * checks that all agree, takes chunks while there are any, and copies its result out. It spins for a moment
 * (a hand-over between two processors takes a fraction of a microsecond, a wake-up of a sleeper ten), then
 * sleeps on its bell.
 *
 * Every wait ends: by the result; by the poison that the engine puts into the region when a rank or host is
 * gone; or, when the engine itself is gone or has not moved its beat for WATCHDOG_MS, with HVD_ERR_ENGINE.
 * The watchdog counts its own slices of time, so a job that was stopped and continued as a whole is not taken
 * for a dead one. Polling ends in the same way; who polls rarely needs WATCHDOG_MS / SLICE_MS polls. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/copy.h"
#include "collectives/kernels/dtype.h"
#include "collectives/client/counts.h"
#include "collectives/client/gpu/gpu.h"
#include "collectives/shm/doorbell.h"
#include "collectives/local/pipeline.h"
#include "common/base/clock.h"

#define LOOKS_FIRST    50    /* about 2 us; for ranks that each have a processor */
#define LOOKS          10    /* of theirs after each yield; where they share processors one is enough */
#define YIELDS         30    /* for the others' arrival */
#define YIELDS_WORK    200   /* for their part of the work: about 150 us */
#define YIELDS_PATIENT 50    /* of them; then what chunks_pick leaves to other ranks at first is taken, too */
#define CROWD_PATIENT  15    /* the same, of YIELDS, where ranks share processors */
#define QUICK_NS       50000 /* an arrival that came in this time, for each rank that shares a processor */
#define SPIN_NS        30000 /* for the engine, which has to ask other hosts */
#define SLICE_MS       250
#define WATCHDOG_MS    10000

void take_result(struct tensor *t, const void *from, size_t bytes)
{
    uint64_t since = timeline_clock();

    if (t->group)
        group_unpack(t->group, from);
    else if (t->out && bytes > 0)
        copy_bytes(t->out, from, bytes);
    timeline(t, TIMELINE_OUT, since);
}

/* How many rows came from each rank, for who wants to know. */
static void tell_rows(const struct tensor *t)
{
    const struct tensor_view *v = &t->view;

    for (uint32_t i = 0; t->rows && t->receipt && i < v->team->size; i++)
        t->rows[i] = t->receipt[i] / t->op.row;
    for (uint32_t i = 0; t->rows && !t->receipt && i < v->team->size; i++)
        t->rows[i] =
            (t->op.kind == SHM_ALLGATHER ? v->count[i] : v->split[(size_t)i * v->team->size + t->index]) /
            t->op.row;
}

/* What chunks have made of this rank's result. */
static void take_landed(struct tensor *t)
{
    const struct tensor_view *v = &t->view;
    size_t bytes = v->get[v->me] * dtype_size(t->op.dtype);

    if (t->op.kind == SHM_ALLREDUCE_SHARED)
        *t->result = v->out[0];
    else if (t->where.is_private || v->streamed)
        return; /* I have put it where it belongs */
    else if (t->landing)
        take_result(t, t->landing, bytes);
    else if (v->out[v->me] == tensor_scratch(v, v->me))
        take_result(t, v->out[v->me], bytes);
}

static void end(struct tensor *t, int status)
{
    if (__builtin_expect(t->phase == PHASE_DEVICE, 0) && device_ended(t))
        tell_rows(t);
    t->status = status;
    t->phase = PHASE_ENDED;
    if (status == HVD_SUCCESS)
        count_ended(t);
    if (!t->persistent)
        release_locked(t);
    timeline(t, TIMELINE_ENDED, 0);
}

static void end_poisoned(struct tensor *t)
{
    end(t, region_poison_read(&client.region, t->text, sizeof t->text));
}

/* All elements are in the entries: my result, straight to where it is wanted. */
static void compute(struct tensor *t)
{
    uint8_t packed[SHM_INLINE_MAX];

    tensor_compute(&t->view, t->group ? packed : t->out);
    if (t->group)
        take_result(t, packed, 0);
    if (t->rows)
        tell_rows(t);
    if (t->result)
        *t->result = t->out;
}

/* All members are here: one host, so nobody else needs to be asked. */
static void open_local(struct tensor *t)
{
    struct tensor_resolver resolver = {arena_resolve, NULL};
    int status = tensor_open(&t->view, t->name, &resolver, t->text, sizeof t->text);

    if (status != HVD_SUCCESS && !tensor_still_here(&t->view))
        return; /* what they disagree about is another operation; this one will not be complete any more */
    if (status == HVD_ERR_INVALID && client.rpc_broken) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": this host's engine has gone", t->name);
        status = HVD_ERR_ENGINE;
        lose_engine();
    }
    if (status == HVD_SUCCESS)
        timeline(t, TIMELINE_AGREED, 0);
    if (status == HVD_ERR_INVALID && region_poisoned(&client.region)) {
        end_poisoned(t); /* what I could not reach, and have told the engine */
    } else if (status != HVD_SUCCESS) {
        end(t, status);
    } else if (t->view.place == SHM_INLINE) {
        compute(t);
        end(t, HVD_SUCCESS);
    } else {
        t->phase = PHASE_WORK;
    }
}

/* A result of a kind in which each rank has its own. */
static void take_own(struct tensor *t)
{
    uint64_t bytes = t->receipt ? 0 : t->room;

    for (uint32_t i = 0; t->receipt && i < t->view.team->size; i++)
        bytes += t->receipt[i] * dtype_size(t->op.dtype);
    if (bytes > t->room)
        bytes = t->room; /* the engine is broken: it would have been refused */
    if (t->landing)
        take_result(t, t->landing, bytes);
    else if (t->room <= SHM_INLINE_MAX)
        take_result(t, tensor_scratch(&t->view, t->view.me), bytes);
    tell_rows(t);
}

/* The first member's memory holds the result of all. An engine that ended after it had settled can no longer
 * say where that memory is. */
static int take_shared(struct tensor *t)
{
    uint64_t bytes = tensor_bytes(&t->op);

    if (bytes <= SHM_INLINE_MAX)
        memcpy(t->out, t->view.slot->result, bytes);
    *t->result =
        bytes <= SHM_INLINE_MAX ? t->out : arena_resolve(NULL, tensor_out_address(&t->view, 0), bytes);
    if (*t->result || bytes == 0)
        return HVD_SUCCESS;
    if (region_poisoned(&client.region))
        return region_poison_read(&client.region, t->text, sizeof t->text);
    snprintf(t->text, sizeof t->text,
             "tensor \"%s\": its result is out of reach: this host's engine has gone", t->name);
    return HVD_ERR_ENGINE;
}

/* The engine has written status and result before `settled`. */
static void take_settled(struct tensor *t)
{
    const struct shm_slot *slot = t->view.slot;
    int status = slot->status;
    size_t bytes = t->bytes;

    timeline(t, TIMELINE_AGREED, slot->due);
    if (status != HVD_SUCCESS)
        snprintf(t->text, sizeof t->text, "%.*s", (int)sizeof t->text - 1, (const char *)slot->result);
    else if (op_scatters(t->op.kind))
        take_own(t);
    else if (t->op.kind == SHM_ALLREDUCE_SHARED)
        status = take_shared(t);
    else if (bytes <= SHM_INLINE_MAX)
        take_result(t, slot->result, bytes);
    else if (t->landing)
        take_result(t, t->landing, bytes);
    end(t, status <= 0 ? status : HVD_ERR_ENGINE);
}

static bool done(const struct tensor_view *v)
{
    return v->streamed ? stream_ended(v) : tensor_done(v);
}

static bool has_work(const struct tensor_view *v)
{
    return v->streamed ? stream_has_step(v) : tensor_has_chunk(v);
}

/* All of the work is done. Who has heard of a failure before has left, and may have changed what it gave. */
static void end_worked(struct tensor *t)
{
    if (region_poisoned(&client.region)) {
        end_poisoned(t);
    } else if (tensor_was_left(&t->view)) {
        end_without_engine(t);
    } else {
        take_landed(t);
        tell_rows(t);
        end(t, HVD_SUCCESS);
    }
}

/* Does what can be done now. true: the operation has ended. */
static bool step(struct tensor *t)
{
    int status;

    switch (t->phase) {
    case PHASE_ARRIVE:
        if (tensor_arrived(&t->view))
            open_local(t);
        else if (t->where.is_streamed && stream_must_stage(&t->view))
            stage_locked(t);
        break;
    case PHASE_WORK:
        if (!(t->view.streamed ? stream_step(&t->view) : tensor_work(&t->view)) && done(&t->view))
            end_worked(t);
        break;
    case PHASE_REMOTE:
        if (atomic_load(&t->view.slot->settled) == t->sequence)
            take_settled(t);
        break;
    case PHASE_DEVICE:
        if ((status = device_step(t)) <= 0)
            end(t, status);
        else if (t->phase != PHASE_DEVICE)
            return step(t); /* it has become one of the host's */
        break;
    case PHASE_IDLE:
    case PHASE_ENDED:
        break;
    }
    if (t->phase == PHASE_ENDED)
        return true;
    if (region_poisoned(&client.region))
        end_poisoned(t);
    return t->phase == PHASE_ENDED;
}

void finish_locked(struct tensor *t)
{
    while (!step(t))
        ;
}

/* There is a chunk to take now, or an end to see. */
static bool worth_another_step(struct tensor *t)
{
    return t->phase == PHASE_WORK && (has_work(&t->view) || done(&t->view));
}

bool progress_locked(struct tensor *t)
{
    bool ended;

    while (!(ended = step(t)) && worth_another_step(t))
        ;
    return ended;
}

static bool engine_gone(void)
{
    struct pollfd p = {.fd = client.socket, .events = 0};

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

void lose_engine(void)
{
    int ready = CLIENT_READY; /* hvd_join says at its end what becomes of it */

    atomic_store(&client.mailbox->left, 1);
    alarm_ring(client.mailbox); /* what devices do must not go on */
    atomic_compare_exchange_strong(&client.state, &ready, CLIENT_STRANDED);
}

void end_without_engine(struct tensor *t)
{
    lose_engine();
    snprintf(t->text, sizeof t->text, "tensor \"%s\": this host's engine has gone or does not move", t->name);
    end(t, HVD_ERR_ENGINE);
}

/* To be called once a slice. */
bool engine_stopped(struct watchdog *w)
{
    uint32_t beat = atomic_load(&client.region.header->beat);

    if (engine_gone())
        return true;
    w->quiet_ms = beat == w->beat ? w->quiet_ms + SLICE_MS : 0;
    w->beat = beat;
    return w->quiet_ms >= WATCHDOG_MS;
}

/* To be called at each poll. However long nobody polled, that counts as one slice. */
static bool engine_stopped_polling(struct watchdog *w)
{
    uint64_t now = clock_now();

    if (now - w->at < SLICE_MS * NSEC_PER_MSEC)
        return false;
    w->at = now;
    return engine_stopped(w);
}

bool wait_for_bell(uint32_t prepared, struct watchdog *w)
{
    return doorbell_sleep(client.mailbox, prepared, SLICE_MS) || !engine_stopped(w);
}

static void sleep_once(struct tensor *t, struct watchdog *w)
{
    uint32_t prepared = doorbell_prepare(client.mailbox);

    if (step(t) || worth_another_step(t)) {
        doorbell_cancel(client.mailbox);
        return;
    }
    if (!wait_for_bell(prepared, w) && !step(t))
        end_without_engine(t);
}

/* The other ranks of this host: something has changed. */
static bool moved(struct tensor *t, enum phase phase)
{
    return step(t) || t->phase != phase || worth_another_step(t);
}

/* Between looks it gives its processor to whoever wants it. true: it has moved. */
static bool look_and_yield(struct tensor *t, enum phase phase)
{
    bool apart = phase != PHASE_ARRIVE && client.crowd == 1;
    int yields = apart ? YIELDS_WORK : YIELDS;
    int patient_until = yields - (apart ? YIELDS_PATIENT : CROWD_PATIENT);

    for (; yields > 0; yields--, doorbell_relax(true)) {
        if (phase == PHASE_WORK && yields == patient_until)
            t->view.patient = false;
        if (moved(t, phase))
            return true;
        for (int look = client.crowd > 1 ? LOOKS : 0; look < LOOKS; look++) {
            doorbell_relax(false);
            if (moved(t, phase))
                return true;
        }
    }
    return false;
}

/* The same for the others' arrival, while that pays. */
static bool look_patiently(struct tensor *t)
{
    uint64_t since;
    bool came;

    if (!patience_has(&t->patience, t->sequence))
        return false;
    since = clock_now();
    came = look_and_yield(t, PHASE_ARRIVE);
    patience_learn(&t->patience, came && clock_now() - since < QUICK_NS * client.crowd);
    return came;
}

/* true: it has moved; false: it is time to sleep. */
static bool spin_for_ranks(struct tensor *t)
{
    enum phase phase = t->phase;

    for (int look = client.crowd > 1 ? LOOKS_FIRST : 0; look < LOOKS_FIRST; look++, doorbell_relax(false))
        if (moved(t, phase))
            return true;
    return phase == PHASE_ARRIVE ? look_patiently(t) : look_and_yield(t, phase);
}

/* The engine, and other hosts: longer, but only while the engine finds that it pays. */
static bool spin_for_engine(struct tensor *t)
{
    uint64_t until;

    if (client.crowd > 1 || !atomic_load_explicit(&client.region.header->calm, memory_order_relaxed))
        return false;
    for (until = clock_now() + SPIN_NS; clock_now() < until; doorbell_relax(false))
        if (step(t))
            return true;
    return false;
}

static void wait_until_ended(struct tensor *t)
{
    struct watchdog w = {0};

    t->view.patient = true;
    while (!step(t))
        if (!(t->phase >= PHASE_REMOTE && !team_is_here(t->view.team) ? spin_for_engine(t)
                                                                      : spin_for_ranks(t)))
            sleep_once(t, &w);
}

__attribute__((cold, noinline)) static void wait_for_device(struct tensor *t)
{
    device_waits(t, true);
    wait_until_ended(t);
    device_waits(t, false);
}

int wait_locked(struct tensor *t)
{
    int status;

    timeline(t, TIMELINE_WAIT, 0);
    if (__builtin_expect(t->op.device, 0))
        wait_for_device(t);
    if (t->phase != PHASE_ENDED)
        wait_until_ended(t);
    status = t->status;
    t->phase = PHASE_IDLE;
    return status == HVD_SUCCESS ? status : fail(status, "%s", t->text);
}

int lock_handle(hvd_handle handle, bool wait, struct tensor **found)
{
    struct tensor *t;
    int status = client_check();

    if (status)
        return status;
    t = tensor_by_handle(handle);
    if (t)
        tensor_foresee(t);
    if (t && wait)
        pthread_mutex_lock(&t->lock);
    else if (t && !lock_unless_waited(t))
        t = NULL, status = HANDLE_HELD; /* somebody waits for it */
    if (t && (t->phase != PHASE_IDLE || t->persistent) &&
        t->generation == (uint32_t)(handle / (hvd_handle)SHM_SLOTS)) {
        *found = t;
        return HVD_SUCCESS;
    }
    if (t && join_has_aside(t, handle)) {
        *found = t;
        return HANDLE_ASIDE;
    }
    if (t)
        pthread_mutex_unlock(&t->lock);
    return status ? status
                  : fail(HVD_ERR_INVALID, "handle %lld names no pending operation", (long long)handle);
}

int hvd_poll(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_handle(handle, false, &t);
    bool ended;

    if (status) {
        if (status == HANDLE_ASIDE)
            pthread_mutex_unlock(&t->lock);
        return status > 0 ? status == HANDLE_ASIDE : status;
    }
    ended = t->phase == PHASE_ENDED || t->phase == PHASE_IDLE || step(t);
    if (!ended && engine_stopped_polling(&t->polls) && !step(t))
        end_without_engine(t);
    ended = t->phase == PHASE_ENDED || t->phase == PHASE_IDLE;
    pthread_mutex_unlock(&t->lock);
    return ended;
}

int hvd_wait(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_handle(handle, true, &t);

    if (status) {
        if (status == HANDLE_ASIDE) {
            status = join_wait_aside(t);
            pthread_mutex_unlock(&t->lock);
        }
        return status;
    }
    if (t->phase != PHASE_IDLE) /* a persistent one that was not started */
        status = wait_locked(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}
