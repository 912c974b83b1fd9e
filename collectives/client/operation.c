/* From a request to a published operation.
 *
 * The member that arrives last wakes the members that sleep and, if the engine has something to do, the
 * engine. */
#include "collectives/client/operation.h"

#include "collectives/client/counts.h"
#include "collectives/client/flight.h"
#include "collectives/client/group.h"
#include "collectives/client/names.h"
#include "collectives/kernels/dtype.h"
#include "collectives/shm/doorbell.h"

/* Members that wait make less in a shorter time than it takes to wake the engine, which is told of no such
 * operation (docs/measurements.md, Waiting). */
#define WORTH_TELLING (128u << 10)

/* This rank arrives last: wakes the members that sleep and, if the engine has a part in the operation, the
 * engine. */
static inline __attribute__((always_inline)) void notify_last_arrival(struct tensor *t, bool will_wait)
{
    bool has_chunks = t->op.bytes >= WORTH_TELLING && !op_is_sized(&t->op.what);
    bool for_engine = !team_is_here(t->view.team) || (has_chunks && !will_wait);
    if (for_engine) {
        tensor_offer(&t->view);
        engine_tell(t->slot, &t->notified);
    }
    if (team_is_here(t->view.team))
        region_ring_sleepers(&client.region, UINT32_MAX);
}

/* Other members have yet to arrive; or all are here, and some must first copy what they wanted to pass piece
 * by piece. They may sleep. */
static inline __attribute__((always_inline)) void notify_early_arrival(struct tensor *t)
{
    if (tensor_missing(&t->view) == t->view.team->members)
        region_ring_sleepers(&client.region, UINT32_MAX);
    if (__builtin_expect(atomic_load(&client.region.header->joined), 0))
        engine_tell(t->slot, &t->notified); /* the engine tells ranks that have joined */
}

static inline __attribute__((always_inline)) void notify_others(struct tensor *t, bool will_wait)
{
    if (tensor_arrived(&t->view))
        notify_last_arrival(t, will_wait);
    else
        notify_early_arrival(t);
}

void operation_announce(struct tensor *t, bool will_wait)
{
    notify_others(t, will_wait);
}

/* All other members have arrived, and this rank's memory is private. Then this rank reads all elements where
 * they are and writes all results, which saves both copies of its own elements. A rank that waits shares the
 * work instead. */
static bool works_alone(struct tensor *t, bool will_wait)
{
    struct tensor_where *where = &t->op.where;
    where->is_private = t->op.staging && t->op.what.kind == SHM_ALLREDUCE && team_is_here(t->view.team) &&
                        !t->op.group && !will_wait && tensor_others_arrived(&t->view);
    return where->is_private;
}

static __attribute__((cold)) int refuse_poisoned(struct tensor *t)
{
    flight_begins(t, t->sequence + 1);
    t->op.status = fail_poisoned();
    flight_ended(t);
    report_point(t, POINT_ENDED, 0);
    return t->op.status;
}

/* The elements to where the engine looks for them, and the entry that says so. */
static void publish_operation(struct tensor *t, bool gives)
{
    uint8_t small[SHM_INLINE_MAX];
    if (gives && (t->op.group || t->op.bounce_in))
        operation_give(t, small);
    tensor_publish(&t->view, &t->op.what, &t->op.where);
}

static void give_to_engine(struct tensor *t)
{
    publish_operation(t, true);
    t->phase = PHASE_REMOTE;
    notify_others(t, true);
}

static struct link_operation link_operation_of(const struct tensor *t)
{
    return (struct link_operation){.name = t->name,
                                   .sequence = t->sequence,
                                   .op = t->op.what,
                                   .in = t->op.in,
                                   .out = t->op.out,
                                   .bytes = t->op.bytes,
                                   .waits_later = t->op.waits_later,
                                   .carried = &t->view.member_slot[t->view.me]->carried};
}

/* Something that a rank makes at once of all ranks' elements, or a barrier. */
static bool fits_link(const struct tensor *t, bool will_wait)
{
    const struct tensor_op *op = &t->op.what;
    if (!will_wait || t->op.group || op->device || is_sized(&t->op))
        return false;
    return op->kind == SHM_BARRIER ||
           (op->kind == SHM_ALLREDUCE && op_elementwise(op->op) && op->prescale == 1 &&
            op->compression == HVD_COMPRESSION_NONE && t->op.bytes > 0 &&
            link_takes_bytes(t->op.bytes, (uint32_t)client.size));
}

/* For the other ranks alone. The entry shows what this rank waits for. */
static __attribute__((noinline)) bool start_on_link(struct tensor *t, bool will_wait)
{
    if (t->view.team->id != HVD_WORLD || t->sequence < LINK_FIRST)
        return false;
    struct link_operation o = link_operation_of(t);
    if (!rank_link_begin(&t->link, &o, fits_link(t, will_wait)))
        return false;
    t->kept = true; /* a name that is forgotten would be counted anew */
    publish_operation(t, false);
    t->phase = PHASE_LINK;
    return true;
}

/* The next operation takes another path, which counts it: the other ranks hear that. */
static void leave_link(struct tensor *t)
{
    if (!rank_link_is_possible() || t->view.team->id != HVD_WORLD)
        return;
    struct link_operation o = link_operation_of(t);
    o.sequence++;
    (void)rank_link_begin(&t->link, &o, false);
}

bool operation_step_on_link(struct tensor *t)
{
    struct link_operation o = link_operation_of(t);
    enum link_step step = rank_link_step(t->link, &o);
    if (step == LINK_TO_ENGINE)
        give_to_engine(t);
    return step == LINK_ENDED;
}

static int start_on_path(struct tensor *t, bool will_wait)
{
    flight_begins(t, t->sequence + 1);
    int status = t->op.path->start(t, will_wait);
    if (status != HVD_SUCCESS) {
        t->op.status = status;
        flight_ended(t);
    }
    return status;
}

int operation_start(struct tensor *t, bool will_wait)
{
    report_point(t, POINT_SUBMIT, 0);
    if (__builtin_expect(t->op.path != NULL, 0)) {
        leave_link(t);
        return start_on_path(t, will_wait);
    }
    if (region_poisoned(&client.region))
        return refuse_poisoned(t);
    if (__builtin_expect(forget_is_wanted(), 0))
        forget_idle();
    tensor_begin(&t->view, ++t->sequence);
    count_begins(t);
    flight_begins(t, t->sequence);
    if (__builtin_expect(rank_link_is_possible(), 0) && start_on_link(t, will_wait))
        return HVD_SUCCESS;
    bool alone = works_alone(t, will_wait);
    publish_operation(t, !alone);
    t->phase = team_is_here(t->view.team) ? PHASE_ARRIVE : PHASE_REMOTE;
    if (alone) {
        operation_finish(t);
        if (t->op.status != HVD_SUCCESS) /* else they were rung when the work was done */
            region_ring_sleepers(&client.region, UINT32_MAX);
    } else {
        notify_others(t, will_wait);
    }
    if (t->op.staging && !will_wait && t->phase == PHASE_ARRIVE)
        pending_add(t);
    return HVD_SUCCESS;
}

int operation_submit(struct tensor *t, const struct request *r, bool will_wait)
{
    if (t->phase != PHASE_IDLE || t->persistent) {
        if (r->group)
            group_free(r->group);
        if (r->op.kind == SHM_BARRIER)
            return fail(HVD_ERR_IN_PROGRESS, "a barrier of this rank is pending already");
        return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": %s", t->name,
                    t->persistent ? "a persistent handle has this name"
                                  : "an operation of this name is pending already");
    }
    t->generation++;
    int status = operation_prepare(t, r, will_wait);
    if (status != HVD_SUCCESS)
        return status;
    status = operation_start(t, will_wait);
    if (status != HVD_SUCCESS)
        operation_release(t);
    return status;
}

/* Barriers of several threads follow one another. Ranks need not tell them apart. */
int operation_begin_fixed(struct tensor *t, uint8_t kind)
{
    struct request r = {.op = {.kind = kind, .prescale = 1, .postscale = 1}};
    if (!t)
        return last_failure();
    r.op.set = t->view.team->id;
    return operation_submit(t, &r, true);
}

int operation_run_fixed(struct tensor *t, uint8_t kind)
{
    int status = operation_begin_fixed(t, kind);
    if (status == HVD_SUCCESS)
        status = operation_wait(t);
    if (t)
        pthread_mutex_unlock(&t->lock);
    return status;
}
