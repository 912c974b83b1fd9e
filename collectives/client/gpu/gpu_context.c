/* The contexts in which this rank has memory, their events, and captures of streams. */
#include "collectives/client/gpu/gpu_core.h"

#include <stdlib.h>

#include "collectives/client/gpu/gpu_team.h"
#include "collectives/gpu/pack.h"

int gpu_is_capturing(const struct gpu_op *op, bool *is)
{
    const struct driver *d = gpu_state.driver;
    struct err e = ERR_INIT;
    unsigned status = CU_CAPTURE_NONE;
    cu_result rc = d->cuStreamIsCapturing ? d->cuStreamIsCapturing(op->stream, &status) : CU_OK;
    *is = status != CU_CAPTURE_NONE;
    if (rc == CU_CAPTURE_IMPLICIT)
        return fail(
            HVD_ERR_INVALID,
            "tensor \"%s\": the default stream would be in the way of one that is being captured into "
            "a graph",
            op->tensor->name);
    if (driver_check(d, rc, &e, "asking for a stream's state") != 0)
        return fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", op->tensor->name, e.text);
    return HVD_SUCCESS;
}

int gpu_refuse_capture(const struct gpu_op *op)
{
    return fail(HVD_ERR_INVALID, "tensor \"%s\": its stream is being captured into a graph",
                op->tensor->name);
}

void gpu_drop_events(struct gpu_op *op)
{
    const struct driver *d = gpu_state.driver;
    if (op->input_ready)
        d->cuEventDestroy(op->input_ready);
    if (op->result_ready)
        d->cuEventDestroy(op->result_ready);
    op->input_ready = op->result_ready = NULL;
}

int gpu_make_events(struct gpu_op *op, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    if (op->input_ready)
        return 0;
    if (gpu_enter(op->context, e) != 0)
        return -1;
    int rc = driver_check(d, d->cuEventCreate(&op->input_ready, CU_EVENT_NO_TIMING), e, "making an event");
    if (rc == 0)
        rc = driver_check(d, d->cuEventCreate(&op->result_ready, CU_EVENT_NO_TIMING), e, "making an event");
    if (rc != 0)
        gpu_drop_events(op);
    gpu_leave();
    return rc;
}

/* An event is recorded in streams of its own context only, but any stream waits for it. */
static int record_across(struct gpu_op *op, cu_context of, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    cu_event between = NULL;
    cu_stream ours = NULL;
    int rc = driver_check(d, d->cuCtxPushCurrent(of), e, "using the stream's context");
    if (rc != 0)
        return rc;
    rc = driver_check(d, d->cuEventCreate(&between, CU_EVENT_NO_TIMING), e, "making an event");
    if (rc == 0)
        rc = driver_check(d, d->cuEventRecord(between, op->stream), e, "recording an event in the stream");
    cu_context before;
    d->cuCtxPopCurrent(&before);
    if (rc == 0)
        rc = driver_stream(d, &ours, e);
    if (rc == 0)
        rc = driver_check(d, d->cuStreamWaitEvent(ours, between, 0), e, "waiting for an event");
    if (rc == 0)
        rc = driver_check(d, d->cuEventRecord(op->input_ready, ours), e, "recording an event");
    if (ours)
        d->cuStreamDestroy(ours);
    if (between)
        d->cuEventDestroy(between);
    return rc;
}

/* The default streams are those of the context that is current. */
int gpu_record_input(struct gpu_op *op, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    cu_context of = op->context->context;
    if ((uintptr_t)op->stream > (uintptr_t)CU_STREAM_OF_THREAD &&
        d->cuStreamGetCtx(op->stream, &of) == CU_OK && of != op->context->context)
        return record_across(op, of, e);
    return driver_check(d, d->cuEventRecord(op->input_ready, op->stream), e,
                        "recording an event in the stream");
}

/* The context for memory that belongs to none: this thread's if it is of that GPU, else the GPU's primary
 * context. */
static int choose_context(int gpu, cu_context *context, bool *retained, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    cu_device current;
    if (d->cuCtxGetCurrent(context) == CU_OK && *context && d->cuCtxGetDevice(&current) == CU_OK &&
        current == gpu)
        return 0;
    if (driver_check(d, d->cuDevicePrimaryCtxRetain(context, gpu), e, "using GPU %d", gpu) != 0)
        return -1;
    *retained = true;
    return 0;
}

/* Whether the context is the GPU's primary one, in which NCCL works. true also if the driver does not say. */
static bool is_primary(cu_context context, int gpu)
{
    const struct driver *d = gpu_state.driver;
    cu_context primary = context;
    unsigned flags;
    int active = 1;
    if (d->cuDevicePrimaryCtxGetState(gpu, &flags, &active) != CU_OK)
        return true;
    if (!active)
        return false;
    if (d->cuDevicePrimaryCtxRetain(&primary, gpu) == CU_OK)
        d->cuDevicePrimaryCtxRelease(gpu);
    return primary == context;
}

static struct gpu_context *make_context(const struct gpu_context *like, struct err *e)
{
    struct gpu_context *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_MEMORY, "no memory for GPU %d", like->gpu);
        return NULL;
    }
    *c = *like;
    c->primary = c->retained || is_primary(c->context, c->gpu);
    if (driver_describe(gpu_state.driver, c->gpu, &c->what, e) != 0) {
        free(c);
        return NULL;
    }
    if (gpu_enter(c, NULL) == 0) {
        c->pack = pack_open(gpu_state.driver, NULL);
        gpu_leave();
    }
    c->next = gpu_state.contexts;
    return gpu_state.contexts = c;
}

struct gpu_context *gpu_context_find(const struct pointer *at, struct err *e)
{
    struct gpu_context new = {.context = at->context, .gpu = at->ordinal};
    if (!gpu_open_driver(e))
        return NULL;
    struct gpu_context *c;
    for (c = gpu_state.contexts; !new.context &&c; c = c->next)
        if (c->gpu == at->ordinal)
            return c;
    if (!new.context && choose_context(at->ordinal, &new.context, &new.retained, e) != 0)
        return NULL;
    for (c = gpu_state.contexts; c && c->context != new.context; c = c->next)
        ;
    if (!c) {
        c = make_context(&new, e);
        if (c)
            return c;
    }
    if (new.retained) /* that is not needed */
        gpu_state.driver->cuDevicePrimaryCtxRelease(at->ordinal);
    return c;
}

int gpu_team_set_context(struct gpu_team *team, struct gpu_context *context, struct err *e)
{
    int rc = gpu_enter(context, e);
    if (rc == 0) {
        rc = driver_stream(gpu_state.driver, &team->stream, e);
        gpu_leave();
    }
    if (rc == 0)
        team->context = context;
    return rc;
}
