/* An operation: the part about which ranks must agree, its comparison, and its text in a
 * sentence. One table of properties serves the comparison within a host and the one between hosts.
 *
 * Fields that a kind has no use for are 0, but for the scales, which are 1. `count` is each rank's own where
 * ranks may give different numbers of rows (allgather, alltoall). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"

/* Each kind, its number in shared memory and in messages between hosts, its name in a sentence, and its name
 * in a timeline. */
#define SHM_KIND_LIST(X)                                                                                     \
    X(ALLREDUCE, 1, "allreduce", "ALLREDUCE")                                                                \
    X(BROADCAST, 2, "broadcast", "BROADCAST")                                                                \
    X(BARRIER, 3, "barrier", "BARRIER")                                                                      \
    X(SHUTDOWN, 4, "shutdown", "SHUTDOWN")                                                                   \
    X(ALLGATHER, 5, "allgather", "ALLGATHER")                                                                \
    X(ALLTOALL, 6, "alltoall", "ALLTOALL")                                                                   \
    X(REDUCESCATTER, 7, "reducescatter", "REDUCESCATTER")                                                    \
    X(JOIN, 8, "joined", "JOIN")                            /* said to one that needs the rank's elements */ \
    X(ALLREDUCE_SHARED, 9, "shared allreduce", "ALLREDUCE") /* one result a host, not one a rank */

#define SHM_KIND_NUMBER(kind, number, in_sentence, in_timeline) SHM_##kind = number,
enum shm_kind { SHM_KIND_LIST(SHM_KIND_NUMBER) SHM_KINDS };

/* Compared as memory first: no padding. */
struct tensor_op {
    uint8_t kind; /* enum shm_kind */
    uint8_t dtype, op;
    uint8_t compression : 4; /* hvd_compression */
    uint8_t device : 4;      /* 1: the elements are in memory of a device, and nothing of them goes by here;
                                OP_EITHER: there are none, so they are wherever the others' are, on
                                whatever host those lie; where nobody has any, on the host */
    uint32_t root;           /* broadcast: index in the set; else hvd_options.shape */
    int32_t set;             /* hvd_set */
    uint32_t group;          /* tensors of a group; 0: it is none */
    uint64_t count;          /* elements */
    uint64_t row;            /* elements of a row; of a group: a hash of its tensors' counts; broadcast:
                                hvd_options.shape */
    double prescale, postscale;
};
_Static_assert(sizeof(struct tensor_op) == 48, "struct tensor_op has padding");

#define OP_EITHER 2
/* `op` of an allgather or alltoall: each rank allocates its result when the sizes of all are known. */
#define OP_SIZED 1

/* Of two reports of one operation, one may say where it is for the other. true: *mine has learned it. */
static inline bool op_goes_along(struct tensor_op *mine, const struct tensor_op *theirs)
{
    bool learns = mine->device == OP_EITHER && theirs->device != OP_EITHER;

    if (learns)
        mine->device = theirs->device;
    return learns;
}

#define SHM_KIND_BIT(kind) (1u << (kind))
#define SHM_REDUCING                                                                                         \
    (SHM_KIND_BIT(SHM_ALLREDUCE) | SHM_KIND_BIT(SHM_ALLREDUCE_SHARED) | SHM_KIND_BIT(SHM_REDUCESCATTER))
#define SHM_RAGGED (SHM_KIND_BIT(SHM_ALLGATHER) | SHM_KIND_BIT(SHM_ALLTOALL))

static inline bool op_kind_in(uint8_t kind, uint32_t kinds)
{
    return kind < SHM_KINDS && (kinds & SHM_KIND_BIT(kind)) != 0;
}

/* Does the kind combine elements with `op`? */
static inline bool op_reduces(uint8_t kind)
{
    return op_kind_in(kind, SHM_REDUCING);
}

/* Is `count` each rank's own? */
static inline bool op_is_ragged(uint8_t kind)
{
    return op_kind_in(kind, SHM_RAGGED);
}

/* Does a rank's result have another size, and another place, than what it gives? */
static inline bool op_scatters(uint8_t kind)
{
    return op_kind_in(kind, SHM_RAGGED | SHM_KIND_BIT(SHM_REDUCESCATTER));
}

/* Do zeros change nothing for the others? Such an operation goes on without the ranks that have joined. */
bool op_takes_zeros(const struct tensor_op *op);

/* Does it move elements at all? */
static inline bool op_moves(uint8_t kind)
{
    return op_kind_in(kind, SHM_REDUCING | SHM_RAGGED | SHM_KIND_BIT(SHM_BROADCAST));
}

/* Does each rank allocate its result when all sizes are known? */
static inline bool op_is_sized(const struct tensor_op *op)
{
    return op_is_ragged(op->kind) && op->op == OP_SIZED;
}

/* hvd_options.shape. */
static inline uint64_t op_shape(const struct tensor_op *op)
{
    return op->kind == SHM_BROADCAST ? op->row : op->root;
}

static inline bool op_is_adasum(const struct tensor_op *op)
{
    return op_reduces(op->kind) && op->op == HVD_ADASUM;
}

/* "allreduce"; "an unknown operation". Never NULL. */
const char *op_kind_name(uint8_t kind);
/* "ALLREDUCE", as in a timeline. Never NULL. */
const char *op_event_name(uint8_t kind);

/* NULL: the fields are possible, for a job or set of `size` ranks (0: not known here). Else what is wrong
 * with them, to follow "tensor x: " ("there is no operation 77"), in `text`. */
const char *op_wrong(const struct tensor_op *op, uint32_t size, char *text, size_t text_size);

/* The first property in which they differ, a number for op_property_text; -1: they agree. */
int op_difference(const struct tensor_op *a, const struct tensor_op *b);
/* The value of one property, to follow "rank 3 has": "called broadcast", "10 elements". */
void op_property_text(const struct tensor_op *op, int property, char *text, size_t size);
/* The operation, to follow "rank 3 asks for": "allreduce sum of 10 float32". A property that this does not
 * show (-1: none) is added: ", prescale 0.5". */
void op_text(const struct tensor_op *op, int property, char *text, size_t size);
