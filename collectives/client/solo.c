/* The path of a job of one rank: the result is what this rank gives, and there is no rank to wait for. */
#include "collectives/client/operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/client/arena.h"
#include "collectives/client/group.h"
#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce.h"

void solo_reduce(const struct tensor_op *op, const void *in, void *out, size_t count)
{
    struct reduce_job job = {
        .in = &in,
        .inputs = 1,
        .out = &out,
        .outputs = 1,
        .dtype = (hvd_dtype)op->dtype,
        .op = op_is_adasum(op) ? HVD_SUM : (hvd_op)op->op, /* one vector stays what it is */
        .prescale = op->prescale,
        .postscale = op->postscale,
    };
    reduce_range(&job, 0, count);
}

static int reduce_group(struct tensor *t)
{
    size_t bytes = t->op.bytes;
    void *packed = malloc(bytes ? bytes : 1);
    if (!packed) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": no memory", t->name);
        return HVD_ERR_MEMORY;
    }
    group_pack(t->op.group, packed);
    if (bytes > 0)
        solo_reduce(&t->op.what, packed, packed, t->op.what.count);
    group_unpack(t->op.group, packed);
    free(packed);
    return HVD_SUCCESS;
}

static int reduce_elements(struct tensor *t)
{
    if (t->op.group)
        return reduce_group(t);
    if (t->op.result) {
        size_t bytes = tensor_bytes(&t->op.what);
        if (t->shared.bytes < bytes) {
            arena_free(t->shared.memory);
            t->shared.memory = arena_alloc(bytes, false);
            t->shared.bytes = t->shared.memory ? bytes : 0;
        }
        t->op.out = t->shared.memory;
        *t->op.result = t->shared.memory;
        if (!t->shared.memory && bytes > 0) {
            snprintf(t->text, sizeof t->text, "tensor \"%s\": no memory", t->name);
            return HVD_ERR_MEMORY;
        }
    }
    if (t->op.what.count > 0)
        solo_reduce(&t->op.what, t->op.in, t->op.out, t->op.what.count);
    return HVD_SUCCESS;
}

int solo_rows(struct tensor *t)
{
    const struct tensor_op *op = &t->op.what;
    uint64_t count = t->op.where.table ? t->op.where.table[0] : op->count;
    if (t->op.where.capacity < count) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": rank 0 has room for %llu rows, the result has %llu",
                 t->name, (unsigned long long)(t->op.where.capacity / op->row),
                 (unsigned long long)(count / op->row));
        return HVD_ERR_MISMATCH;
    }
    if (t->op.rows)
        t->op.rows[0] = count / op->row;
    return HVD_SUCCESS;
}

static int copy_rows(struct tensor *t)
{
    uint64_t count = t->op.where.table ? t->op.where.table[0] : t->op.what.count;
    int status = solo_rows(t);
    if (status == HVD_SUCCESS && count > 0)
        memcpy(t->op.out, t->op.in, count * dtype_size(t->op.what.dtype));
    return status;
}

static int do_operation(struct tensor *t)
{
    if (op_reduces(t->op.what.kind))
        return reduce_elements(t);
    return op_is_ragged(t->op.what.kind) ? copy_rows(t) : HVD_SUCCESS;
}

int solo_run(struct tensor *t, int (*run)(struct tensor *t))
{
    report_point(t, POINT_AGREED, 0);
    t->op.status = run(t);
    operation_release(t);
    t->phase = PHASE_ENDED;
    report_point(t, POINT_ENDED, 0);
    return HVD_SUCCESS;
}

static int prepare_alone(struct tensor *t, const struct request *r)
{
    (void)t, (void)r; /* the buffers are used where they are */
    return HVD_SUCCESS;
}

/* A sized operation is done by the thread that waits. */
static int start_alone(struct tensor *t, bool will_wait)
{
    (void)will_wait;
    if (t->op.sized.allocator.allocate) {
        t->phase = PHASE_PATH;
        return HVD_SUCCESS;
    }
    return solo_run(t, do_operation);
}

static int step_alone(struct tensor *t)
{
    solo_run(t, sized_run_alone);
    return 1; /* it has ended: the phase says so */
}

const struct path_ops solo_path = {.prepare = prepare_alone, .start = start_alone, .step = step_alone};
