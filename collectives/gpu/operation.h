/* How one operation becomes calls of NCCL; communicator.h has the operations. */
#pragma once

#include "collectives/gpu/communicator.h"

/* NCCL's operator, and the factors before, in and after it. */
struct reduction {
    nccl_dtype dtype;
    nccl_op op;    /* a built-in one; NCCL_SUM when `factor` is not 1 */
    double factor; /* every input times this on its way, by NCCL; 1: none */
    double before; /* the input, the result times this, by a kernel of ours; 1: none */
    double after;
};

/* -1: NCCL cannot; *why says so. The same on all ranks. */
int reduction_plan(const struct gpu_operation *o, int size, struct reduction *into, struct gpu_why *why);

/* A factor in the format of the elements, as ncclRedOpCreatePreMulSum reads it. */
union reduction_scalar {
    double float64;
    float float32;
    uint16_t bits16;
    uint8_t bits8;
};
union reduction_scalar reduction_scalar(const struct reduction *r);

/* NCCL's scaling operations of one communicator, kept for the next time: a training has one or two. */
#define SCALES 16
struct scales {
    struct scale {
        nccl_dtype dtype;
        double factor;
        nccl_op op;
    } scale[SCALES];
    unsigned n, oldest;
};
/* The one for this reduction; made if it is not there, and then the oldest may make room for it. */
nccl_result scales_find(struct scales *s, const struct nccl *n, nccl_comm comm, const struct reduction *r,
                        nccl_op *op);
void scales_forget(struct scales *s, const struct nccl *n, nccl_comm comm);

/* The elements that rank `rank` gets in a reducescatter. */
size_t operation_part(const struct gpu_operation *o, int size, int rank);

/* The target of an operation's calls. */
struct operation_target {
    const struct nccl *n;
    nccl_comm comm;
    cu_stream stream;
    int rank, size;
};
/* Makes the calls of one operation, within a group. `op` is that of the reduction, or a scaling one. */
nccl_result operation_call(const struct operation_target *t, const struct gpu_operation *o,
                           const struct reduction *r, nccl_op op);
/* Does it reduce elements, or only move them? */
bool operation_reduces(const struct gpu_operation *o);
