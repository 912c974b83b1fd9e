/* The runner: whatever can be done for all teams' operations, as often as somebody comes by.
 *
 * A team's operations are taken in its order, which is the same at all ranks, and begun one after the other:
 * NCCL's calls of one communicator must be. One that goes through host memory does not hold those behind it
 * up, once it has a lane. Teams do not hold one another up.
 *
 * When the job has failed, what NCCL does is aborted at once: kernels that wait for a rank that has gone end,
 * and with them the streams that wait for those. */
#include "collectives/client/gpu/gpu.h"

#include <stdarg.h>
#include <stdio.h>

#include "collectives/shm/doorbell.h"

/* ---- ends ---------------------------------------------------------------------------------------------- */

void device_end(struct device_op *op, enum device_phase phase)
{
    op->phase = phase;
    device.pending--;
    device.moved = true;
    device_thread_wants();
}

void device_fail(struct device_op *op, int status, const char *fmt, ...)
{
    struct tensor *t = op->tensor;
    int used = snprintf(t->text, sizeof t->text, "tensor \"%s\": ", t->name);
    va_list args;

    va_start(args, fmt);
    if (used > 0 && (size_t)used < sizeof t->text)
        vsnprintf(t->text + used, sizeof t->text - (size_t)used, fmt, args);
    va_end(args);
    op->status = status;
    device_end(op, DEVICE_FAILED);
}

void device_break(const char *fmt, ...)
{
    char why[SHM_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (device.failed)
        return;
    rpc_failed(why); /* handles get it from there, as all ranks' do */
    device_abort();
}

void device_abort(void)
{
    device.failed = device.moved = true;
    for (struct device_team *team = device.teams; team; team = team->next)
        if (team->communicator)
            communicator_abort(team->communicator, 0);
}

static bool job_has_failed(void)
{
    return region_poisoned(&client.region) || atomic_load(&client.state) == CLIENT_STRANDED ||
           atomic_load(&client.mailbox->left);
}

bool device_has_failed(void)
{
    if (!device.failed && job_has_failed())
        device_abort();
    if (!device.stranded && atomic_load(&client.state) == CLIENT_STRANDED) {
        device.stranded = true;
        for (const struct device_team *team = device.teams; team; team = team->next)
            device_engine_release(team); /* nobody else does any more, and the user's streams are to go on */
    }
    return device.failed;
}

/* ---- agreement ----------------------------------------------------------------------------------------- */

static void agreed(struct device_op *op)
{
    op->agreed = timeline_clock();
    op->phase = DEVICE_AGREED;
}

/* All of this host's members are here, and nobody else takes part. */
static void open_here(struct device_op *op)
{
    struct tensor *t = op->tensor;
    struct tensor_resolver resolver = {arena_resolve, NULL};
    int status = tensor_open(&t->view, t->name, &resolver, t->text, sizeof t->text);

    if (status != HVD_SUCCESS && (!tensor_still_here(&t->view) || region_poisoned(&client.region)))
        return;
    if (status != HVD_SUCCESS) {
        op->status = status;
        device_end(op, DEVICE_FAILED);
        return;
    }
    if (!t->view.op.device) {
        device_end(op, DEVICE_NOWHERE);
        return;
    }
    op->known = t->view.device_memory != 0 && t->view.device_memory == t->where.in;
    agreed(op);
    if (!order_claim(&client.region, t->slot, t->sequence))
        return;
    if (!order_append(&client.region, op->team->head->slot, t->slot))
        device_break("the order of process set %d is broken", op->team->team->id);
    region_ring_sleepers(&client.region, UINT32_MAX);
    region_ring_alarms(&client.region);
}

static void take_settled(struct device_op *op)
{
    struct tensor *t = op->tensor;
    const struct shm_slot *slot = t->view.slot;

    if (atomic_load(&slot->settled) != t->sequence)
        return;
    if (slot->status == HVD_SUCCESS && t->op.device == OP_EITHER && !slot->device) {
        device_end(op, DEVICE_NOWHERE);
        return;
    }
    if (slot->status == HVD_SUCCESS) {
        op->known = slot->known != 0 && t->where.in != 0;
        agreed(op);
        return;
    }
    op->status = slot->status < 0 ? slot->status : HVD_ERR_ENGINE;
    snprintf(t->text, sizeof t->text, "%.*s", (int)sizeof t->text - 1, (const char *)slot->result);
    device_end(op, DEVICE_FAILED);
}

void device_look_at(struct device_op *op)
{
    if (!team_is_here(op->team->team))
        take_settled(op);
    else if (tensor_arrived(&op->tensor->view))
        open_here(op);
}

/* ---- the order ----------------------------------------------------------------------------------------- */

/* What comes next in the team's order; NULL: nothing yet. */
static struct device_op *next_in_order(struct device_team *team)
{
    uint32_t slot;
    int rc = order_next(&team->order, &client.region, &slot);
    struct tensor *t = rc == 1 ? atomic_load(&client.by_slot[slot]) : NULL;
    struct device_op *op = t ? t->device : NULL;

    if (rc == 0)
        return NULL;
    if (op && op->team == team && op->phase == DEVICE_ARRIVING)
        device_look_at(op); /* between hosts it is settled a moment later */
    if (op && op->team == team && (op->phase == DEVICE_AGREED || op->phase == DEVICE_ARRIVING))
        return op->phase == DEVICE_AGREED ? op : NULL;
    if (!job_has_failed())
        device_break("rank %d: the order of process set %d names what cannot be", client.rank,
                     team->team->id);
    return NULL;
}

static void take(struct device_team *team)
{
    struct device_op *op;

    while (!device.failed && (op = next_in_order(team)) != NULL) {
        order_take(&team->order, op->tensor->slot, ++op->taken);
        op->phase = DEVICE_TAKEN;
        op->begun = timeline_clock();
        op->next = NULL;
        *(team->first ? &team->last->next : &team->first) = op;
        team->last = op;
        if (!device_count(op))
            device_break("rank %d: tensor \"%s\": the sizes that the engine says cannot be", client.rank,
                         op->tensor->name);
    }
}

static void drop_first(struct device_team *team)
{
    team->first = team->first->next;
}

/* ---- what is begun ------------------------------------------------------------------------------------- */

/* Nothing of it moves on any rank. */
static bool is_empty(const struct device_op *op)
{
    return !op_is_ragged(op->tensor->op.kind) && op->tensor->op.count == 0;
}

static bool end_empty(struct device_op *op)
{
    struct err e = ERR_INIT;

    if (op->context && device_record(op, &e) != 0) {
        device_break("rank %d: tensor \"%s\": %s", client.rank, op->tensor->name, e.text);
        return false;
    }
    device_end(op, DEVICE_ENQUEUED);
    return true;
}

/* false: it waits for what is before it. */
static bool begin_one(struct device_op *op)
{
    struct device_team *team = op->team;
    struct device_why why;
    bool can;

    if (!device_take_part(op))
        return false;
    if (is_empty(op))
        return end_empty(op);
    why = team->why;
    can = team->fsm.state == TEAM_NCCL && device_nccl_can(op, &why);
    if (!can && op_reduces(op->tensor->op.kind) && dtype_of_devices(op->tensor->op.dtype)) {
        device_fail(op, HVD_ERR_INVALID, "%s are combined by NCCL only, and %s",
                    dtype_name(op->tensor->op.dtype), why.text);
        return true;
    }
    op->staged = !can;
    if (!can)
        return device_stage(op);
    if (!team->by_engine && communicator_state(team->communicator) != COMMUNICATOR_READY)
        return false;
    return device_launch(op) == 0 && op->phase == DEVICE_ENQUEUED;
}

/* The first one of the queue is the only one that can be on its way into the stream. */
static void advance(struct device_team *team)
{
    while (team->first && !device.failed) {
        struct device_op *op = team->first;
        bool goes_on = op->phase == DEVICE_LAUNCHING ? device_launched(op) : begin_one(op);
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

/* After a fault of any kernel the driver calls nobody back, and ends the streams of the context. */
static int watch_stream(const struct device_team *team, struct err *e)
{
    const struct driver *d = device.driver;
    bool entered = device_enter(team->context, NULL) == 0;
    cu_result result = d->cuStreamQuery(team->stream);

    if (entered)
        device_leave();
    if (result == CU_NOT_READY ||
        (has_gone(result) && !team->first && device_stage_need(team) == DEVICE_NOTHING))
        return 0;
    return driver_check(d, result, e, "using GPU %d", team->context->gpu);
}

/* NCCL may notice by itself that another rank has gone, or cannot go on. */
static void watch(struct device_team *team)
{
    struct err e = ERR_INIT;
    bool bad = team->stream && watch_stream(team, &e) != 0;

    if (!bad && team->fsm.state == TEAM_NCCL && !team->by_engine)
        bad = communicator_poll(team->communicator, &e) == COMMUNICATOR_FAILED;
    if (bad)
        device_break("rank %d: %s", client.rank, e.text);
}

static enum device_need more(enum device_need a, enum device_need b)
{
    return a > b ? a : b;
}

static enum device_need progress(struct device_team *team)
{
    enum device_need need = DEVICE_NOTHING;

    take(team);
    device_stages(team);
    if (team->first && !device.failed && device_team_ready(team))
        advance(team);
    if (team->first)
        need = more(device_team_need(team), DEVICE_ALARM);
    return more(need, device_stage_need(team));
}

enum device_need device_progress(void)
{
    enum device_need need = device.pending > 0 ? DEVICE_ALARM : DEVICE_NOTHING;

    device_has_failed();
    for (struct device_team *team = device.teams; team && !device.failed; team = team->next)
        need = more(need, progress(team));
    if (device.moved && doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox);
    device.moved = false;
    return device.failed ? DEVICE_NOTHING : need;
}

void device_watch(void)
{
    for (struct device_team *team = device.teams; team && !device.failed; team = team->next)
        watch(team);
}
