/* A job of one rank: nobody to wait for, the result is what this rank gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce.h"
#include "collectives/client/gpu/gpu.h"

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
    size_t bytes = t->bytes;
    void *packed = malloc(bytes ? bytes : 1);

    if (!packed) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": no memory", t->name);
        return HVD_ERR_MEMORY;
    }
    group_pack(t->group, packed);
    if (bytes > 0)
        solo_reduce(&t->op, packed, packed, t->op.count);
    group_unpack(t->group, packed);
    free(packed);
    return HVD_SUCCESS;
}

static int reduce(struct tensor *t)
{
    if (t->group)
        return reduce_group(t);
    if (t->result) {
        size_t bytes = tensor_bytes(&t->op);
        if (t->shared_bytes < bytes) {
            arena_free(t->shared);
            t->shared = arena_alloc(bytes, false);
            t->shared_bytes = t->shared ? bytes : 0;
        }
        t->out = t->shared;
        *t->result = t->shared;
        if (!t->shared && bytes > 0) {
            snprintf(t->text, sizeof t->text, "tensor \"%s\": no memory", t->name);
            return HVD_ERR_MEMORY;
        }
    }
    if (t->op.count > 0)
        solo_reduce(&t->op, t->in, t->out, t->op.count);
    return HVD_SUCCESS;
}

int solo_rows(struct tensor *t)
{
    const struct tensor_op *op = &t->op;
    uint64_t count = t->where.table ? t->where.table[0] : op->count;

    if (t->where.room < count) {
        snprintf(t->text, sizeof t->text, "tensor \"%s\": rank 0 has room for %llu rows, the result has %llu",
                 t->name, (unsigned long long)(t->where.room / op->row),
                 (unsigned long long)(count / op->row));
        return HVD_ERR_MISMATCH;
    }
    if (t->rows)
        t->rows[0] = count / op->row;
    return HVD_SUCCESS;
}

static int copy_rows(struct tensor *t)
{
    uint64_t count = t->where.table ? t->where.table[0] : t->op.count;
    int status = solo_rows(t);

    if (status == HVD_SUCCESS && count > 0)
        memcpy(t->out, t->in, count * dtype_size(t->op.dtype));
    return status;
}

int run_solo(struct tensor *t)
{
    int status = t->op.device               ? device_solo(t)
                 : op_reduces(t->op.kind)   ? reduce(t)
                 : op_is_ragged(t->op.kind) ? copy_rows(t)
                                            : HVD_SUCCESS;

    release_locked(t);
    return status;
}
