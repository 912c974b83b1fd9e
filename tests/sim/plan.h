/* The operations of a run, and their right results: a pure function of the plan's seed. */
#pragma once

#include "collectives/hvd.h"
#include "tests/sim/sim.h"

#define PLAN_ROUNDS  3
#define PLAN_TENSORS 6
#define PLAN_PIECES  3 /* of a group */

enum plan_kind {
    PLAN_ALLREDUCE,
    PLAN_PERSISTENT,
    PLAN_GROUP,
    PLAN_SHARED,
    PLAN_BROADCAST,
    PLAN_ALLGATHER,
    PLAN_ALLTOALL,
    PLAN_REDUCESCATTER,
    PLAN_KINDS
};

struct plan_op {
    enum plan_kind kind;
    hvd_dtype dtype;
    hvd_op op;
    uint32_t root;
    size_t rows, row; /* elements are rows * row; of ragged kinds about that many rows a rank */
    double prescale, postscale;
    hvd_compression compression;
    bool in_place;
    bool blocks;   /* all ranks begin it behind the round's other operations, one after the other, and wait */
    uint32_t odd;  /* a rank that says something else; UINT32_MAX: they agree */
    uint64_t idle; /* a bit for each rank that has joined instead */
    bool refused;  /* because it needs their elements */
    uint64_t seed;
};

struct plan {
    uint32_t hosts, ranks[SIM_HOSTS], size;
    uint32_t rounds, tensors;
    bool flat; /* reductions between hosts take the ranks in their order */
    uint64_t fusion_bytes;
    bool barrier[PLAN_ROUNDS];
    uint64_t idle[PLAN_ROUNDS]; /* ranks that do nothing in the round but hvd_join, with which then all end
                                   it; 0: none */
    struct plan_op op[PLAN_ROUNDS][PLAN_TENSORS];
};

struct plan plan_make(uint64_t seed);
void plan_print(const struct plan *p);

size_t plan_dtype_size(hvd_dtype dtype);
/* Rows that the rank gives, and of an alltoall those that go to another one. */
size_t plan_rows_in(const struct plan *p, const struct plan_op *op, uint32_t rank);
size_t plan_split(const struct plan_op *op, uint32_t from, uint32_t to);
size_t plan_rows_out(const struct plan *p, const struct plan_op *op, uint32_t rank);
/* Elements of each piece of a group. */
void plan_pieces(const struct plan_op *op, size_t count[PLAN_PIECES]);
/* Fills `in` with the elements that the rank gives. */
void plan_fill(const struct plan_op *op, uint32_t rank, void *in, size_t elements);
/* Is this the rank's result, as far as arithmetic without an order can say? Else `text` says what is not. */
bool plan_is_right(const struct plan *p, const struct plan_op *op, uint32_t rank, const void *out, char *text,
                   size_t size);
static inline bool plan_is_idle(const struct plan *p, uint32_t round, uint32_t rank)
{
    return (p->idle[round] >> rank & 1) != 0;
}
/* All ranks have the same result. */
static inline bool plan_result_is_common(const struct plan_op *op)
{
    return op->kind != PLAN_ALLTOALL && op->kind != PLAN_REDUCESCATTER;
}
