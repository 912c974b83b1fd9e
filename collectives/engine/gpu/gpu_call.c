/* A rank's description of its next operation: copied once, checked whole, then turned into addresses of this
 * process. */
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/gpu/gpu.h"
#include "collectives/engine/names.h"
#include "collectives/gpu/operation.h"
#include "collectives/kernels/dtype.h"

/* Elements that an operation reads and writes at this rank. */
struct extent {
    uint64_t in, out;
};

static uint64_t sum_counts(const size_t *counts, int n)
{
    uint64_t all = 0;
    for (int i = 0; i < n; i++)
        all += counts[i]; /* each is below 2^48, see take_counts */
    return all;
}

static struct extent extent_of(const struct gpu_operation *o, int rank, int size)
{
    switch (o->kind) {
    case GPU_BROADCAST:
        return (struct extent){0, o->count};
    case GPU_ALLGATHER:
        return (struct extent){o->counts[rank], sum_counts(o->counts, size)};
    case GPU_ALLTOALL:
        return (struct extent){sum_counts(o->sent, size), sum_counts(o->counts, size)};
    case GPU_REDUCESCATTER:
        return (struct extent){o->count, operation_part(o, size, rank)};
    default:
        return (struct extent){o->count, o->count};
    }
}

/* The place of `bytes` bytes in the member's memory; `known`: where NCCL knows it. -1: there is none such. */
static int resolve_memory(const struct gpu_owner *owner, const struct gpu_member *gpu_member, bool known,
                          uint32_t memory, uint64_t offset, uint64_t bytes, void **at)
{
    const struct gpu_memory *m = engine_gpu_memory_of(owner, memory);
    *at = NULL;
    if (memory == 0)
        return bytes == 0 ? 0 : -1;
    if (!m || m->gpu != gpu_member->gpu || offset > m->bytes || bytes > m->bytes - offset)
        return -1;
    cu_pointer base = known ? engine_gpu_known_at(gpu_member, m) : m->at;
    if (!base)
        return -1;
    *at = (void *)(uintptr_t)(base + offset);
    return 0;
}

/* The operation is possible among `size` ranks; its addresses are checked later. */
static bool makes_sense(const struct shm_device_piece *p, uint32_t ragged, int size)
{
    bool takes_tables = p->kind == GPU_ALLGATHER || p->kind == GPU_ALLTOALL;
    uint64_t most = TENSOR_BYTES_MAX;
    return p->kind >= 0 && p->kind < DEVICE_SEND && p->dtype >= 0 && dtype_size(p->dtype) > 0 &&
           op_valid(p->op) && p->root >= 0 && p->root < size && p->count <= most / dtype_size(p->dtype) &&
           p->row_count <= most && takes_tables == (ragged != 0) &&
           (p->kind != GPU_REDUCESCATTER || p->count == 0 ||
            (p->row_count > 0 && p->count % p->row_count == 0));
}

static int take_piece(const struct gpu_owner *owner, const struct gpu_member *gpu_member, int rank, int size,
                      bool known, const struct shm_device_piece *p, struct gpu_operation *o)
{
    uint64_t element = dtype_size(p->dtype);
    *o = (struct gpu_operation){.kind = (enum gpu_kind)p->kind,
                                .dtype = p->dtype,
                                .op = p->op,
                                .prescale = p->prescale,
                                .postscale = p->postscale,
                                .root = p->root,
                                .count = p->count,
                                .row_count = p->row_count,
                                .counts = gpu_member->call.counts,
                                .sent = gpu_member->call.counts ? gpu_member->call.counts + size : NULL};
    struct extent extent = extent_of(o, rank, size);
    void *in;
    if (extent.in > TENSOR_BYTES_MAX || extent.out > TENSOR_BYTES_MAX ||
        resolve_memory(owner, gpu_member, known, p->in_memory, p->in_offset, extent.in * element, &in) != 0 ||
        resolve_memory(owner, gpu_member, known, p->out_memory, p->out_offset, extent.out * element,
                       &o->out) != 0)
        return -1;
    o->in = in;
    /* A kernel that loads what is not aligned breaks the context, which other ranks have too. */
    return operation_reduces(o) && ((uintptr_t)o->in | (uintptr_t)o->out) % element != 0 ? -1 : 0;
}

static int grow_call(struct gpu_given *g, size_t pieces, int size)
{
    if (!g->counts)
        g->counts = calloc(2 * (size_t)size, sizeof *g->counts);
    if (!g->counts)
        return -1;
    if (pieces > g->capacity) {
        struct gpu_operation *more = realloc(g->operation, pieces * sizeof *more);
        if (!more)
            return -1;
        g->operation = more;
        g->capacity = pieces;
    }
    g->operations = pieces;
    return 0;
}

static int take_counts(struct gpu_given *g, const uint64_t *counts, uint32_t ragged)
{
    for (uint32_t i = 0; i < 2 * ragged; i++) {
        if (counts[i] > TENSOR_BYTES_MAX)
            return -1;
        g->counts[i] = counts[i];
    }
    return 0;
}

/* All of it as the member wrote it, in memory of ours; NULL: it lies nowhere. */
static struct shm_device_call *copy_call(struct engine *engine, uint64_t address, int size)
{
    struct shm_device_call *there = segments_resolve(engine, address, sizeof *there);
    if (!there)
        return NULL;
    struct shm_device_call head;
    memcpy(&head, there, sizeof head);
    if (head.pieces == 0 || head.pieces > SHM_DEVICE_PIECES_MAX ||
        (head.ragged && head.ragged != (uint32_t)size))
        return NULL;
    uint64_t bytes = shm_device_call_bytes(head.pieces, head.ragged);
    there = segments_resolve(engine, address, bytes);
    struct shm_device_call *whole = there ? malloc(bytes) : NULL;
    if (whole) {
        memcpy(whole, there, bytes);
        memcpy(whole, &head, sizeof head);
    }
    return whole;
}

static int check_call(const struct gpu_owner *owner, struct gpu_member *gpu_member, int rank, int size,
                      const struct shm_device_call *call)
{
    struct gpu_given *g = &gpu_member->call;
    gpu_member->operation = call->operation;
    if (grow_call(g, call->pieces, size) != 0 ||
        take_counts(g, (const uint64_t *)(const void *)&call->piece[call->pieces], call->ragged) != 0)
        return -1;
    for (uint32_t i = 0; i < call->pieces; i++)
        if (!makes_sense(&call->piece[i], call->ragged, size) ||
            take_piece(owner, gpu_member, rank, size, call->known, &call->piece[i], &g->operation[i]) != 0)
            return -1;
    return 0;
}

int engine_gpu_take_call(struct engine *engine, uint32_t member, struct gpu_member *gpu_member, int rank,
                         int size, uint64_t address, struct err *e)
{
    struct shm_device_call *call = copy_call(engine, address, size);
    int rc = call ? check_call(&engine->gpus->owner[member], gpu_member, rank, size, call) : -1;
    free(call);
    return rc == 0 ? 0 : err_set(e, ERR_PROTOCOL, "has described an operation on a GPU that cannot be");
}
