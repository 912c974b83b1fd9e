/* Memory of a device in a job of one rank: the result is what it gives. Where that changes nothing it is
 * copied in the user's stream; scaled ones and those of truth go through host memory, and are waited for. */
#include "collectives/client/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

static bool changes(const struct tensor_op *op)
{
    return op_reduces(op->kind) &&
           (op->prescale != 1 || op->postscale != 1 || (op->op >= HVD_LAND && op->op <= HVD_LXOR));
}

/* One tensor, `count` elements of it. */
static int copy(const struct tensor *t, const struct device_operation *o, size_t count, struct err *e)
{
    const struct driver *d = device.driver;
    size_t bytes = count * dtype_size(t->op.dtype);

    if (bytes == 0 || !o->out || o->out == o->in)
        return 0;
    return driver_check(d,
                        d->cuMemcpyDtoDAsync((cu_pointer)(uintptr_t)o->out, (cu_pointer)(uintptr_t)o->in,
                                             bytes, t->device->stream),
                        e, "copying on GPU %d", t->device->context->gpu);
}

static int compute(const struct tensor *t, const struct device_operation *o, size_t count, struct err *e)
{
    const struct driver *d = device.driver;
    cu_stream stream = t->device->stream;
    size_t bytes = count * dtype_size(t->op.dtype);
    void *memory = bytes ? malloc(bytes) : NULL;
    int rc;

    if (bytes == 0)
        return 0;
    if (!memory)
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes", bytes);
    rc = driver_check(d, d->cuMemcpyDtoHAsync(memory, (cu_pointer)(uintptr_t)o->in, bytes, stream), e,
                      "copying from GPU %d", t->device->context->gpu);
    if (rc == 0)
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "waiting for a copy");
    if (rc == 0) {
        solo_reduce(&t->op, memory, memory, count);
        rc = driver_check(d, d->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)o->out, memory, bytes, stream), e,
                          "copying to GPU %d", t->device->context->gpu);
    }
    if (rc == 0) /* the memory goes */
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "waiting for a copy");
    free(memory);
    return rc;
}

static int run(struct tensor *t, struct err *e)
{
    struct device_op *op = t->device;
    int rc = 0;

    for (size_t i = 0; i < op->operations && rc == 0; i++) {
        const struct device_operation *o = &op->operation[i];
        size_t count = op->table && !t->group ? op->table[0] : o->count;
        rc = changes(&t->op) ? compute(t, o, count, e) : copy(t, o, count, e);
    }
    return rc;
}

/* What several ranks may not do one may not either: a program is to be the same for both. */
static int run_in_context(struct tensor *t)
{
    struct device_op *op = t->device;
    struct err e = ERR_INIT;
    unsigned mode = driver_capture_mode(device.driver, CU_CAPTURE_MODE_RELAXED);
    int rc = device_enter(op->context, &e), status = HVD_SUCCESS;
    bool capturing;

    if (rc == 0) {
        status = device_capturing(op, &capturing);
        if (status == HVD_SUCCESS && capturing)
            status = device_is_captured(op);
        if (status == HVD_SUCCESS)
            rc = run(t, &e);
        device_leave();
    }
    driver_capture_mode(device.driver, mode);
    return rc == 0 ? status : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %.300s", t->name, e.text);
}

int device_solo(struct tensor *t)
{
    int status = op_is_ragged(t->op.kind) ? solo_rows(t) : HVD_SUCCESS;

    if (status == HVD_SUCCESS && op_reduces(t->op.kind) && dtype_of_devices(t->op.dtype) && changes(&t->op)) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": %s cannot be scaled by one rank alone", t->name,
                 dtype_name(t->op.dtype));
        return HVD_ERR_INVALID;
    }
    if (status == HVD_SUCCESS && (status = run_in_context(t)) != HVD_SUCCESS)
        snprintf(t->text, sizeof t->text, "%s", hvd_last_error());
    return status;
}
