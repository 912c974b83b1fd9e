/* A communicator out of another: split by colours, or shrunk to the ranks that are left.
 *
 * Each rank that takes part writes its colour and key into its own place in the parent's memory, under the
 * number of the division. When all of them are there everybody knows who comes together; the first rank of
 * each new communicator makes its memory and writes the name beside its colour, and the others join by that.
 * A rank may be DIVISIONS ahead of the slowest. */
#include "tests/gpu/double/nccl_double.h"

#include <stdlib.h>
#include <string.h>

static struct division *division_of(struct comm *comm, int rank)
{
    return &comm->parent->area->member[rank].division[comm->division % DIVISIONS];
}

static bool before(const struct division *a, int a_rank, const struct division *b, int b_rank)
{
    return a->key < b->key || (a->key == b->key && a_rank < b_rank);
}

static bool all_have_said(struct comm *comm)
{
    for (int i = 0; i < comm->parent->size; i++)
        if (comm->among >> i & 1 && division_of(comm, i)->number != comm->division)
            return false;
    return true;
}

static ncclResult_t name_it(struct comm *comm, struct division *leader)
{
    struct segment segment;

    if (!double_segment_new(&segment, sizeof(struct area), true))
        return nccl_say(ncclSystemError, "no shared memory");
    double_segment_tell(&segment, &leader->name);
    leader->named = comm->division;
    for (int i = 0; i < comm->parent->size; i++)
        nccl_ring(comm->parent->area, i);
    return ncclSuccess;
}

ncclResult_t nccl_divide_poll(struct comm *comm)
{
    struct comm *parent = comm->parent;
    struct division *mine, *leader;
    int rank = 0, size = 0, first = parent->rank;
    ncclResult_t result;

    if (!parent->area)
        return nccl_say(ncclInvalidUsage, "the communicator it comes from has ended");
    if (!all_have_said(comm))
        return ncclInProgress;
    mine = division_of(comm, parent->rank);
    for (int i = 0; i < parent->size; i++) {
        struct division *other = division_of(comm, i);

        if (!(comm->among >> i & 1) || other->color != comm->color)
            continue;
        size++;
        rank += before(other, i, mine, parent->rank);
        if (before(other, i, division_of(comm, first), first))
            first = i;
    }
    leader = division_of(comm, first);
    if (first == parent->rank && leader->named != comm->division) {
        result = name_it(comm, leader);
        if (result)
            return result;
    }
    if (leader->named != comm->division)
        return ncclInProgress;
    return nccl_join(comm, &leader->name, size, rank);
}

static ncclResult_t divide(struct comm *parent, uint64_t among, int color, int key, ncclComm_t *handle,
                           ncclConfig_t *config)
{
    struct division *mine;
    struct comm *comm;
    uint32_t number;

    if (parent->state < COMM_READY || parent->late) {
        double_misuse("a communicator is divided before it is ready");
        return nccl_say(ncclInvalidArgument, "the communicator is not ready");
    }
    if (config && config->magic != 0xcafebeef)
        return nccl_say(ncclInvalidArgument, "the configuration was not initialised");
    *handle = NULL;
    number = ++parent->divisions;
    mine = &parent->area->member[parent->rank].division[number % DIVISIONS];
    mine->color = color;
    mine->key = key;
    mine->number = number;
    for (int i = 0; i < parent->size; i++)
        nccl_ring(parent->area, i);
    if (color == NCCL_SPLIT_NOCOLOR)
        return ncclSuccess;
    comm = nccl_new_comm(config, parent->blocking, parent->device);
    comm->parent = parent;
    comm->division = number;
    comm->among = among;
    comm->color = color;
    *handle = comm->handle;
    return nccl_begun(comm);
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    struct comm *parent;
    ncclResult_t result = nccl_enter("ncclCommSplit");

    if (result)
        return result;
    parent = nccl_comm(handle);
    if (!parent || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
        return nccl_say(ncclInvalidArgument, "ncclCommSplit: no communicator, or a negative colour");
    return divide(parent, parent->size == 64 ? UINT64_MAX : ((uint64_t)1 << parent->size) - 1, color, key,
                  newcomm, config);
}

ncclResult_t ncclCommShrink(ncclComm_t handle, int *exclude, int n, ncclComm_t *newcomm, ncclConfig_t *config,
                            int flags)
{
    struct comm *parent;
    uint64_t among;
    ncclResult_t result = nccl_enter("ncclCommShrink");

    if (result)
        return result;
    parent = nccl_comm(handle);
    if (!parent || n < 0 || n >= parent->size)
        return nccl_say(ncclInvalidArgument, "ncclCommShrink: no communicator, or nobody is left");
    among = parent->size == 64 ? UINT64_MAX : ((uint64_t)1 << parent->size) - 1;
    for (int i = 0; i < n; i++) {
        if (exclude[i] < 0 || exclude[i] >= parent->size || exclude[i] == parent->rank)
            return nccl_say(ncclInvalidArgument, "ncclCommShrink: rank %d cannot be left out here",
                            exclude[i]);
        among &= ~((uint64_t)1 << exclude[i]);
    }
    if (flags & NCCL_SHRINK_ABORT) {
        parent->aborted = 1;
        nccl_ring(parent->area, parent->rank);
    } else if (parent->pending) {
        double_misuse("ncclCommShrink while operations of the communicator are under way");
    }
    return divide(parent, among, 0, parent->rank, newcomm, config);
}
