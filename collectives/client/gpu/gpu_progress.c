/* The runner: does everything that can be done for the operations of all teams, each time a thread calls
 * it.
 *
 * A team's operations are taken in the team's order, which is the same on all ranks, and begun one after
 * the other, as NCCL wants for the calls of one communicator. An operation through host memory does not
 * hold up the next ones, once it has a staging slot. Teams do not hold one another up.
 *
 * When the job has failed, the runner aborts NCCL's kernels at once: kernels that wait for a lost rank end,
 * and so do the streams that wait for them. */
#include "collectives/client/gpu/gpu_progress.h"

#include <poll.h>
#include <stdio.h>

#include "collectives/client/arena.h"
#include "collectives/client/gpu/gpu_engine.h"
#include "collectives/client/gpu/gpu_staging.h"
#include "collectives/kernels/dtype.h"
#include "collectives/shm/doorbell.h"

#define DRAIN_NS (10 * NSEC_PER_SEC) /* for operations that are under way at the end */

/* ---- agreement ----------------------------------------------------------------------------------------- */

static void mark_agreed(struct gpu_op *op)
{
    op->agreed = read_watch_clock();
    op->phase = GPU_AGREED;
}

/* All members are here, and all are of this host. */
static void open_on_host(struct gpu_op *op)
{
    struct tensor *t = op->tensor;
    struct tensor_resolver resolver = {arena_resolve, NULL};
    int status = tensor_open(&t->view, t->name, &resolver, t->text, sizeof t->text);
    if (status != HVD_SUCCESS && (!tensor_still_here(&t->view) || region_poisoned(&client.region)))
        return;
    if (status != HVD_SUCCESS) {
        op->status = status;
        gpu_op_end(op, GPU_FAILED);
        return;
    }
    if (!t->view.op.device) {
        gpu_op_end(op, GPU_NOWHERE);
        return;
    }
    op->registered = t->view.device_memory != 0 && t->view.device_memory == t->op.where.in;
    mark_agreed(op);
    if (!order_claim(&client.region, t->slot, t->sequence))
        return;
    if (!order_append(&client.region, op->team->head->slot, t->slot))
        gpu_fail_job("the order of process set %d is broken", op->team->team->id);
    region_ring_sleepers(&client.region, UINT32_MAX);
    region_ring_alarms(&client.region);
}

static void take_settled(struct gpu_op *op)
{
    struct tensor *t = op->tensor;
    const struct shm_slot *slot = t->view.slot;
    if (atomic_load(&slot->settled) != t->sequence)
        return;
    if (slot->status == HVD_SUCCESS && t->op.what.device == OP_EITHER && !slot->device) {
        gpu_op_end(op, GPU_NOWHERE);
        return;
    }
    if (slot->status == HVD_SUCCESS) {
        op->registered = slot->known != 0 && t->op.where.in != 0;
        mark_agreed(op);
        return;
    }
    op->status = slot->status < 0 ? slot->status : HVD_ERR_ENGINE;
    snprintf(t->text, sizeof t->text, "%.*s", (int)sizeof t->text - 1, (const char *)slot->result);
    gpu_op_end(op, GPU_FAILED);
}

void gpu_op_check(struct gpu_op *op)
{
    if (!team_is_here(op->team->team))
        take_settled(op);
    else if (tensor_arrived(&op->tensor->view))
        open_on_host(op);
}

/* ---- the order ----------------------------------------------------------------------------------------- */

/* The next operation in the team's order; NULL: none yet. */
static struct gpu_op *next_in_order(struct gpu_team *team)
{
    uint32_t slot;
    int rc = order_next(&team->order, &client.region, &slot);
    struct tensor *t = rc == 1 ? atomic_load(&client.tensors.by_slot[slot]) : NULL;
    struct gpu_op *op = t ? t->gpu : NULL;
    if (rc == 0)
        return NULL;
    if (op && op->team == team && op->phase == GPU_ARRIVING)
        gpu_op_check(op); /* between hosts it is settled a moment later */
    if (op && op->team == team && (op->phase == GPU_AGREED || op->phase == GPU_ARRIVING))
        return op->phase == GPU_AGREED ? op : NULL;
    if (!gpu_job_has_failed())
        gpu_fail_job("rank %d: the order of process set %d names a tensor that is not ready", client.rank,
                     team->team->id);
    return NULL;
}

static void take_operations(struct gpu_team *team)
{
    struct gpu_op *op;
    while (!gpu_state.failed && (op = next_in_order(team)) != NULL) {
        order_take(&team->order, op->tensor->slot, ++op->taken);
        op->phase = GPU_TAKEN;
        op->begun = read_watch_clock();
        op->next = NULL;
        *(team->first ? &team->last->next : &team->first) = op;
        team->last = op;
        if (!gpu_count_elements(op))
            gpu_fail_job("rank %d: tensor \"%s\": the engine gave impossible sizes", client.rank,
                         op->tensor->name);
    }
}

static void drop_first(struct gpu_team *team)
{
    team->first = team->first->next;
}

/* ---- begin --------------------------------------------------------------------------------------------- */

/* Nothing of it moves on any rank. */
static bool is_empty(const struct gpu_op *op)
{
    return !op_is_ragged(op->tensor->op.what.kind) && op->tensor->op.what.count == 0;
}

static bool end_empty(struct gpu_op *op)
{
    struct err e = ERR_INIT;
    if (op->context && gpu_record_result(op, &e) != 0) {
        gpu_fail_job("rank %d: tensor \"%s\": %s", client.rank, op->tensor->name, e.text);
        return false;
    }
    gpu_op_end(op, GPU_ENQUEUED);
    return true;
}

/* false: it waits for what is before it. */
static bool begin_one(struct gpu_op *op)
{
    struct gpu_team *team = op->team;
    if (!gpu_op_take_part(op))
        return false;
    if (is_empty(op))
        return end_empty(op);
    struct gpu_why why = team->refusal.why;
    bool can = team->fsm.state == TEAM_NCCL && gpu_nccl_can(op, &why);
    if (!can && op_reduces(op->tensor->op.what.kind) && dtype_of_devices(op->tensor->op.what.dtype)) {
        gpu_op_fail(op, HVD_ERR_INVALID, "%s are combined by NCCL only, and %s",
                    dtype_name(op->tensor->op.what.dtype), why.text);
        return true;
    }
    op->staged = !can;
    if (!can)
        return gpu_stage(op);
    if (!team->by_engine && communicator_state(team->communicator) != COMMUNICATOR_READY)
        return false;
    return gpu_launch(op) == 0 && op->phase == GPU_ENQUEUED;
}

/* The first one of the queue is the only one that can be on its way into the stream. */
static void begin_operations(struct gpu_team *team)
{
    while (team->first && !gpu_state.failed) {
        struct gpu_op *op = team->first;
        bool goes_on = op->phase == GPU_LAUNCHING ? gpu_launched(op) : begin_one(op);
        if (!goes_on)
            return;
        drop_first(team);
    }
}

/* The program has reset its GPU. */
static bool has_gone(cu_result result)
{
    return result == CU_INVALID_CONTEXT || result == CU_INVALID_HANDLE || result == CU_CONTEXT_IS_DESTROYED;
}

/* After a fault of a kernel the driver makes no more host calls, and ends the streams of the context. */
static int watch_stream(const struct gpu_team *team, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    bool entered = gpu_enter(team->context, NULL) == 0;
    cu_result result = d->cuStreamQuery(team->stream);
    if (entered)
        gpu_leave();
    if (result == CU_NOT_READY || (has_gone(result) && !team->first && gpu_staging_need(team) == GPU_NOTHING))
        return 0;
    return driver_check(d, result, e, "using GPU %d", team->context->gpu);
}

/* NCCL may notice by itself that another rank was lost or cannot go on. */
static void watch_team(struct gpu_team *team)
{
    struct err e = ERR_INIT;
    bool bad = team->stream && watch_stream(team, &e) != 0;
    if (!bad && team->fsm.state == TEAM_NCCL && !team->by_engine)
        bad = communicator_poll(team->communicator, &e) == COMMUNICATOR_FAILED;
    if (bad)
        gpu_fail_by_nccl("", &e);
}

static enum gpu_need larger_need(enum gpu_need a, enum gpu_need b)
{
    return a > b ? a : b;
}

static enum gpu_need progress_team(struct gpu_team *team)
{
    enum gpu_need need = GPU_NOTHING;
    take_operations(team);
    gpu_staging_progress(team);
    if (team->first && !gpu_state.failed && gpu_team_ready(team))
        begin_operations(team);
    if (team->first)
        need = larger_need(gpu_team_need(team), GPU_ALARM);
    return larger_need(need, gpu_staging_need(team));
}

enum gpu_need gpu_progress(void)
{
    enum gpu_need need = gpu_state.pending > 0 ? GPU_ALARM : GPU_NOTHING;
    gpu_has_failed();
    for (struct gpu_team *team = gpu_state.teams; team && !gpu_state.failed; team = team->next)
        need = larger_need(need, progress_team(team));
    if (gpu_state.moved && doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox);
    gpu_state.moved = false;
    return gpu_state.failed ? GPU_NOTHING : need;
}

void gpu_watch(void)
{
    for (struct gpu_team *team = gpu_state.teams; team && !gpu_state.failed; team = team->next)
        watch_team(team);
}

/* ---- drain --------------------------------------------------------------------------------------------- */

/* The team's stream may wait for other streams, and these for a rank that is lost. So this wait looks for
 * failures, and a failure ends everything that hangs. */
void gpu_drain_team(struct gpu_team *team, bool goes_on)
{
    const struct driver *d = gpu_state.driver;
    uint64_t until = clock_now() + DRAIN_NS;
    struct err e = ERR_INIT;
    if (!team->stream || gpu_enter(team->context, &e) != 0)
        return;
    while (!gpu_has_failed() && d->cuStreamQuery(team->stream) == CU_NOT_READY) {
        if (goes_on)
            gpu_progress();
        else if (clock_now() > until)
            gpu_abort(); /* a rank was lost that has left already: no rank reports that any more */
        poll(NULL, 0, 1);
    }
    gpu_leave();
}
