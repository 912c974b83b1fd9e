/* Memory of a GPU in a job of one rank: the result is the rank's own elements. An operation that changes no
 * element is a copy in the user's stream. Scaled and logical operations go through host memory, and the
 * call waits for them. */
#include "collectives/client/gpu/gpu_path.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/kernels/dtype.h"

static bool changes_elements(const struct tensor_op *op)
{
    return op_reduces(op->kind) &&
           (op->prescale != 1 || op->postscale != 1 || (op->op >= HVD_LAND && op->op <= HVD_LXOR));
}

/* One tensor, `count` elements of it. */
static int copy_piece(const struct tensor *t, const struct gpu_operation *o, size_t count, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    size_t bytes = count * dtype_size(t->op.what.dtype);
    if (bytes == 0 || !o->out || o->out == o->in)
        return 0;
    return driver_check(d,
                        d->cuMemcpyDtoDAsync((cu_pointer)(uintptr_t)o->out, (cu_pointer)(uintptr_t)o->in,
                                             bytes, t->gpu->stream),
                        e, "copying on GPU %d", t->gpu->context->gpu);
}

static int compute_piece(const struct tensor *t, const struct gpu_operation *o, size_t count, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    cu_stream stream = t->gpu->stream;
    size_t bytes = count * dtype_size(t->op.what.dtype);
    void *memory = bytes ? malloc(bytes) : NULL;
    if (bytes == 0)
        return 0;
    if (!memory)
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes", bytes);
    int rc = driver_check(d, d->cuMemcpyDtoHAsync(memory, (cu_pointer)(uintptr_t)o->in, bytes, stream), e,
                          "copying from GPU %d", t->gpu->context->gpu);
    if (rc == 0)
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "waiting for a copy");
    if (rc == 0) {
        solo_reduce(&t->op.what, memory, memory, count);
        rc = driver_check(d, d->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)o->out, memory, bytes, stream), e,
                          "copying to GPU %d", t->gpu->context->gpu);
    }
    if (rc == 0) /* the memory goes */
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "waiting for a copy");
    free(memory);
    return rc;
}

static int run_pieces(struct tensor *t, struct err *e)
{
    struct gpu_op *op = t->gpu;
    int rc = 0;
    for (size_t i = 0; i < op->pieces.number && rc == 0; i++) {
        const struct gpu_operation *o = &op->pieces.piece[i];
        size_t count = op->pieces.table && !t->op.group ? op->pieces.table[0] : o->count;
        rc = changes_elements(&t->op.what) ? compute_piece(t, o, count, e) : copy_piece(t, o, count, e);
    }
    return rc;
}

/* One rank may not do what several ranks may not do: a program must work with any number of ranks. */
static int run_in_context(struct tensor *t)
{
    struct gpu_op *op = t->gpu;
    struct err e = ERR_INIT;
    unsigned mode = driver_capture_mode(gpu_state.driver, CU_CAPTURE_MODE_RELAXED);
    int rc = gpu_enter(op->context, &e), status = HVD_SUCCESS;
    if (rc == 0) {
        bool capturing;
        status = gpu_is_capturing(op, &capturing);
        if (status == HVD_SUCCESS && capturing)
            status = gpu_refuse_capture(op);
        if (status == HVD_SUCCESS)
            rc = run_pieces(t, &e);
        gpu_leave();
    }
    driver_capture_mode(gpu_state.driver, mode);
    return rc == 0 ? status : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %.300s", t->name, e.text);
}

int gpu_solo(struct tensor *t)
{
    int status = op_is_ragged(t->op.what.kind) ? solo_rows(t) : HVD_SUCCESS;
    if (status == HVD_SUCCESS && op_reduces(t->op.what.kind) && dtype_of_devices(t->op.what.dtype) &&
        changes_elements(&t->op.what)) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": %s cannot be scaled by one rank alone", t->name,
                 dtype_name(t->op.what.dtype));
        return HVD_ERR_INVALID;
    }
    if (status != HVD_SUCCESS)
        return status;
    status = run_in_context(t);
    if (status != HVD_SUCCESS)
        snprintf(t->text, sizeof t->text, "%s", hvd_last_error());
    return status;
}
