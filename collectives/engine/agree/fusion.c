#include "collectives/engine/agree/fusion.h"

#include "collectives/kernels/dtype.h"
#include "collectives/engine/agree/tensor_wire.h"

bool fusion_can(const struct tensor_op *op, uint64_t limit)
{
    uint64_t bytes = tensor_data_bytes(op);
    return op->kind == SHM_ALLREDUCE && op_elementwise((hvd_op)op->op) && bytes > 0 && bytes <= limit;
}

bool fusion_goes_with(const struct tensor_op *a, const struct tensor_op *b)
{
    struct tensor_op same = *b;
    same.count = a->count;
    same.group = a->group;
    same.row = a->row;
    same.root = a->root;
    return op_difference(a, &same) < 0;
}
