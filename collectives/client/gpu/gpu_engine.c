/* Operations that the engine runs for this rank: --gpu-placement engine.
 *
 * Everything up to an operation's turn, and after its place in a stream, is as when this process runs NCCL.
 * Between, the engine does: it has the rank's memory, two events of the team, and is told by a description in
 * shared memory (shm/device_call.h). Memory that no other process can have (managed, of a pool, made for no
 * export) is stood in for by memory that it can: one copy within the GPU before the operation, one after it,
 * in the user's stream. So no rank need know what memory another one has. */
#include <stdlib.h>
#include <string.h>

#include "collectives/client/gpu/gpu.h"
#include "collectives/gpu/operation.h"
#include "collectives/shm/device_call.h"
#include "collectives/shm/ring.h"

#define STAND_IN_ALIGN 512u
#define ROOMS_TRIED    16

/* ---- the GPU ------------------------------------------------------------------------------------------- */

bool device_engine_has(struct device_context *c)
{
    struct worker_message m = {.type = WORKER_DEVICE_OPEN};
    int events = 0;

    if (c->engine_asked)
        return c->engine_has;
    c->engine_asked = true;
    if (client.solo || !client.region.header->devices || driver_lacks(device.driver, DRIVER_IPC) ||
        device.driver->cuDeviceGetAttribute(&events, CU_DEVICE_IPC_EVENTS, c->gpu) != CU_OK || !events)
        return false;
    struct worker_device q = {.gpu = 0};
    memcpy(q.uuid, c->what.uuid, sizeof q.uuid);
    memcpy(m.text, &q, sizeof q);
    if (rpc(&m, -1, NULL, NULL) != HVD_SUCCESS)
        return false; /* the engine has said why, in the job's log */
    memcpy(&c->engine, m.text, sizeof c->engine);
    return c->engine_has = c->engine.gpu < UINT32_MAX;
}

struct device_abilities device_engine_abilities(const struct device_context *c)
{
    return (struct device_abilities){c->engine.nccl, c->engine.capability, c->engine.kernels,
                                     (int32_t)c->engine.fuse};
}

/* ---- a description ------------------------------------------------------------------------------------- */

static bool is_ragged(const struct device_op *op)
{
    return op_is_ragged(op->tensor->op.kind);
}

static int make_call(struct device_op *op)
{
    uint32_t ragged = is_ragged(op) ? op->team->team->size : 0;
    uint64_t bytes = shm_device_call_bytes((uint32_t)op->operations, ragged);

    if (op->operations > SHM_DEVICE_PIECES_MAX)
        return fail(HVD_ERR_INVALID, "tensor \"%s\": a group of %zu tensors is too large", op->tensor->name,
                    op->operations);
    if (op->call && op->call_bytes >= bytes)
        return HVD_SUCCESS;
    if (op->call)
        arena_free(op->call);
    if (!(op->call = arena_alloc(bytes, false)))
        return last_failure();
    op->call_bytes = bytes;
    return HVD_SUCCESS;
}

static uint64_t in_bytes(const struct device_op *op, const struct device_operation *o)
{
    const struct tensor_op *what = &op->tensor->op;

    if (o->kind == DEVICE_BROADCAST)
        return 0;
    return is_ragged(op) ? tensor_all_bytes(what) : o->count * dtype_size(o->dtype);
}

static uint64_t out_bytes(const struct device_op *op, const struct device_operation *o)
{
    uint64_t element = dtype_size(o->dtype);

    if (is_ragged(op))
        return op->tensor->where.room * element;
    if (o->kind == DEVICE_REDUCESCATTER)
        return operation_part(o, (int)op->team->team->size, (int)own_index(op->team->team)) * element;
    return o->count * element;
}

/* ---- stand-ins ----------------------------------------------------------------------------------------- */

/* Copies between memory and its stand-in, for all pieces that have one. */
static int copy(struct device_op *op, bool back, cu_stream stream, struct err *e)
{
    const struct driver *d = device.driver;
    int rc = 0;

    for (size_t i = 0; i < op->stand_ins && rc == 0; i++) {
        const struct device_stand_in *s = &op->stand_in[i];
        cu_pointer own = (cu_pointer)(uintptr_t)s->own, there = op->stand_in_room.at + s->offset;
        if (s->bytes > 0 && (back ? s->is_out : s->is_in))
            rc = driver_check(d,
                              d->cuMemcpyDtoDAsync(back ? own : there, back ? there : own, s->bytes, stream),
                              e, "copying on GPU %d", op->context->gpu);
    }
    return rc;
}

/* No free, in the middle of a job, of what the engine has opened: CUDA leaves open what happens then. To have
 * the engine close it first would make that wait for its GPU. So what an operation leaves behind stays until
 * hvd_shutdown, and since each room is at least twice as large as the one before, that is never more than
 * what is used. */
static int leave_room(struct device_op *op)
{
    struct device_room *more;

    if (!op->stand_in_room.at)
        return 0;
    if (!(more = realloc(device.left, (device.lefts + 1) * sizeof *more)))
        return -1;
    device.left = more;
    more[device.lefts++] = op->stand_in_room;
    op->stand_in_room = (struct device_room){.at = 0};
    return 0;
}

/* What it left when it went to another GPU. */
static bool enter_room(struct device_op *op, uint64_t bytes)
{
    for (struct device_room *r = device.left; r < device.left + device.lefts; r++)
        if (r->op == op && r->context == op->context->context && bytes <= r->bytes) {
            op->stand_in_room = *r;
            *r = device.left[--device.lefts];
            return true;
        }
    return false;
}

/* Where the engine has memory to close, it opens no other by a handle; but what comes as a descriptor has
 * addresses of its own there. */
static int allocate(struct device_room *r)
{
    void *at = NULL;

    if (device.closing && !device.nccl)
        device.nccl = nccl_open(&device.no_nccl);
    r->by_nccl = device.closing && device.nccl && device.nccl->ncclMemAlloc && device.nccl->ncclMemFree &&
                 device.nccl->ncclMemAlloc(&at, r->bytes) == NCCL_OK;
    if (!r->by_nccl)
        return device.driver->cuMemAlloc(&r->at, r->bytes);
    r->at = (cu_pointer)(uintptr_t)at;
    return CU_OK;
}

static int make_room(struct device_op *op, uint64_t bytes, struct err *e)
{
    const struct driver *d = device.driver;
    const struct device_room before = op->stand_in_room;
    struct device_room new = {.op = op, .context = op->context->context, .bytes = bytes};

    if (before.at && before.context == new.context) {
        if (bytes <= before.bytes)
            return 0;
        new.bytes = bytes < 2 * before.bytes ? 2 * before.bytes : bytes;
    }
    if (leave_room(op) != 0)
        return err_set(e, ERR_MEMORY, "no memory");
    if (enter_room(op, bytes))
        return 0;
    if (allocate(&new) != CU_OK) {
        new.bytes = bytes;
        if (driver_check(d, allocate(&new), e, "allocating %llu bytes on GPU %d", (unsigned long long)bytes,
                         op->context->gpu) != 0)
            return -1;
    }
    op->stand_in_room = new;
    return 0;
}

void device_engine_free(void)
{
    cu_context before;

    for (const struct device_room *r = device.left; r < device.left + device.lefts; r++)
        if (device.driver->cuCtxPushCurrent(r->context) == CU_OK) {
            if (r->by_nccl)
                device.nccl->ncclMemFree((void *)(uintptr_t)r->at);
            else
                device.driver->cuMemFree(r->at);
            device.driver->cuCtxPopCurrent(&before);
        }
    free(device.left);
    device.left = NULL;
    device.lefts = 0;
}

/* A piece's number and place, or a stand-in that is placed later. -1: no memory. */
static int place(struct device_op *op, const struct device_stand_in *what, uint32_t *memory, uint64_t *offset,
                 uint64_t *total)
{
    struct device_stand_in *more;

    *memory = 0;
    *offset = 0;
    if (what->bytes == 0 || device_export(op->context, what->own, what->bytes, memory, offset))
        return 0;
    if (op->stand_ins == op->stand_ins_room) {
        size_t room = op->stand_ins_room ? 2 * op->stand_ins_room : 4;
        if (!(more = realloc(op->stand_in, room * sizeof *more)))
            return -1;
        op->stand_in = more;
        op->stand_ins_room = room;
    }
    more = &op->stand_in[op->stand_ins++];
    *more = *what;
    more->offset = *total;
    more->memory_at = memory;
    more->offset_at = offset;
    *total += (what->bytes + STAND_IN_ALIGN - 1) / STAND_IN_ALIGN * STAND_IN_ALIGN;
    return 0;
}

static int place_all(struct device_op *op, uint64_t *total)
{
    int rc = 0;

    op->stand_ins = 0;
    *total = 0;
    for (size_t i = 0; i < op->operations && rc == 0; i++) {
        const struct device_operation *o = &op->operation[i];
        struct shm_device_piece *p = &op->call->piece[i];
        bool broadcast = o->kind == DEVICE_BROADCAST;
        *p = (struct shm_device_piece){.kind = o->kind,
                                       .dtype = o->dtype,
                                       .op = o->op,
                                       .root = o->root,
                                       .prescale = o->prescale,
                                       .postscale = o->postscale,
                                       .count = o->count,
                                       .row_count = o->row_count};
        struct device_stand_in in = {
            .own = (void *)(uintptr_t)o->in, .bytes = in_bytes(op, o), .is_in = true};
        struct device_stand_in out = {
            .own = o->out, .bytes = out_bytes(op, o), .is_in = broadcast, .is_out = true};
        rc = place(op, &in, &p->in_memory, &p->in_offset, total);
        if (rc == 0)
            rc = place(op, &out, &p->out_memory, &p->out_offset, total);
    }
    return rc;
}

/* The stand-ins' own memory is the engine's too. */
static int export_stand_ins(struct device_op *op, struct err *e)
{
    for (size_t i = 0; i < op->stand_ins; i++) {
        const struct device_stand_in *s = &op->stand_in[i];
        if (!device_export(op->context, (const void *)(uintptr_t)(op->stand_in_room.at + s->offset), s->bytes,
                           s->memory_at, s->offset_at))
            return err_set(e, ERR_SYSTEM, "the engine cannot use memory of GPU %d", op->context->gpu);
    }
    return 0;
}

/* New memory may lie where the engine has yet to close other memory, and then cannot be opened. It is kept,
 * so that the next lies elsewhere. */
static int stand_in(struct device_op *op, uint64_t total, struct err *e)
{
    for (int i = 0; make_room(op, total, e) == 0; i++) {
        if (export_stand_ins(op, e) == 0)
            return copy(op, false, op->stream, e);
        if (!device.closing || i == ROOMS_TRIED || leave_room(op) != 0)
            break;
        device.left[device.lefts - 1].op = NULL;
    }
    return -1;
}

int device_engine_give(struct device_op *op, struct err *e)
{
    uint64_t total;

    if (!device_engine_has(op->context) || !op->team || op->team->fsm.state == TEAM_STAGES ||
        (op->team->fsm.state == TEAM_NCCL && !op->team->by_engine))
        return 0; /* it is known that the engine will not be asked */
    if (make_call(op) != HVD_SUCCESS)
        return err_set(e, ERR_SYSTEM, "%s", hvd_last_error());
    if (place_all(op, &total) != 0)
        return err_set(e, ERR_MEMORY, "no memory");
    return op->stand_ins == 0 ? 0 : stand_in(op, total, e);
}

int device_engine_return(struct device_op *op, cu_stream stream, struct err *e)
{
    return op->by_engine ? copy(op, true, stream, e) : 0;
}

void device_engine_forget(struct device_op *op)
{
    leave_room(op); /* without memory for that nobody frees it */
    if (op->call)
        arena_free(op->call);
    free(op->stand_in);
    op->stand_in = NULL;
    op->stand_ins = op->stand_ins_room = 0;
    op->call = NULL;
}

/* ---- its turn ------------------------------------------------------------------------------------------ */

static struct shm_seat *own_seat(uint32_t slot)
{
    return &region_slot(&client.region, slot)->seat[client.local_rank];
}

/* `to` comes in the stream where `from` has come, and what was there before. */
static int pass_on(struct device_op *op, cu_stream stream, cu_event from, cu_event to, struct err *e)
{
    const struct driver *d = device.driver;
    int rc = device_enter(op->context, e);

    if (rc == 0) {
        rc = driver_check(d, d->cuStreamWaitEvent(stream, from, 0), e, "letting a stream wait for an event");
        if (rc == 0)
            rc = driver_check(d, d->cuEventRecord(to, stream), e, "recording an event");
        device_leave();
    }
    return rc;
}

int device_engine_record(struct device_op *op, struct err *e)
{
    return pass_on(op, op->team->stream, op->team->done, op->done, e);
}

int device_engine_launch(struct device_op *op, struct err *e)
{
    struct shm_device_call *call = op->call;
    uint32_t slot = op->tensor->slot, n = op->team->team->size;
    uint64_t *counts = (uint64_t *)(void *)&call->piece[op->operations], address;

    call->operation = op->tensor->sequence;
    call->pieces = (uint32_t)op->operations;
    call->known = op->known;
    call->ragged = is_ragged(op) ? n : 0;
    for (uint32_t i = 0; i < call->ragged; i++) {
        counts[i] = op->counts[i];
        counts[n + i] = op->sent[i];
    }
    if (!arena_address(call, op->call_bytes, &address))
        return err_set(e, ERR_PROTOCOL, "the engine cannot be told");
    if (pass_on(op, op->team->front, op->given, op->team->given, e) != 0)
        return -1;
    op->by_engine = true;
    op->phase = DEVICE_LAUNCHING;
    atomic_store(&own_seat(slot)->call, address);
    if (!ring_put(&client.mailbox->launch, slot))
        return err_set(e, ERR_PROTOCOL, "the engine cannot be told");
    kick_engine();
    return 0;
}

bool device_engine_launched(const struct device_op *op)
{
    return atomic_load(&own_seat(op->tensor->slot)->launched) == shm_tagged(op->tensor->sequence, 1);
}

/* ---- a team -------------------------------------------------------------------------------------------- */

static int make_event(cu_event *event, uint8_t handle[64], struct err *e)
{
    const struct driver *d = device.driver;
    struct cu_ipc_event name;
    int rc = driver_check(d, d->cuEventCreate(event, CU_EVENT_NO_TIMING | CU_EVENT_IPC), e,
                          "making an event for the engine");

    if (rc == 0)
        rc = driver_check(d, d->cuIpcGetEventHandle(&name, *event), e, "giving an event to the engine");
    if (rc == 0)
        memcpy(handle, &name, sizeof name);
    return rc;
}

static int make_bridge(struct device_team *team, struct worker_device *q, struct err *e)
{
    int rc = device_enter(team->context, e);

    if (rc == 0) {
        rc = driver_stream(device.driver, &team->front, e);
        if (rc == 0)
            rc = make_event(&team->given, q->given, e);
        if (rc == 0)
            rc = make_event(&team->done, q->done, e);
        device_leave();
    }
    return rc;
}

int device_engine_join(struct device_team *team, struct err *e)
{
    struct worker_message m = {.type = WORKER_DEVICE_JOIN, .set = team->team->id};
    struct worker_device q = {.gpu = team->context->engine.gpu,
                              .fuse = (uint32_t)team->all.fuse,
                              .rank = own_index(team->team),
                              .size = team->team->size};
    int rc = make_bridge(team, &q, e);

    memcpy(q.nccl_id, &team->cards[0].id, sizeof q.nccl_id);
    memcpy(m.text, &q, sizeof q);
    if (rc == 0 && rpc(&m, -1, NULL, NULL) != HVD_SUCCESS)
        rc = err_set(e, ERR_SYSTEM, "%s", hvd_last_error());
    if (rc != 0)
        device_engine_part(team);
    return rc;
}

/* In a stream of its own: the others may wait for it. */
void device_engine_release(const struct device_team *team)
{
    const struct driver *d = device.driver;
    cu_stream stream;

    if (!team->done || device_enter(team->context, NULL) != 0)
        return;
    if (driver_stream(d, &stream, NULL) == 0) {
        d->cuEventRecord(team->done, stream);
        d->cuStreamDestroy(stream);
    }
    device_leave();
}

void device_engine_part(struct device_team *team)
{
    const struct driver *d = device.driver;

    if (!team->front || device_enter(team->context, NULL) != 0)
        return;
    d->cuStreamDestroy(team->front);
    if (team->given)
        d->cuEventDestroy(team->given);
    if (team->done)
        d->cuEventDestroy(team->done);
    device_leave();
    team->front = NULL;
    team->given = team->done = NULL;
}

enum communicator_state device_engine_state(const struct device_team *team)
{
    uint64_t state = atomic_load(&own_seat(team->head->slot)->launched);

    return state <= COMMUNICATOR_ABORTED ? (enum communicator_state)state : COMMUNICATOR_FAILED;
}

void device_engine_leave(const struct device_team *team)
{
    struct worker_message m = {.type = WORKER_DEVICE_LEAVE, .set = team->team->id};

    rpc(&m, -1, NULL, NULL);
}

void device_engine_close(void)
{
    for (const struct device_context *c = device.contexts; c; c = c->next)
        if (c->engine_has) {
            rpc_simple(WORKER_DEVICE_CLOSE);
            device_export_forget_all();
            return;
        }
}
