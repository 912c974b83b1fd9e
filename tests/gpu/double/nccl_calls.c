/* The calls that put operations into streams. Everything that can be checked is checked here, in the caller's
 * thread. A call or a group gives each communicator one batch. On a non-blocking communicator the first
 * batch, and some later ones, are "in progress": they come into the stream only when somebody asks for the
 * communicator's state, so an event that is recorded before that does not stand for them, as with the real
 * library. Calls within a group may be called so too. */
#include "tests/gpu/double/nccl_double.h"

#include <stdlib.h>

static _Thread_local int depth;
static _Thread_local struct batch *group;
static _Thread_local struct comm *joins[GPUS_MAX];
static _Thread_local int n_joins;
static _Thread_local ncclResult_t group_error;

bool nccl_in_group(struct comm *comm)
{
    if (!depth || n_joins == GPUS_MAX)
        return false;
    joins[n_joins++] = comm;
    return true;
}

/* ---- PreMulSum ---- */
enum { SCALES_MAX = 4096, SCALES_FROM = 16 };
static struct scale {
    struct comm *comm; /* NULL: not there (any more) */
    int type;
    union number value;
    uint64_t at;
} scales[SCALES_MAX];
static int n_scales;
static pthread_mutex_t scales_lock = PTHREAD_MUTEX_INITIALIZER;

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t handle)
{
    struct comm *comm;
    struct scale s = {0};
    int index;
    ncclResult_t result = nccl_enter("ncclRedOpCreatePreMulSum");

    if (result)
        return result;
    comm = nccl_comm(handle);
    if (!comm || (unsigned)type >= ncclNumTypes)
        return nccl_say(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: no communicator, or no such type");
    s.comm = comm;
    s.type = (int)type;
    if (residence == ncclScalarDevice)
        s.at = (uintptr_t)scalar;
    else
        s.value = nccl_read((int)type, scalar);
    pthread_mutex_lock(&scales_lock);
    for (index = 0; index < n_scales && scales[index].comm; index++) {
    }
    if (index < SCALES_MAX) {
        scales[index] = s;
        n_scales += index == n_scales;
    }
    pthread_mutex_unlock(&scales_lock);
    if (index == SCALES_MAX)
        return nccl_say(ncclInternalError, "too many operations");
    *op = (ncclRedOp_t)(SCALES_FROM + index);
    return ncclSuccess;
}

static struct scale *scale_of(int op, const struct comm *comm)
{
    int index = op - SCALES_FROM;

    if (index >= 0 && index < n_scales && scales[index].comm == comm)
        return &scales[index];
    double_misuse("%d is no reduction of this communicator", op);
    return NULL;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle)
{
    struct comm *comm;
    struct scale *s;
    ncclResult_t result = nccl_enter("ncclRedOpDestroy");

    if (result)
        return result;
    comm = nccl_comm(handle);
    s = comm ? scale_of((int)op, comm) : NULL;
    if (!s)
        return nccl_say(ncclInvalidArgument, "ncclRedOpDestroy: no such operation");
    s->comm = NULL;
    return ncclSuccess;
}

/* ---- checks ---- */
static bool buffer_ok(const struct comm *comm, const struct op *op, const void *at, size_t bytes,
                      const char *which)
{
    struct range r;

    if (!bytes)
        return true;
    if (!double_range_usable((uintptr_t)at, bytes, &r)) {
        double_misuse("%s: %zu bytes at %p (%s) are not in an allocation", nccl_kind(op->kind), bytes, at,
                      which);
        return false;
    }
    if (r.kind <= RANGE_MAPPED && r.device != comm->device) {
        double_misuse("%s: %s lies on device %d, the communicator's is %d", nccl_kind(op->kind), which,
                      r.device, comm->device);
        return false;
    }
    return true;
}

static bool buffers_ok(const struct comm *comm, const struct op *op)
{
    size_t one = op->count * nccl_width(op->type), all = one * (size_t)comm->size;
    bool rooted = op->kind == KIND_BROADCAST || op->kind == KIND_REDUCE, root = comm->rank == op->root;
    bool sends = op->kind != KIND_RECV && (op->kind != KIND_BROADCAST || root);
    bool receives = op->kind != KIND_SEND && (op->kind != KIND_REDUCE || root);

    if ((rooted || op->kind >= KIND_SEND) && (op->root < 0 || op->root >= comm->size)) {
        double_misuse("%s: there is no rank %d", nccl_kind(op->kind), op->root);
        return false;
    }
    return (!sends ||
            buffer_ok(comm, op, op->send, op->kind == KIND_REDUCESCATTER ? all : one, "sendbuff")) &&
           (!receives || buffer_ok(comm, op, op->recv, op->kind == KIND_ALLGATHER ? all : one, "recvbuff"));
}

static ncclResult_t usable(struct comm *comm, const struct op *op)
{
    if (comm->error)
        return (ncclResult_t)comm->error;
    if (comm->aborted || comm->state > COMM_READY) {
        double_misuse("%s on a communicator that is aborted or finalized", nccl_kind(op->kind));
        return ncclInvalidUsage;
    }
    if (comm->state < COMM_READY || comm->late) {
        double_misuse("%s on a communicator that is in progress", nccl_kind(op->kind));
        return ncclInvalidArgument;
    }
    return ncclSuccess;
}

static ncclResult_t check(struct comm *comm, struct op *op, struct stream *stream)
{
    struct scale *s;
    ncclResult_t result;

    pthread_mutex_lock(&comm->lock);
    result = usable(comm, op);
    pthread_mutex_unlock(&comm->lock);
    if (result)
        return nccl_say(result, "the communicator cannot be used");
    if ((unsigned)op->type >= ncclNumTypes || op->reduce < 0)
        return nccl_say(ncclInvalidArgument, "no such type or operation");
    if (op->reduce >= ncclNumOps) {
        s = scale_of(op->reduce, comm);
        if (!s || s->type != op->type)
            return nccl_say(ncclInvalidArgument, "the operation was made for another type");
        op->reduce = REDUCE_PREMULSUM;
        op->scale = s->value;
        op->scale_at = s->at;
    }
    /* A communicator of one rank scales, also for an average, by kernels of its own: none for these types. */
    if (comm->size == 1 && op->type >= ncclFloat8e4m3 &&
        (op->reduce == REDUCE_PREMULSUM || op->reduce == ncclAvg))
        return nccl_say(ncclInvalidArgument, "no kernel scales the type on one rank");
    if (double_stream_context(stream)->device != comm->device) {
        double_misuse("%s: the stream is one of device %d, the communicator of %d", nccl_kind(op->kind),
                      double_stream_context(stream)->device, comm->device);
        return nccl_say(ncclInvalidUsage, "a stream of another device");
    }
    if (double_stream_context(stream) != double_primary(comm->device)) /* NCCL's kernels live there */
        return nccl_say(ncclUnhandledCudaError, "Cuda failure 'invalid resource handle'");
    if (!buffers_ok(comm, op))
        return nccl_say(ncclInvalidArgument, "a buffer or a root is wrong");
    op->known = nccl_place_in_known(comm, op);
    return ncclSuccess;
}

/* ---- groups ---- */
static struct batch *batch_of(struct comm *comm, struct stream *stream)
{
    struct batch *b, **link = &group;

    while (*link && (*link)->comm != comm)
        link = &(*link)->next;
    b = *link;
    if (!b) {
        b = *link = calloc(1, sizeof *b);
        if (!b)
            abort();
        b->comm = comm;
        b->stream = stream;
    }
    if (stream != b->stream && b->n_others < (int)(sizeof b->others / sizeof *b->others))
        b->others[b->n_others++] = stream;
    return b;
}

static void add(struct batch *b, const struct op *op)
{
    if (b->n == b->room) {
        b->room = b->room ? b->room * 2 : 4;
        b->op = realloc(b->op, (size_t)b->room * sizeof *b->op);
        if (!b->op)
            abort();
    }
    b->op[b->n++] = *op;
}

/* The communicator's lock is held. Its batches run in the order of their calls, whatever their streams. */
ncclResult_t nccl_launch(struct batch *b)
{
    double_trace("launch %d operations of %p", b->n, (void *)b->comm->handle);
    if (b->comm->last)
        double_stream_after(b->stream, b->comm->last);
    for (int i = 0; i < b->n_others; i++)
        double_stream_after(b->stream, b->others[i]);
    b->comm->last = b->stream;
    b->comm->pending++;
    nccl_hear_of_deaths(b->comm);
    {
        struct stream *stream = b->stream, *others[8];
        int n = b->n_others;

        for (int i = 0; i < n; i++)
            others[i] = b->others[i];
        double_stream_push(stream, nccl_run_batch, b);
        for (int i = 0; i < n; i++)
            double_stream_after(others[i], stream);
    }
    return ncclSuccess;
}

static bool is_lazy(void)
{
    return rand() % 100 < double_setting("HVD_DOUBLE_LAZY", 10);
}

static ncclResult_t give(struct batch *b)
{
    struct comm *comm = b->comm;
    bool late;

    b->next = NULL;
    pthread_mutex_lock(&comm->lock);
    late = !comm->blocking && (comm->calls++ == 0 || is_lazy());
    if (late) {
        comm->late = b;
        comm->late_polls = 0;
    } else {
        nccl_launch(b);
    }
    pthread_mutex_unlock(&comm->lock);
    return late ? ncclInProgress : ncclSuccess;
}

static ncclResult_t flush(void)
{
    ncclResult_t whole = group_error;

    for (int i = 0; i < n_joins; i++) {
        ncclResult_t one = joins[i]->blocking ? nccl_wait_ready(joins[i]) : ncclInProgress;
        whole = one && (!whole || whole == ncclInProgress) ? one : whole;
    }
    while (group) {
        struct batch *b = group;
        ncclResult_t one;

        group = b->next;
        if (group_error) {
            for (int i = 0; i < b->n; i++)
                nccl_leave_known(b->comm, &b->op[i]);
            free(b->op);
            free(b);
            continue;
        }
        one = give(b);
        whole = one && !whole ? one : whole;
    }
    n_joins = 0;
    group_error = ncclSuccess;
    return whole;
}

ncclResult_t ncclGroupStart(void)
{
    ncclResult_t result = nccl_enter("ncclGroupStart");

    if (!result)
        depth++;
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = nccl_enter("ncclGroupEnd");

    if (!depth) {
        double_misuse("ncclGroupEnd without ncclGroupStart");
        return ncclInvalidUsage;
    }
    if (result && !group_error)
        group_error = result;
    return --depth ? ncclSuccess : flush();
}

/* ---- the operations ---- */
static ncclResult_t submit(ncclComm_t handle, cudaStream_t stream, struct op op)
{
    struct context *current;
    struct stream *s;
    struct comm *comm;
    ncclResult_t result = nccl_enter(nccl_kind(op.kind));

    double_context_current(&current);
    comm = result ? NULL : nccl_comm(handle);
    s = comm ? double_stream_get((CUstream)stream, current) : NULL;
    if (!result && !comm)
        result = nccl_say(ncclInvalidArgument, "%s: no communicator (any more)", nccl_kind(op.kind));
    if (!result && !s)
        result = nccl_say(ncclUnhandledCudaError, "%s: no stream (any more)", nccl_kind(op.kind));
    if (!result)
        result = check(comm, &op, s);
    if (result) {
        if (depth && !group_error)
            group_error = result;
        return result;
    }
    double_trace("op %s count %zu type %d op %d root %d%s", nccl_kind(op.kind), op.count, op.type, op.reduce,
                 op.root, op.known ? " registered" : "");
    add(batch_of(comm, s), &op);
    if (!depth)
        return flush();
    return !comm->blocking && is_lazy() ? ncclInProgress : ncclSuccess;
}

#define SUBMIT(which, sends, receives, op_, root_)                                                           \
    submit(comm, stream,                                                                                     \
           (struct op){.kind = (which),                                                                      \
                       .send = (sends),                                                                      \
                       .recv = (receives),                                                                   \
                       .count = count,                                                                       \
                       .type = (int)type,                                                                    \
                       .reduce = (int)(op_),                                                                 \
                       .root = (root_)})

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(KIND_ALLREDUCE, send, recv, op, 0);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(KIND_REDUCE, send, recv, op, root);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(KIND_BROADCAST, send, recv, ncclSum, root);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(KIND_REDUCESCATTER, send, recv, op, 0);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return SUBMIT(KIND_ALLGATHER, send, recv, ncclSum, 0);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return SUBMIT(KIND_SEND, send, NULL, ncclSum, peer);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return SUBMIT(KIND_RECV, NULL, recv, ncclSum, peer);
}
