/* A rank without elements in an operation: it goes with the other ranks, wherever their elements are.
 *
 * The rank marks its operation with OP_EITHER, and learns with the agreement where the operation is. On the
 * host it becomes an operation of the host. On GPUs the rank takes part like all others, because NCCL needs
 * all ranks of a communicator. So the rank needs a GPU at that moment, and not before. Its buffers or its
 * stream name the GPU, or an earlier operation of the set or the rank, or the thread's context. Otherwise
 * the GPU is chosen when the set makes its communicator: a GPU that this process uses already, else the one
 * of the rank's number on its host. A rank without any GPU tells the others, and the whole set goes through
 * host memory. */
#include "collectives/client/gpu/gpu_engine.h"

#include "collectives/gpu/pointer.h"

static bool context_of_stream(cu_stream stream, cu_context *context)
{
    return stream && gpu_state.driver->cuStreamGetCtx(stream, context) == CU_OK && *context;
}

bool gpu_locate_empty(const struct request *r, struct pointer *at)
{
    const struct gpu_context *c = gpu_state.contexts;
    bool entered = false;
    *at = (struct pointer){.device = true};
    for (const struct gpu_team *t = gpu_state.teams; t; t = t->next)
        c = t->team == r->team && t->context ? t->context : c;
    if (c) {
        at->context = c->context;
        at->ordinal = c->gpu;
        return true;
    }
    if (!gpu_open_driver(NULL))
        return false;
    if (context_of_stream(r->stream, &at->context))
        entered = gpu_state.driver->cuCtxPushCurrent(at->context) == CU_OK;
    else if (gpu_state.driver->cuCtxGetCurrent(&at->context) != CU_OK || !at->context)
        return false;
    cu_device gpu;
    bool found = gpu_state.driver->cuCtxGetDevice(&gpu) == CU_OK;
    cu_context before;
    if (entered)
        gpu_state.driver->cuCtxPopCurrent(&before);
    at->ordinal = found ? gpu : -1;
    return found;
}

uint8_t gpu_claim_empty(const struct request *r, bool on_device)
{
    return client.solo || r->op.kind == SHM_ALLREDUCE_SHARED ? on_device : OP_EITHER;
}

/* One that this process uses, if there is one. -1: there is no GPU. */
static int choose_gpu(const struct driver *d)
{
    int n = 0, active = 0;
    if (d->cuDeviceGetCount(&n) != CU_OK || n <= 0)
        return -1;
    int own = client.local_rank % n;
    unsigned flags;
    for (int i = 0; i < n; i++) /* its own before the others */
        if (d->cuDevicePrimaryCtxGetState((own + i) % n, &flags, &active) == CU_OK && active)
            return (own + i) % n;
    return own;
}

/* The set's operations begin now. -1: this rank has no GPU. */
int gpu_team_choose_gpu(struct gpu_team *team, struct err *e)
{
    struct gpu_context *c = gpu_state.contexts;
    if (team->context)
        return 0;
    if (!gpu_open_driver(e))
        return -1;
    if (!c) {
        int gpu = choose_gpu(gpu_state.driver);
        if (gpu < 0)
            return err_set(e, ERR_SYSTEM, "it has no GPU");
        c = gpu_context_find(&(struct pointer){.device = true, .ordinal = gpu}, e);
    }
    return c ? gpu_team_set_context(team, c, e) : -1;
}

/* Makes up for the steps that a call with elements does before the agreement. */
static int equip_empty(struct gpu_op *op, struct err *e)
{
    op->context = op->team->context;
    op->stream = op->team->stream; /* the call's own need not wait for it: nothing is written for it */
    if (gpu_make_events(op, e) != 0 || gpu_enter(op->context, e) != 0)
        return -1;
    int rc = gpu_engine_prepare(op, e);
    if (rc == 0)
        rc = driver_check(gpu_state.driver, gpu_state.driver->cuEventRecord(op->input_ready, op->stream), e,
                          "recording an event");
    gpu_leave();
    return rc;
}

bool gpu_op_take_part(struct gpu_op *op)
{
    struct err e = ERR_INIT;
    if (op->context || !op->team->context || equip_empty(op, &e) == 0)
        return true;
    op->context = NULL;
    gpu_fail_job("rank %d: tensor \"%s\": %s", client.rank, op->tensor->name, e.text);
    return false;
}
