/* The operations themselves, in the thread of a stream. For each, the ranks first say what they are about to
 * do and compare: a difference, which the real library would answer with a hang or with garbage, fails the
 * communicator and is written down. Then data goes through each rank's slot of the shared memory, a chunk at
 * a time: put there, meet, taken from all, meet. */
#include "tests/gpu/double/nccl_double.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *nccl_kind(enum kind kind)
{
    static const char *const names[KINDS] = {"ncclAllReduce", "ncclBroadcast",     "ncclReduce",
                                             "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                             "ncclRecv"};
    return names[kind];
}

/* All ranks have come to this point; false: it was aborted. */
static bool meet(struct comm *comm)
{
    struct member *me = &comm->area->member[comm->rank];
    uint32_t step = ++comm->step;
    uint64_t hears_ms = (uint64_t)double_setting("HVD_DOUBLE_HEARS", 0);
    uint64_t hears_at = hears_ms ? double_now_ns() + hears_ms * 1000000 : 0;

    me->arrived = step;
    for (int i = 0; i < comm->size; i++)
        nccl_ring(comm->area, i);
    for (;;) {
        uint32_t bell = me->bell;
        int here = 0;

        if (comm->aborted)
            return false;
        for (int i = 0; i < comm->size; i++)
            here += (int32_t)(comm->area->member[i].arrived - step) >= 0;
        if (here == comm->size)
            return true;
        if (hears_at == 0 || comm->error)
            double_futex_wait(&me->bell, bell);
        else if (double_now_ns() < hears_at)
            poll(NULL, 0, 1);
        else /* and the kernel waits on: an abort alone ends it */
            comm->error = (int)nccl_say(ncclRemoteError, "Connection closed by remote peer");
    }
}

static bool all_do_the_same(struct comm *comm, const struct op *op)
{
    struct member *member = comm->area->member;
    int turn = ++comm->operations & 1;

    snprintf(member[comm->rank].words[turn], WORDS, "%s(count %zu, type %d, op %d, root %d, registered %zu)",
             nccl_kind(op->kind), op->count, op->type, op->reduce, op->root, op->known);
    if (!meet(comm))
        return false;
    for (int i = 1; i < comm->size; i++) {
        if (strcmp(member[i].words[turn], member[0].words[turn]) == 0)
            continue;
        if (comm->rank == 0)
            double_misuse("operation %u of a communicator: rank 0 calls %s, rank %d calls %s",
                          comm->operations, member[0].words[turn], i, member[i].words[turn]);
        return false;
    }
    return true;
}

/* Elements that `slots` hold are reduced, of all ranks in their order. */
static void reduce_slots(struct comm *comm, const struct op *op, char *to, size_t count)
{
    size_t width = nccl_width(op->type);

    for (size_t k = 0; k < count; k++) {
        union number sum = nccl_read(op->type, nccl_slot(comm, 0) + k * width);

        for (int r = 1; r < comm->size; r++)
            nccl_combine(op, &sum, nccl_read(op->type, nccl_slot(comm, r) + k * width));
        nccl_finish(op, &sum, comm->size);
        nccl_write(op->type, to + k * width, sum);
    }
}

static void stage(struct comm *comm, const struct op *op, const char *from, size_t count)
{
    size_t width = nccl_width(op->type);
    char *slot = nccl_slot(comm, comm->rank);

    if (op->reduce != REDUCE_PREMULSUM) {
        memcpy(slot, from, count * width);
        return;
    }
    for (size_t k = 0; k < count; k++)
        nccl_write(op->type, slot + k * width, nccl_scaled(op, nccl_read(op->type, from + k * width)));
}

/* One pass over `count` elements: those at `from` go into the own slot (unless NULL); then, for those at `to`
 * (unless NULL), `source` >= 0 is copied from, -1 means all reduced, -2 all gathered at a distance of
 * op->count. */
static bool pass(struct comm *comm, const struct op *op, const char *from, char *to, int source)
{
    size_t width = nccl_width(op->type), most = CHUNK / width;

    for (size_t done = 0; done < op->count; done += most) {
        size_t n = op->count - done < most ? op->count - done : most, bytes = n * width;

        if (from)
            stage(comm, op, from + done * width, n);
        if (!meet(comm))
            return false;
        if (to && source >= 0)
            memcpy(to + done * width, nccl_slot(comm, source), bytes);
        else if (to && source == -1)
            reduce_slots(comm, op, to + done * width, n);
        else if (to)
            for (int r = 0; r < comm->size; r++)
                memcpy(to + ((size_t)r * op->count + done) * width, nccl_slot(comm, r), bytes);
        if (!meet(comm))
            return false;
    }
    return true;
}

static bool reach_buffers(struct comm *comm, const struct op *op, char **send, char **recv)
{
    size_t one = op->count * nccl_width(op->type), all = one * (size_t)comm->size;
    bool root = op->kind != KIND_BROADCAST && op->kind != KIND_REDUCE ? true : comm->rank == op->root;
    bool sends = op->kind != KIND_BROADCAST || root, receives = op->kind != KIND_REDUCE || root;

    *send = sends ? double_reach((uintptr_t)op->send, op->kind == KIND_REDUCESCATTER ? all : one) : NULL;
    *recv = receives ? double_reach((uintptr_t)op->recv, op->kind == KIND_ALLGATHER ? all : one) : NULL;
    if (op->count && ((sends && !*send) || (receives && !*recv))) {
        double_misuse("%s: a buffer was freed before it ran", nccl_kind(op->kind));
        return false;
    }
    return true;
}

/* Before 2.25 kernels use the buffers of other ranks of their process where these lie, known or not, if their
 * devices can use each other's memory at all; NCCL_P2P_DIRECT_DISABLE keeps them from that. */
static bool goes_directly(const struct comm *comm, int peer)
{
    const struct member *other = &comm->area->member[peer], *me = &comm->area->member[comm->rank];

    return nccl_version() < 22500 && !double_setting("NCCL_P2P_DIRECT_DISABLE", 0) && other->pid == me->pid &&
           other->host == me->host && double_are_peers(other->device, me->device);
}

static bool buffer_fits_peer(struct comm *comm, const void *at, int peer)
{
    int device = comm->area->member[peer].device;
    struct range r;

    if (!at || !double_range_find((uintptr_t)at, 1, &r) ||
        double_range_usable_by(device, (uintptr_t)at, 1, &r))
        return true;
    double_misuse("a kernel on device %d uses memory of device %d without access to it", device,
                  comm->device);
    double_primary(device)->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    comm->error = ncclUnhandledCudaError;
    return false;
}

static bool peers_reach_buffers(struct comm *comm, const struct op *op)
{
    bool reach = true;

    for (int i = 0; i < comm->size && op->count && reach; i++)
        if (i != comm->rank && goes_directly(comm, i))
            reach = buffer_fits_peer(comm, op->send, i) && buffer_fits_peer(comm, op->recv, i);
    return reach;
}

static bool run(struct comm *comm, struct op *op)
{
    char *send, *recv, *scale;

    if (op->scale_at) {
        scale = double_reach(op->scale_at, nccl_width(op->type));
        if (scale)
            op->scale = nccl_read(op->type, scale);
    }
    if (!all_do_the_same(comm, op))
        return false;
    if (!op->count)
        return true;
    if (!reach_buffers(comm, op, &send, &recv))
        return false;
    switch (op->kind) {
    case KIND_ALLREDUCE:
    case KIND_REDUCE:
        return pass(comm, op, send, recv, -1);
    case KIND_BROADCAST:
        return pass(comm, op, send, recv, op->root);
    case KIND_ALLGATHER:
        return pass(comm, op, send, recv, -2);
    case KIND_REDUCESCATTER:
        for (int r = 0; r < comm->size; r++)
            if (!pass(comm, op, send + (size_t)r * op->count * nccl_width(op->type),
                      r == comm->rank ? recv : NULL, -1))
                return false;
        return true;
    default:
        return true;
    }
}

/* A kernel loads whole elements. */
static int fault_of(const struct batch *b)
{
    int fault = double_fault("ncclKernel");

    for (int i = 0; i < b->n && !fault; i++)
        if (b->op[i].count &&
            ((uintptr_t)b->op[i].send | (uintptr_t)b->op[i].recv) % nccl_width(b->op[i].type))
            fault = CUDA_ERROR_MISALIGNED_ADDRESS;
    return fault;
}

/* Broken or aborted, it lets its streams go on. */
void nccl_run_batch(struct context *context, void *argument)
{
    struct batch *b = argument;
    struct comm *comm = b->comm;
    int fault = fault_of(b);
    bool good = !fault;

    if (fault)
        context->error = fault < 0 ? CUDA_ERROR_ILLEGAL_ADDRESS : fault;
    pthread_mutex_lock(&comm->running);
    for (int i = 0; i < b->n && good; i++)
        good = peers_reach_buffers(comm, &b->op[i]);
    for (int i = 0; i < b->n && good && !comm->error && !comm->aborted; i++)
        if (b->op[i].kind != KIND_SEND && b->op[i].kind != KIND_RECV)
            good = run(comm, &b->op[i]);
    if (good && !comm->error && !comm->aborted)
        good = nccl_exchange_mail(comm, b->op, b->n);
    if (!good && !fault && !comm->aborted && !comm->error)
        comm->error = ncclInvalidUsage;
    pthread_mutex_unlock(&comm->running);
    for (int i = 0; i < b->n; i++)
        nccl_leave_known(comm, &b->op[i]);
    nccl_done_with(comm);
    free(b->op);
    free(b);
}
