/* Progress of a pending operation, and waiting for it.
 *
 * On one host only the ranks themselves make progress. A waiting rank looks for the arrival of the others,
 * checks that all agree, does chunks while there are any, and copies its result out. It looks for a moment,
 * then yields between looks, then sleeps on its bell (collectives/shm/patience.h says when).
 *
 * Every wait ends: by the result; by the poison that the engine puts into the region when a rank or host is
 * lost; or with HVD_ERR_ENGINE, when the engine has ended or its beat has stood still for 10 s. The
 * watchdog counts its own slices of time, so a job that was stopped and continued as a whole is not taken
 * for a dead job. Polling ends in the same way; a program that polls rarely needs 40 polls for that. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/copy.h"
#include "collectives/kernels/dtype.h"
#include "collectives/client/arena.h"
#include "collectives/client/counts.h"
#include "collectives/client/flight.h"
#include "collectives/client/group.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/patience.h"
#include "collectives/local/pipeline.h"
#include "common/base/clock.h"

#define LOOKS_FIRST    50      /* about 2 us; where no other rank needs this processor */
#define LOOKS          10      /* of theirs after each yield; where they share processors one is enough */
#define YIELD_NS       1000000 /* yields for so long: many times as long as a sleep costs */
#define APART_NS       6000000 /* the same, for ranks of a host that each have a processor (patience.h) */
#define YIELDS_PATIENT 150     /* then what chunks_pick leaves to other ranks at first is taken, too */
#define CROWD_PATIENT  15      /* the same, where ranks share processors */
#define SPIN_NS        30000   /* without yields: as long as it takes to be woken */
#define LOOK_BYTES     16384   /* more between hosts takes so long that a rank sleeps at once */

static void copy_result(struct tensor *t, const void *from, size_t bytes)
{
    uint64_t since = read_watch_clock();
    if (t->op.group)
        group_unpack(t->op.group, from);
    else if (t->op.out && bytes > 0)
        copy_bytes(t->op.out, from, bytes);
    report_point(t, POINT_COPIED_OUT, since);
}

/* Tells the caller the number of rows that came from each rank. */
static void report_rows(const struct tensor *t)
{
    const struct tensor_view *v = &t->view;
    for (uint32_t i = 0; t->op.rows && t->op.recv_counts && i < v->team->size; i++)
        t->op.rows[i] = t->op.recv_counts[i] / t->op.what.row;
    for (uint32_t i = 0; t->op.rows && !t->op.recv_counts && i < v->team->size; i++)
        t->op.rows[i] = (t->op.what.kind == SHM_ALLGATHER ? v->count[i]
                                                          : v->split[(size_t)i * v->team->size + t->index]) /
                        t->op.what.row;
}

/* The chunks have made this rank's result. */
static void take_result(struct tensor *t)
{
    const struct tensor_view *v = &t->view;
    size_t bytes = v->get[v->me] * dtype_size(t->op.what.dtype);
    if (t->op.what.kind == SHM_ALLREDUCE_SHARED)
        *t->op.result = v->out[0];
    else if (t->op.where.is_private || v->streamed)
        return; /* I have put it where it belongs */
    else if (t->op.bounce_out)
        copy_result(t, t->op.bounce_out, bytes);
    else if (v->out[v->me] == tensor_scratch(v, v->me))
        copy_result(t, v->out[v->me], bytes);
}

static void end_operation(struct tensor *t, int status)
{
    if (t->phase == PHASE_LINK && status != HVD_SUCCESS)
        rank_link_abandon(t->link);
    if (__builtin_expect(t->phase == PHASE_PATH, 0) && t->op.path->ended(t))
        report_rows(t);
    t->op.status = status;
    t->phase = PHASE_ENDED;
    if (status == HVD_SUCCESS)
        count_ended(t);
    flight_ended(t);
    if (!t->persistent)
        operation_release(t);
    report_point(t, POINT_ENDED, 0);
}

static void end_poisoned(struct tensor *t)
{
    end_operation(t, region_poison_read(&client.region, t->text, sizeof t->text));
}

/* All elements are in the entries: computes the result in its final place. */
static void compute_inline(struct tensor *t)
{
    uint8_t packed[SHM_INLINE_MAX];
    tensor_compute(&t->view, t->op.group ? packed : t->op.out);
    if (t->op.group)
        copy_result(t, packed, 0);
    if (t->op.rows)
        report_rows(t);
    if (t->op.result)
        *t->op.result = t->op.out;
}

/* Of results that come by pieces only the place is made. */
static void end_sized(struct tensor *t)
{
    int status = sized_take(t);

    if (t->view.streamed)
        t->phase = PHASE_WORK;
    else
        end_operation(t, status);
    if (t->phase == PHASE_ENDED)
        report_rows(t);
}

/* All members are here, and all are on this host: no other host needs to be asked. */
static void open_local(struct tensor *t)
{
    struct tensor_resolver resolver = {arena_resolve, NULL};
    tensor_claim_next(&t->view);
    int status = tensor_open(&t->view, t->name, &resolver, t->text, sizeof t->text);
    if (status != HVD_SUCCESS && !tensor_still_here(&t->view))
        return; /* the ranks disagree about another operation; this operation will not complete any more */
    /* A question about memory that a death cut short says nothing of the engine. */
    if (status == HVD_ERR_INVALID && client.rpc_broken && !region_poisoned(&client.region)) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": this host's engine has gone", t->name);
        status = HVD_ERR_ENGINE;
        engine_lose();
    }
    if (status == HVD_SUCCESS)
        report_point(t, POINT_AGREED, 0);
    if (status == HVD_ERR_INVALID && region_poisoned(&client.region)) {
        end_poisoned(t); /* memory that this rank could not reach, and has told the engine */
    } else if (status != HVD_SUCCESS) {
        end_operation(t, status);
    } else if (is_sized(&t->op)) {
        end_sized(t);
    } else if (t->view.place == SHM_INLINE) {
        compute_inline(t);
        end_operation(t, HVD_SUCCESS);
    } else {
        t->phase = PHASE_WORK;
    }
}

/* A result of a kind in which each rank has its own. */
static void take_own_result(struct tensor *t)
{
    uint64_t bytes = t->op.recv_counts ? 0 : t->op.capacity;
    for (uint32_t i = 0; t->op.recv_counts && i < t->view.team->size; i++)
        bytes += t->op.recv_counts[i] * dtype_size(t->op.what.dtype);
    if (bytes > t->op.capacity)
        bytes = t->op.capacity; /* the engine is broken: it would have been refused */
    if (t->op.bounce_out)
        copy_result(t, t->op.bounce_out, bytes);
    else if (t->op.capacity <= SHM_INLINE_MAX)
        copy_result(t, tensor_scratch(&t->view, t->view.me), bytes);
    report_rows(t);
}

/* The first member's memory holds the result of all. An engine that ended after it had settled can no longer
 * say where that memory is. */
static int take_shared_result(struct tensor *t)
{
    uint64_t bytes = tensor_bytes(&t->op.what);
    if (bytes <= SHM_INLINE_MAX)
        memcpy(t->op.out, t->view.slot->result, bytes);
    *t->op.result =
        bytes <= SHM_INLINE_MAX ? t->op.out : arena_resolve(NULL, tensor_out_address(&t->view, 0), bytes);
    if (*t->op.result || bytes == 0)
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
    size_t bytes = t->op.bytes;
    report_point(t, POINT_AGREED, slot->due);
    if (status != HVD_SUCCESS)
        snprintf(t->text, sizeof t->text, "%.*s", (int)sizeof t->text - 1, (const char *)slot->result);
    else if (is_sized(&t->op))
        status = sized_take_settled(t);
    else if (t->view.stream.host)
        streamed_take(t);
    else if (op_scatters(t->op.what.kind))
        take_own_result(t);
    else if (t->op.what.kind == SHM_ALLREDUCE_SHARED)
        status = take_shared_result(t);
    else if (bytes <= SHM_INLINE_MAX)
        copy_result(t, slot->result, bytes);
    else if (t->op.bounce_out)
        copy_result(t, t->op.bounce_out, bytes);
    if (t->view.stream.host)
        stream_leave(&t->view);
    end_operation(t, status <= 0 ? status : HVD_ERR_ENGINE);
}

static bool is_done(const struct tensor_view *v)
{
    return v->streamed ? stream_ended(v) : tensor_done(v);
}

static bool has_work(const struct tensor_view *v)
{
    return v->streamed ? stream_has_step(v) : tensor_has_chunk(v);
}

/* All of the work is done. A rank that heard of a failure before has left, and may have changed its
 * elements. */
static void end_worked(struct tensor *t)
{
    if (region_poisoned(&client.region)) {
        end_poisoned(t);
    } else if (tensor_was_left(&t->view)) {
        operation_lose_engine(t);
    } else {
        take_result(t);
        report_rows(t);
        end_operation(t, is_sized(&t->op) ? t->op.sized.status : HVD_SUCCESS);
    }
}

/* Does what can be done now. true: the operation has ended. */
bool operation_step(struct tensor *t)
{
    int status;
    switch (t->phase) {
    case PHASE_ARRIVE:
        if (tensor_arrived(&t->view)) {
            if (!sized_is_for_later(t))
                open_local(t);
        } else if (t->op.where.is_streamed && stream_must_stage(&t->view)) {
            operation_stage(t);
        }
        break;
    case PHASE_WORK:
        if (!(t->view.streamed ? stream_step(&t->view) : tensor_work(&t->view)) && is_done(&t->view))
            end_worked(t);
        break;
    case PHASE_PACK:
    case PHASE_REMOTE:
        if (atomic_load(&t->view.slot->settled) == t->sequence) {
            if (!sized_is_for_later(t))
                take_settled(t);
        } else if (is_streamed_far(t) && !streamed_step(t) && !region_poisoned(&client.region)) {
            operation_lose_engine(t);
        }
        break;
    case PHASE_LINK:
        if (operation_step_on_link(t))
            end_operation(t, HVD_SUCCESS);
        break;
    case PHASE_PATH:
        if (sized_is_for_later(t))
            break;
        status = t->op.path->step(t);
        if (status <= 0)
            end_operation(t, status);
        else if (t->phase != PHASE_PATH)
            return operation_step(t); /* it has become one of the host's */
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

void operation_finish(struct tensor *t)
{
    while (!operation_step(t))
        ;
}

/* There is a chunk to take now, or an end to see. */
static bool worth_another_step(struct tensor *t)
{
    if (t->phase == PHASE_PACK || t->phase == PHASE_REMOTE)
        return is_streamed_far(t) && streamed_has_step(t);
    return t->phase == PHASE_WORK && (has_work(&t->view) || is_done(&t->view));
}

bool operation_progress(struct tensor *t)
{
    bool ended;
    do
        ended = operation_step(t);
    while (!ended && worth_another_step(t));
    return ended;
}

void operation_lose_engine(struct tensor *t)
{
    engine_lose();
    snprintf(t->text, sizeof t->text, "tensor \"%s\": this host's engine has gone or does not move", t->name);
    end_operation(t, HVD_ERR_ENGINE);
}

/* Sleeps for `left` at most. The sleep may be short, so the tensor's own watchdog counts the time. */
static void sleep_once(struct tensor *t, uint64_t left)
{
    uint64_t most = pending_slice_ms();
    uint64_t ms = left / NSEC_PER_MSEC < most ? left / NSEC_PER_MSEC + 1 : most;
    if (t->phase == PHASE_LINK && rank_link_sleep(t->link, t->sequence, (unsigned)ms)) {
        (void)pending_move_left();
        if (!operation_step(t) && engine_has_stopped_polling(&t->polls))
            operation_lose_engine(t);
        return;
    }
    rank_link_drain();
    uint32_t prepared = doorbell_prepare(client.mailbox);

    if (operation_step(t) || worth_another_step(t) || forget_is_wanted() || pending_move_left() ||
        (t->phase == PHASE_LINK && rank_link_is_unwatched())) {
        doorbell_cancel(client.mailbox);
        return;
    }
    if (!doorbell_sleep(client.mailbox, prepared, (unsigned)ms) && engine_has_stopped_polling(&t->polls) &&
        !operation_step(t))
        operation_lose_engine(t);
}

/* The other ranks of this host have changed something. */
static bool has_moved(struct tensor *t, enum phase phase)
{
    return operation_step(t) || t->phase != phase || worth_another_step(t);
}

static _Thread_local struct patience patience;

static bool look_again(struct tensor *t, enum phase phase, int looks)
{
    for (; looks > 0; looks--) {
        doorbell_relax(false);
        if (has_moved(t, phase))
            return true;
    }
    return false;
}

/* The engine runs at once when this rank sleeps. A yield need not bring that: the kernel may give the
 * processor back to a rank that has used less of it. */
static bool is_beside_engine(void)
{
    return sched_getcpu() ==
           atomic_load_explicit(&client.region.header->engine_processor, memory_order_relaxed);
}

/* Yields its processor between looks, while that pays. true: the operation has moved. */
static bool look_and_yield(struct tensor *t, enum phase phase, bool far)
{
    uint64_t now = clock_now(), until = now + (client.crowd == 1 && !far ? APART_NS : YIELD_NS);
    bool crowded = client.crowd > 1 && !far;
    uint32_t patient_until = client.crowd == 1 ? YIELDS_PATIENT : CROWD_PATIENT;
    if (crowded)
        neighbours_begin_wait(&t->view, now, patience_lost_slice(&patience));
    for (uint32_t yields = 1; now < until && patience_has(&patience, now); yields++) {
        if (crowded && phase <= PHASE_WORK && !neighbours_need_processor(&t->view)) {
            if (look_again(t, phase, LOOKS_FIRST))
                return true;
            now = clock_now();
        }
        uint64_t before = now;
        doorbell_relax(true);
        now = clock_now();
        patience_learn(&patience, now, now - before);
        if (yields == patient_until)
            t->view.patient = false;
        if (has_moved(t, phase)) {
            if (client.crowd == 1 && !far)
                patience_handed(&patience, now, yields == 1);
            return true;
        }
        if (far && (phase == PHASE_LINK ? rank_link_is_streaming(t->link, t->sequence) : is_beside_engine()))
            return false;
        if (client.crowd == 1 && !far && look_again(t, phase, LOOKS))
            return true;
    }
    t->view.patient = false;
    return false;
}

/* For the engine, which asks other hosts. true: it has moved; false: it is time to sleep. */
static bool look_for_engine(struct tensor *t)
{
    if (t->phase == PHASE_LINK)
        return !rank_link_is_streaming(t->link, t->sequence) && look_and_yield(t, t->phase, true);
    return t->op.bytes <= LOOK_BYTES && !is_beside_engine() && look_and_yield(t, t->phase, true);
}

/* For the other ranks of this host. */
static bool look_for_ranks(struct tensor *t)
{
    enum phase phase = t->phase;
    if (client.crowd == 1 && look_again(t, phase, LOOKS_FIRST))
        return true;
    enum patience_advice advice = patience_advice(&patience);
    if (advice == PATIENCE_SLEEP)
        return false;
    if (advice == PATIENCE_MOVE)
        doorbell_move();
    if (look_and_yield(t, phase, false))
        return true;
    for (uint64_t until = clock_now() + SPIN_NS; client.crowd == 1 && clock_now() < until;)
        if (look_again(t, phase, LOOKS))
            return true;
    return false;
}

/* After a step that was not the last. false: the time has passed. */
static bool wait_longer(struct tensor *t, uint64_t until)
{
    do {
        if (__builtin_expect(forget_is_wanted(), 0))
            forget_idle();
        if (t->phase >= PHASE_PACK && !team_is_here(t->view.team) ? look_for_engine(t) : look_for_ranks(t))
            continue;
        uint64_t now = clock_now();
        if (now >= until)
            return operation_step(t);
        sleep_once(t, until - now);
    } while (!operation_step(t));
    return true;
}

/* false: the time has passed. */
static inline bool wait_until_ended(struct tensor *t, uint64_t until)
{
    t->view.patient = true;
    if (__builtin_expect(client.crowd > 1, 0))
        neighbours_note_processor();
    return operation_step(t) || wait_longer(t, until);
}

__attribute__((cold, noinline)) static bool wait_on_path(struct tensor *t, uint64_t until)
{
    t->op.path->wait(t, true);
    bool ended = wait_until_ended(t, until);
    t->op.path->wait(t, false);
    return ended;
}

int operation_wait_until(struct tensor *t, uint64_t until)
{
    report_point(t, POINT_WAIT, 0);
    pending_take_back(t);
    if (is_sized(&t->op))
        sized_claim(t);
    bool ended = __builtin_expect(t->op.path && t->op.path->wait, 0) ? wait_on_path(t, until) : true;
    if (ended && t->phase != PHASE_ENDED)
        ended = wait_until_ended(t, until);
    if (!ended) {
        t->op.sized.is_taken = false;
        if (t->op.where.is_streamed || t->phase == PHASE_LINK)
            pending_leave(t);
        return HVD_ERR_TIMEOUT;
    }
    int status = t->op.status;
    if (is_sized(&t->op) && t->op.sized.is_held)
        status = sized_hand_over(&t->op, t->name, t->text, sizeof t->text);
    t->phase = PHASE_IDLE;
    return status == HVD_SUCCESS ? status : fail(status, "%s", t->text);
}
