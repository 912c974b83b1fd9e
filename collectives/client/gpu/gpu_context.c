/* The contexts in which this rank has memory. */
#include "collectives/client/gpu/gpu.h"

#include <stdlib.h>

static void relax(void)
{
    if (!device.driver && atomic_load(&device_seen))
        device.driver = driver_open(NULL);
    device.capture_mode =
        device.driver ? driver_capture_mode(device.driver, CU_CAPTURE_MODE_RELAXED) : CU_CAPTURE_MODE_GLOBAL;
}

void device_lock(void)
{
    pthread_mutex_lock(&device.lock);
    relax();
}

bool device_trylock(void)
{
    if (pthread_mutex_trylock(&device.lock) != 0)
        return false;
    relax();
    return true;
}

void device_unlock(void)
{
    if (device.driver)
        driver_capture_mode(device.driver, device.capture_mode);
    pthread_mutex_unlock(&device.lock);
}

int device_capturing(const struct device_op *op, bool *is)
{
    const struct driver *d = device.driver;
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

int device_is_captured(const struct device_op *op)
{
    return fail(HVD_ERR_INVALID, "tensor \"%s\": its stream is being captured into a graph",
                op->tensor->name);
}

int device_enter(const struct device_context *context, struct err *e)
{
    return driver_check(device.driver, device.driver->cuCtxPushCurrent(context->context), e, "using GPU %d",
                        context->gpu);
}

void device_leave(void)
{
    cu_context before;

    device.driver->cuCtxPopCurrent(&before);
}

/* An event is recorded in streams of its own context only, but any stream waits for it. */
static int record_across(struct device_op *op, cu_context of, struct err *e)
{
    const struct driver *d = device.driver;
    cu_event between = NULL;
    cu_stream ours = NULL;
    cu_context before;
    int rc = driver_check(d, d->cuCtxPushCurrent(of), e, "using the stream's context");

    if (rc != 0)
        return rc;
    rc = driver_check(d, d->cuEventCreate(&between, CU_EVENT_NO_TIMING), e, "making an event");
    if (rc == 0)
        rc = driver_check(d, d->cuEventRecord(between, op->stream), e, "recording an event in the stream");
    d->cuCtxPopCurrent(&before);
    if (rc == 0)
        rc = driver_stream(d, &ours, e);
    if (rc == 0)
        rc = driver_check(d, d->cuStreamWaitEvent(ours, between, 0), e, "waiting for an event");
    if (rc == 0)
        rc = driver_check(d, d->cuEventRecord(op->given, ours), e, "recording an event");
    if (ours)
        d->cuStreamDestroy(ours);
    if (between)
        d->cuEventDestroy(between);
    return rc;
}

/* The default streams are those of the context that is current. */
int device_record_given(struct device_op *op, struct err *e)
{
    const struct driver *d = device.driver;
    cu_context of = op->context->context;

    if ((uintptr_t)op->stream > (uintptr_t)CU_STREAM_OF_THREAD &&
        d->cuStreamGetCtx(op->stream, &of) == CU_OK && of != op->context->context)
        return record_across(op, of, e);
    return driver_check(d, d->cuEventRecord(op->given, op->stream), e, "recording an event in the stream");
}

/* Memory that belongs to no context: this thread's, if it is of that GPU, else the one that all share. */
static int choose_context(int gpu, cu_context *context, bool *retained, struct err *e)
{
    const struct driver *d = device.driver;
    cu_device current;

    if (d->cuCtxGetCurrent(context) == CU_OK && *context && d->cuCtxGetDevice(&current) == CU_OK &&
        current == gpu)
        return 0;
    if (driver_check(d, d->cuDevicePrimaryCtxRetain(context, gpu), e, "using GPU %d", gpu) != 0)
        return -1;
    *retained = true;
    return 0;
}

/* NCCL works in that one. Where the driver does not say it is taken for it. */
static bool is_primary(cu_context context, int gpu)
{
    const struct driver *d = device.driver;
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

static struct device_context *make_context(const struct device_context *like, struct err *e)
{
    struct device_context *c = calloc(1, sizeof *c);

    if (!c) {
        err_set(e, ERR_MEMORY, "no memory for GPU %d", like->gpu);
        return NULL;
    }
    *c = *like;
    c->primary = c->retained || is_primary(c->context, c->gpu);
    if (driver_describe(device.driver, c->gpu, &c->what, e) != 0) {
        free(c);
        return NULL;
    }
    if (device_enter(c, NULL) == 0) {
        c->pack = pack_open(device.driver, NULL);
        device_leave();
    }
    c->next = device.contexts;
    return device.contexts = c;
}

struct device_context *device_context_find(const struct pointer *at, struct err *e)
{
    struct device_context new = {.context = at->context, .gpu = at->ordinal}, *c;

    if (!device.driver && !(device.driver = driver_open(e)))
        return NULL;
    for (c = device.contexts; !new.context &&c; c = c->next)
        if (c->gpu == at->ordinal)
            return c;
    if (!new.context && choose_context(at->ordinal, &new.context, &new.retained, e) != 0)
        return NULL;
    for (c = device.contexts; c && c->context != new.context; c = c->next)
        ;
    if (!c && (c = make_context(&new, e)) != NULL)
        return c;
    if (new.retained) /* that is not needed */
        device.driver->cuDevicePrimaryCtxRelease(at->ordinal);
    return c;
}

void device_close_contexts(void)
{
    struct device_context *context;

    if (!device.contexts)
        return;
    device_lock();
    device_engine_free();
    while ((context = device.contexts) != NULL) {
        device.contexts = context->next;
        if (context->pack && device_enter(context, NULL) == 0) {
            pack_close(context->pack);
            device_leave();
        } else {
            pack_forget(context->pack);
        }
        if (context->retained)
            device.driver->cuDevicePrimaryCtxRelease(context->gpu);
        free(context->exported);
        free(context->span);
        free(context);
    }
    device_unlock();
}
