/* Operations that the engine runs for this rank: --gpu-placement engine.
 *
 * Everything up to an operation's turn, and everything after its place in a stream, is as when this process
 * runs NCCL. Between the two, the engine runs NCCL: it has opened the rank's memory and two events of the
 * team, and gets a description in shared memory (shm/device_call.h). Some memory cannot be opened by
 * another process: managed memory, memory of a pool, memory that was not made for export. A bounce buffer
 * that the engine can open stands for such memory: one copy within the GPU before the operation and one
 * after it, in the user's stream. So no rank needs to know the memory of another rank. */
#include "collectives/client/gpu/gpu_engine.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/client/arena.h"
#include "collectives/client/rpc.h"
#include "collectives/gpu/operation.h"
#include "collectives/shm/ring.h"

#define BOUNCE_ALIGN   512u
#define MEMORIES_TRIED 16

/* A buffer of the GPU that the engine uses instead of `own`. */
struct gpu_bounce {
    void *own;
    uint64_t bytes, offset; /* in the operation's bounce memory */
    bool is_in, is_out;
    uint32_t *memory_at; /* in the description */
    uint64_t *offset_at;
};

/* Bounce memory of operations that needed more, or have moved to another GPU. */
static struct gpu_bounce_memory *left;
static size_t lefts;

/* ---- the GPU ------------------------------------------------------------------------------------------- */

bool gpu_engine_has(struct gpu_context *c)
{
    struct worker_message m = {.type = WORKER_DEVICE_OPEN};
    int events = 0;
    if (c->exports.asked)
        return c->exports.has;
    c->exports.asked = true;
    if (client.solo || !client.region.header->devices || driver_lacks(gpu_state.driver, DRIVER_IPC) ||
        gpu_state.driver->cuDeviceGetAttribute(&events, CU_DEVICE_IPC_EVENTS, c->gpu) != CU_OK || !events)
        return false;
    struct worker_device q = {.gpu = 0};
    memcpy(q.uuid, c->what.uuid, sizeof q.uuid);
    memcpy(m.text, &q, sizeof q);
    if (rpc(&m, -1, NULL, NULL) != HVD_SUCCESS)
        return false; /* the engine has said why, in the job's log */
    memcpy(&c->exports.engine, m.text, sizeof c->exports.engine);
    return c->exports.has = c->exports.engine.gpu < UINT32_MAX;
}

struct gpu_abilities gpu_engine_abilities(const struct gpu_context *c)
{
    return (struct gpu_abilities){c->exports.engine.nccl, c->exports.engine.capability,
                                  c->exports.engine.kernels, (int32_t)c->exports.engine.fuse};
}

/* ---- a description ------------------------------------------------------------------------------------- */

static bool is_ragged(const struct gpu_op *op)
{
    return op_is_ragged(op->tensor->op.what.kind);
}

static int make_call(struct gpu_op *op)
{
    uint32_t ragged = is_ragged(op) ? op->team->team->size : 0;
    uint64_t bytes = shm_device_call_bytes((uint32_t)op->pieces.number, ragged);
    if (op->pieces.number > SHM_DEVICE_PIECES_MAX)
        return fail(HVD_ERR_INVALID, "tensor \"%s\": a group of %zu tensors is too large", op->tensor->name,
                    op->pieces.number);
    if (op->call.call && op->call.bytes >= bytes)
        return HVD_SUCCESS;
    if (op->call.call)
        arena_free(op->call.call);
    op->call.call = arena_alloc(bytes, false);
    if (!op->call.call)
        return last_failure();
    op->call.bytes = bytes;
    return HVD_SUCCESS;
}

static uint64_t in_bytes(const struct gpu_op *op, const struct gpu_operation *o)
{
    const struct tensor_op *what = &op->tensor->op.what;
    if (o->kind == GPU_BROADCAST)
        return 0;
    return is_ragged(op) ? tensor_all_bytes(what) : o->count * dtype_size(o->dtype);
}

static uint64_t out_bytes(const struct gpu_op *op, const struct gpu_operation *o)
{
    uint64_t element = dtype_size(o->dtype);
    if (is_ragged(op))
        return op->tensor->op.where.capacity * element;
    if (o->kind == GPU_REDUCESCATTER)
        return operation_part(o, (int)op->team->team->size, (int)team_own_index(op->team->team)) * element;
    return o->count * element;
}

/* ---- bounce buffers ------------------------------------------------------------------------------------ */

/* Copies between all buffers that have bounce buffers and these. */
static int copy_bounces(struct gpu_op *op, bool back, cu_stream stream, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    int rc = 0;
    for (size_t i = 0; i < op->call.bounces && rc == 0; i++) {
        const struct gpu_bounce *s = &op->call.bounce[i];
        cu_pointer own = (cu_pointer)(uintptr_t)s->own, there = op->call.memory.at + s->offset;
        if (s->bytes > 0 && (back ? s->is_out : s->is_in))
            rc = driver_check(d,
                              d->cuMemcpyDtoDAsync(back ? own : there, back ? there : own, s->bytes, stream),
                              e, "copying on GPU %d", op->context->gpu);
    }
    return rc;
}

/* Memory that the engine has opened is not freed in the middle of a job: CUDA does not define the outcome,
 * and if the engine closed it first, the engine would wait for its GPU. So an operation leaves its memory
 * until hvd_shutdown. Each block is at least twice as large as the block before, so the blocks that are left
 * are never larger than the block in use. */
static int leave_memory(struct gpu_op *op)
{
    if (!op->call.memory.at)
        return 0;
    struct gpu_bounce_memory *more = realloc(left, (lefts + 1) * sizeof *more);
    if (!more)
        return -1;
    left = more;
    more[lefts++] = op->call.memory;
    op->call.memory = (struct gpu_bounce_memory){.at = 0};
    return 0;
}

/* Takes back memory that the operation left when it moved to another GPU. */
static bool reuse_memory(struct gpu_op *op, uint64_t bytes)
{
    for (struct gpu_bounce_memory *r = left; r < left + lefts; r++)
        if (r->op == op && r->context == op->context->context && bytes <= r->bytes) {
            op->call.memory = *r;
            *r = left[--lefts];
            return true;
        }
    return false;
}

/* While the engine has memory to close it cannot open other memory by a handle. Memory that comes as a
 * descriptor gets addresses of its own there, so it can be opened. */
static int allocate_bounce(struct gpu_bounce_memory *r)
{
    void *at = NULL;
    if (gpu_state.closing)
        gpu_open_nccl();
    r->by_nccl = gpu_state.closing && gpu_state.nccl && gpu_state.nccl->ncclMemAlloc &&
                 gpu_state.nccl->ncclMemFree && gpu_state.nccl->ncclMemAlloc(&at, r->bytes) == NCCL_OK;
    if (!r->by_nccl)
        return gpu_state.driver->cuMemAlloc(&r->at, r->bytes);
    r->at = (cu_pointer)(uintptr_t)at;
    return CU_OK;
}

static int make_memory(struct gpu_op *op, uint64_t bytes, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    const struct gpu_bounce_memory before = op->call.memory;
    struct gpu_bounce_memory new = {.op = op, .context = op->context->context, .bytes = bytes};
    if (before.at && before.context == new.context) {
        if (bytes <= before.bytes)
            return 0;
        new.bytes = bytes < 2 * before.bytes ? 2 * before.bytes : bytes;
    }
    if (leave_memory(op) != 0)
        return err_set(e, ERR_MEMORY, "no memory");
    if (reuse_memory(op, bytes))
        return 0;
    if (allocate_bounce(&new) != CU_OK) {
        new.bytes = bytes;
        if (driver_check(d, allocate_bounce(&new), e, "allocating %llu bytes on GPU %d",
                         (unsigned long long)bytes, op->context->gpu) != 0)
            return -1;
    }
    op->call.memory = new;
    return 0;
}

void gpu_engine_free(void)
{
    cu_context before;
    for (const struct gpu_bounce_memory *r = left; r < left + lefts; r++)
        if (gpu_state.driver->cuCtxPushCurrent(r->context) == CU_OK) {
            if (r->by_nccl)
                gpu_state.nccl->ncclMemFree((void *)(uintptr_t)r->at);
            else
                gpu_state.driver->cuMemFree(r->at);
            gpu_state.driver->cuCtxPopCurrent(&before);
        }
    free(left);
    left = NULL;
    lefts = 0;
}

/* The engine's number and offset of a buffer, or a bounce buffer that gets them later. -1: no memory. */
static int place_buffer(struct gpu_op *op, const struct gpu_bounce *what, uint32_t *memory, uint64_t *offset,
                        uint64_t *total)
{
    *memory = 0;
    *offset = 0;
    if (what->bytes == 0 || gpu_export(op->context, what->own, what->bytes, memory, offset))
        return 0;
    struct gpu_bounce *more;
    if (!grow_array((void **)&op->call.bounce, &op->call.bounces_capacity, op->call.bounces, sizeof *more))
        return -1;
    more = &op->call.bounce[op->call.bounces++];
    *more = *what;
    more->offset = *total;
    more->memory_at = memory;
    more->offset_at = offset;
    *total += (what->bytes + BOUNCE_ALIGN - 1) / BOUNCE_ALIGN * BOUNCE_ALIGN;
    return 0;
}

static int place_all(struct gpu_op *op, uint64_t *total)
{
    int rc = 0;
    op->call.bounces = 0;
    *total = 0;
    for (size_t i = 0; i < op->pieces.number && rc == 0; i++) {
        const struct gpu_operation *o = &op->pieces.piece[i];
        struct shm_device_piece *p = &op->call.call->piece[i];
        bool broadcast = o->kind == GPU_BROADCAST;
        *p = (struct shm_device_piece){.kind = o->kind,
                                       .dtype = o->dtype,
                                       .op = o->op,
                                       .root = o->root,
                                       .prescale = o->prescale,
                                       .postscale = o->postscale,
                                       .count = o->count,
                                       .row_count = o->row_count};
        struct gpu_bounce in = {.own = (void *)(uintptr_t)o->in, .bytes = in_bytes(op, o), .is_in = true};
        struct gpu_bounce out = {
            .own = o->out, .bytes = out_bytes(op, o), .is_in = broadcast, .is_out = true};
        rc = place_buffer(op, &in, &p->in_memory, &p->in_offset, total);
        if (rc == 0)
            rc = place_buffer(op, &out, &p->out_memory, &p->out_offset, total);
    }
    return rc;
}

/* The engine opens the memory of the bounce buffers, too. */
static int export_bounces(struct gpu_op *op, struct err *e)
{
    for (size_t i = 0; i < op->call.bounces; i++) {
        const struct gpu_bounce *s = &op->call.bounce[i];
        if (!gpu_export(op->context, (const void *)(uintptr_t)(op->call.memory.at + s->offset), s->bytes,
                        s->memory_at, s->offset_at))
            return err_set(e, ERR_SYSTEM, "the engine cannot use memory of GPU %d", op->context->gpu);
    }
    return 0;
}

/* New memory may lie where the engine has yet to close other memory: then the engine cannot open it. Such
 * memory is kept, so that the next block lies elsewhere. */
static int make_bounces(struct gpu_op *op, uint64_t total, struct err *e)
{
    for (int i = 0; make_memory(op, total, e) == 0; i++) {
        if (export_bounces(op, e) == 0)
            return copy_bounces(op, false, op->stream, e);
        if (!gpu_state.closing || i == MEMORIES_TRIED || leave_memory(op) != 0)
            break;
        left[lefts - 1].op = NULL;
    }
    return -1;
}

int gpu_engine_prepare(struct gpu_op *op, struct err *e)
{
    if (!gpu_engine_has(op->context) || !op->team || op->team->fsm.state == TEAM_STAGES ||
        (op->team->fsm.state == TEAM_NCCL && !op->team->by_engine))
        return 0; /* it is known that the engine will not be asked */
    if (make_call(op) != HVD_SUCCESS)
        return err_set(e, ERR_SYSTEM, "%s", hvd_last_error());
    uint64_t total;
    if (place_all(op, &total) != 0)
        return err_set(e, ERR_MEMORY, "no memory");
    return op->call.bounces == 0 ? 0 : make_bounces(op, total, e);
}

int gpu_engine_copy_back(struct gpu_op *op, cu_stream stream, struct err *e)
{
    return op->by_engine ? copy_bounces(op, true, stream, e) : 0;
}

void gpu_engine_forget(struct gpu_op *op)
{
    leave_memory(op); /* if the list of blocks cannot grow, the block is leaked */
    if (op->call.call)
        arena_free(op->call.call);
    free(op->call.bounce);
    op->call.bounce = NULL;
    op->call.bounces = op->call.bounces_capacity = 0;
    op->call.call = NULL;
}

/* ---- its turn ------------------------------------------------------------------------------------------ */

static struct shm_member_slot *own_member_slot(uint32_t slot)
{
    return &region_slot(&client.region, slot)->member_slot[client.local_rank];
}

/* `to` comes in the stream where `from` has come, and what was there before. */
static int pass_on(struct gpu_op *op, cu_stream stream, cu_event from, cu_event to, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    int rc = gpu_enter(op->context, e);
    if (rc == 0) {
        rc = driver_check(d, d->cuStreamWaitEvent(stream, from, 0), e, "letting a stream wait for an event");
        if (rc == 0)
            rc = driver_check(d, d->cuEventRecord(to, stream), e, "recording an event");
        gpu_leave();
    }
    return rc;
}

int gpu_engine_record(struct gpu_op *op, struct err *e)
{
    return pass_on(op, op->team->stream, op->team->bridge.result_ready, op->result_ready, e);
}

int gpu_engine_launch(struct gpu_op *op, struct err *e)
{
    struct shm_device_call *call = op->call.call;
    uint32_t slot = op->tensor->slot, n = op->team->team->size;
    uint64_t *counts = (uint64_t *)(void *)&call->piece[op->pieces.number];
    call->operation = op->tensor->sequence;
    call->pieces = (uint32_t)op->pieces.number;
    call->known = op->registered;
    call->ragged = is_ragged(op) ? n : 0;
    for (uint32_t i = 0; i < call->ragged; i++) {
        counts[i] = op->pieces.counts[i];
        counts[n + i] = op->pieces.sent[i];
    }
    uint64_t address;
    if (!arena_address(call, op->call.bytes, &address))
        return err_set(e, ERR_PROTOCOL, "the engine cannot be told");
    if (pass_on(op, op->team->bridge.stream, op->input_ready, op->team->bridge.input_ready, e) != 0)
        return -1;
    op->by_engine = true;
    op->phase = GPU_LAUNCHING;
    atomic_store(&own_member_slot(slot)->call, address);
    if (!ring_put(&client.mailbox->launch, slot))
        return err_set(e, ERR_PROTOCOL, "the engine cannot be told");
    engine_wake();
    return 0;
}

bool gpu_engine_launched(const struct gpu_op *op)
{
    return atomic_load(&own_member_slot(op->tensor->slot)->launched) == shm_tagged(op->tensor->sequence, 1);
}

/* ---- a team -------------------------------------------------------------------------------------------- */

static int make_event(cu_event *event, uint8_t handle[64], struct err *e)
{
    const struct driver *d = gpu_state.driver;
    struct cu_ipc_event name;
    int rc = driver_check(d, d->cuEventCreate(event, CU_EVENT_NO_TIMING | CU_EVENT_IPC), e,
                          "making an event for the engine");
    if (rc == 0)
        rc = driver_check(d, d->cuIpcGetEventHandle(&name, *event), e, "giving an event to the engine");
    if (rc == 0)
        memcpy(handle, &name, sizeof name);
    return rc;
}

static int make_bridge(struct gpu_team *team, struct worker_device *q, struct err *e)
{
    int rc = gpu_enter(team->context, e);
    if (rc == 0) {
        rc = driver_stream(gpu_state.driver, &team->bridge.stream, e);
        if (rc == 0)
            rc = make_event(&team->bridge.input_ready, q->given, e);
        if (rc == 0)
            rc = make_event(&team->bridge.result_ready, q->done, e);
        gpu_leave();
    }
    return rc;
}

int gpu_engine_join(struct gpu_team *team, struct err *e)
{
    struct worker_message m = {.type = WORKER_DEVICE_JOIN, .set = team->team->id};
    struct worker_device q = {.gpu = team->context->exports.engine.gpu,
                              .fuse = (uint32_t)team->all.fuse,
                              .rank = team_own_index(team->team),
                              .size = team->team->size};
    int rc = make_bridge(team, &q, e);
    memcpy(q.nccl_id, &team->capabilities[0].id, sizeof q.nccl_id);
    memcpy(m.text, &q, sizeof q);
    if (rc == 0 && rpc(&m, -1, NULL, NULL) != HVD_SUCCESS)
        rc = err_set(e, ERR_SYSTEM, "%s", hvd_last_error());
    if (rc != 0)
        gpu_bridge_close(team);
    return rc;
}

void gpu_bridge_close(struct gpu_team *team)
{
    const struct driver *d = gpu_state.driver;
    if (!team->bridge.stream || gpu_enter(team->context, NULL) != 0)
        return;
    d->cuStreamDestroy(team->bridge.stream);
    if (team->bridge.input_ready)
        d->cuEventDestroy(team->bridge.input_ready);
    if (team->bridge.result_ready)
        d->cuEventDestroy(team->bridge.result_ready);
    gpu_leave();
    team->bridge.stream = NULL;
    team->bridge.input_ready = team->bridge.result_ready = NULL;
}

enum communicator_state gpu_engine_state(const struct gpu_team *team)
{
    uint64_t state = atomic_load(&own_member_slot(team->head->slot)->launched);
    return state <= COMMUNICATOR_ABORTED ? (enum communicator_state)state : COMMUNICATOR_FAILED;
}

void gpu_engine_leave(const struct gpu_team *team)
{
    struct worker_message m = {.type = WORKER_DEVICE_LEAVE, .set = team->team->id};
    rpc(&m, -1, NULL, NULL);
}

void gpu_engine_close(void)
{
    for (const struct gpu_context *c = gpu_state.contexts; c; c = c->next)
        if (c->exports.has) {
            rpc_simple(WORKER_DEVICE_CLOSE);
            gpu_export_forget_all();
            return;
        }
}
