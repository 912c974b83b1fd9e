#include "collectives/engine/agree/contributions.h"

#include <stdlib.h>

#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce.h"
#include "collectives/engine/agree/tensor_wire.h"

size_t contribution_bytes(const struct tensor_op *op, const struct partial_shape *shape, uint32_t limit)
{
    uint64_t bytes = tensor_data_bytes(op), senders = op->kind == SHM_ALLREDUCE ? shape->hosts : 1;
    bool can = op->kind == SHM_BROADCAST || (op->kind == SHM_ALLREDUCE && op_elementwise((hvd_op)op->op));
    if (!can || op->compression != HVD_COMPRESSION_NONE || bytes == 0 || bytes > limit)
        return 0; /* 0 bytes: no elements, or elements that the engine cannot reach (a GPU's) */
    bytes = op->count * dtype_size(partial_of(op, shape).dtype);
    return bytes <= limit && (bytes + sizeof(uint32_t)) * senders <= CONTRIBUTIONS_MAX ? (size_t)bytes : 0;
}

size_t contributions_bytes(const struct tensor_op *op, uint32_t hosts, size_t bytes)
{
    return op->kind == SHM_ALLREDUCE ? hosts * bytes : bytes;
}

size_t contribution_offset(const struct tensor_op *op, uint32_t host, size_t bytes)
{
    return op->kind == SHM_ALLREDUCE ? host * bytes : 0;
}

int contributions_reduce(const struct tensor_op *op, const struct partial_shape *shape, void *contributions,
                         size_t bytes)
{
    if (op->kind != SHM_ALLREDUCE)
        return 0;
    struct partial partial = partial_of(op, shape);
    const void **in = calloc(shape->hosts, sizeof *in);
    if (!in)
        return -1;
    for (uint32_t i = 0; i < shape->hosts; i++)
        in[i] = (const uint8_t *)contributions + i * bytes;
    struct reduce_job job = {.in = in,
                             .inputs = shape->hosts,
                             .out = &contributions,
                             .outputs = 1,
                             .dtype = partial.dtype,
                             .op = (hvd_op)op->op,
                             .divisor = op->op == HVD_AVERAGE ? shape->ranks : 0,
                             .postscale = op->postscale / partial.scale,
                             .out_dtype = (hvd_dtype)op->dtype};
    reduce_range(&job, 0, op->count);
    free(in);
    return 0;
}
