/* The places of an operation's elements.
 *
 * Up to SHM_INLINE_MAX bytes the elements are copied into this rank's entry of the control region. Larger
 * elements stay where they are if they lie in a segment: the other ranks read and write them there. A private
 * buffer is copied to a bounce buffer first, and the wait copies the result back. Large private buffers of a
 * rank that waits can also go piece by piece (local/pipeline.h). */
#include "collectives/client/operation.h"

#include <string.h>

#include "collectives/client/arena.h"
#include "collectives/client/group.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/dtype.h"
#include "collectives/local/pipeline.h"

static bool is_root(const struct tensor *t, const struct tensor_op *op)
{
    return op->kind == SHM_BROADCAST && op->root == t->index;
}

static size_t table_bytes(const struct tensor *t)
{
    return (size_t)t->view.team->size * sizeof(uint64_t);
}

/* The elements of a sized operation on one host lie in the library's memory. The call of their rank may end
 * before others have read them. */
static bool gives_a_copy(const struct tensor *t)
{
    return op_is_sized(&t->op.what) && team_is_here(t->view.team);
}

static bool is_in_segment(const void *memory, const struct tensor_op *op, uint64_t bytes, uint64_t *address)
{
    return memory && (uintptr_t)memory % dtype_size(op->dtype) == 0 && arena_address(memory, bytes, address);
}

static size_t round_to_lines(size_t bytes)
{
    return (bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

/* Memory for the results of shared allreduces. A block that is too small is kept until the next operation
 * has ended, because other ranks may still read it. */
static int make_shared(struct tensor *t, size_t bytes)
{
    bytes = bytes < SHM_INLINE_MAX ? SHM_INLINE_MAX : bytes;
    if (t->shared.bytes >= bytes)
        return HVD_SUCCESS;
    void *larger = arena_alloc(bytes, false);
    if (!larger)
        return last_failure(); /* the one before stays: other ranks may still read it */
    t->shared.before = t->shared.memory;
    t->shared.memory = larger;
    t->shared.bytes = bytes;
    return HVD_SUCCESS;
}

/* One block for everything that is staged: output, input, table and counts. */
static int make_block(struct tensor *t, size_t bytes, uint64_t *address)
{
    t->op.staging = bytes ? arena_alloc(bytes, false) : NULL;
    if (bytes && !t->op.staging)
        return last_failure();
    if (bytes && !arena_address(t->op.staging, bytes, address))
        return fail(HVD_ERR_MEMORY, "tensor \"%s\": staging memory is nowhere", t->name);
    return HVD_SUCCESS;
}

/* An input that needs a bounce buffer uses the place of its output, if that is as large. */
int operation_place(struct tensor *t)
{
    const struct tensor_op *op = &t->op.what;
    bool one_result = op->kind == SHM_ALLREDUCE_SHARED, apart = one_result || op_scatters(op->kind);
    uint64_t bytes = t->op.bytes, address = 0;
    void *out = is_root(t, op) ? (void *)(uintptr_t)t->op.in : t->op.out;
    bool far_out = op_scatters(op->kind) ? t->op.capacity > SHM_INLINE_MAX : !one_result || t->view.me == 0;
    bool stage_in = !t->op.small && (gives_a_copy(t) || !is_in_segment(t->op.in, op, bytes, &t->op.where.in));
    bool same = far_out && !apart && !stage_in && out == t->op.in;
    bool stage_out = far_out && !same && !is_in_segment(out, op, t->op.capacity, &t->op.where.out);
    size_t out_bytes = stage_out ? round_to_lines(t->op.capacity) : 0,
           in_bytes = stage_in && apart ? round_to_lines(bytes) : 0;
    size_t table = t->op.where.table_place == SHM_SEGMENT ? table_bytes(t) : 0;
    size_t recv_counts =
        !team_is_here(t->view.team) && op_is_ragged(op->kind) ? tensor_recv_bytes(t->view.team, op) : 0;
    int status = make_block(t, out_bytes + in_bytes + table + recv_counts, &address);
    if (status != HVD_SUCCESS)
        return status;
    if (same)
        t->op.where.out = t->op.where.in;
    if (stage_out) {
        t->op.bounce_out = t->op.staging;
        t->op.where.out = address;
    }
    if (stage_in) {
        t->op.bounce_in = apart ? (char *)t->op.staging + out_bytes : stage_out ? t->op.staging : out;
        t->op.where.in = apart ? address + out_bytes : t->op.where.out;
    }
    if (table) {
        memcpy((char *)t->op.staging + out_bytes + in_bytes, t->op.where.table, table);
        t->op.where.table_at = address + out_bytes + in_bytes;
    }
    if (recv_counts) {
        t->op.where.recv_counts_at = address + out_bytes + in_bytes + table;
        t->op.recv_counts = (uint64_t *)(void *)((char *)t->op.staging + out_bytes + in_bytes + table);
    }
    return HVD_SUCCESS;
}

/* Too small to go piece by piece. No rank knows how much the others give to a ragged operation, but the
 * capacities of all ranks are much alike. */
static bool is_short(const struct tensor *t)
{
    if (t->op.what.kind == SHM_ALLREDUCE)
        return t->op.bytes < STREAM_LEAST;
    if (op_is_sized(&t->op.what))
        return t->op.bytes < STREAM_LEAST_SIZED;
    return t->op.small && (!op_is_ragged(t->op.what.kind) || t->op.capacity <= SHM_INLINE_MAX);
}

static bool is_private(const struct tensor *t)
{
    uint64_t address;
    return !is_in_segment(t->op.in, &t->op.what, t->op.bytes, &address) &&
           !is_in_segment(t->op.out, &t->op.what, t->op.capacity, &address);
}

/* All elements are private, they are many, and this thread will wait until the others have read them. The
 * elements of a sized operation would be copied anyway. */
static bool can_stream(const struct tensor *t, bool will_wait)
{
    return will_wait && op_kind_in(t->op.what.kind, STREAM_KINDS) && !op_is_adasum(&t->op.what) &&
           !is_short(t) && !t->op.group &&
           (team_is_here(t->view.team) || stream_crosses(&client.region, &t->op.what)) &&
           t->op.where.table_place != SHM_SEGMENT && (op_is_sized(&t->op.what) || is_private(t));
}

/* Ranks that only receive a broadcast need no place. The others read a sized operation's elements where they
 * are, if they can. */
static int make_pieces_place(struct tensor *t)
{
    const struct tensor_op *op = &t->op.what;

    if (op->kind == SHM_BROADCAST && !is_root(t, op))
        return HVD_SUCCESS;
    if (op_is_sized(op) && is_in_segment(t->op.in, op, t->op.bytes, &t->op.where.out))
        return HVD_SUCCESS;
    if (op_is_sized(op))
        t->op.where.out = STREAM_NOT_SHARED;
    return make_block(t, STREAM_PLACE, &t->op.where.in);
}

/* The part of a request that all paths share. */
static inline void take_request(struct tensor *t, const struct request *r)
{
    struct operation *o = &t->op;
    o->what = r->op;
    o->path = __builtin_expect(r->op.device, 0) ? client.gpu : client.path;
    o->bytes = tensor_all_bytes(&r->op);
    o->waits_later = r->will_wait == WAITS_LATER;
    o->in = r->in;
    o->out = is_root(t, &r->op) ? NULL : r->out;
    o->rows = r->rows;
    o->result = r->result;
    o->capacity = r->capacity;
    o->group = r->group;
    if (__builtin_expect(r->allocator.allocate != NULL, 0))
        o->sized = (struct sized){.allocator = r->allocator};
    else
        o->sized.allocator.allocate = NULL;
    o->bounce_in = o->bounce_out = o->staging = NULL;
    o->recv_counts = NULL;
    memset(&o->where, 0,
           offsetof(struct tensor_where, own_in)); /* a whole of more than 64 bytes takes longer */
    if (op_is_ragged(r->op.kind))
        o->where.capacity = r->capacity >> __builtin_ctzll(dtype_size(r->op.dtype)); /* a power of two */
    if (r->table) {
        o->where.table = r->table;
        o->where.table_place = table_bytes(t) <= SHM_TABLE_MAX ? SHM_INLINE : SHM_SEGMENT;
    }
}

/* The path through shared memory. */
static inline int prepare_shared_memory(struct tensor *t, const struct request *r, bool will_wait)
{
    struct operation *o = &t->op;
    bool gives = r->op.kind != SHM_BROADCAST || is_root(t, &r->op);
    int status = HVD_SUCCESS;
    o->small = tensor_is_inline(o->bytes, o->where.table_place == SHM_INLINE ? table_bytes(t) : 0);
    if (o->small && gives)
        o->where.payload = r->in;
    if (r->result) {
        if (o->small || t->view.me == 0)
            status = make_shared(t, r->capacity);
        o->out = t->shared.memory;
    }
    o->where.is_streamed = can_stream(t, will_wait);
    o->where.own_in = o->in;
    o->where.own_out = o->out;
    if (o->where.is_streamed)
        status = make_pieces_place(t);
    else if (status == HVD_SUCCESS && (!o->small || op_scatters(r->op.kind)))
        status = operation_place(t);
    return status;
}

int operation_prepare(struct tensor *t, const struct request *r, bool will_wait)
{
    take_request(t, r);
    int status;
    if (__builtin_expect(t->op.path != NULL, 0))
        status = t->op.path->prepare(t, r);
    else
        status = prepare_shared_memory(t, r, will_wait);
    if (status != HVD_SUCCESS)
        operation_release(t);
    return status;
}

void operation_release(struct tensor *t)
{
    if (t->op.staging)
        arena_free(t->op.staging);
    if (t->shared.before)
        arena_free(t->shared.before);
    if (t->op.group)
        group_free(t->op.group);
    t->op.staging = t->shared.before = NULL;
    t->op.group = NULL;
}

/* The elements to where the others look for them. `small` has room for an entry's. */
void operation_give(struct tensor *t, uint8_t *small)
{
    uint64_t since = read_watch_clock();
    if (t->op.group) {
        group_pack(t->op.group, t->op.small ? small : t->op.bounce_in);
        t->op.where.payload = small;
    } else if (t->op.bounce_in && (t->op.what.kind != SHM_BROADCAST || is_root(t, &t->op.what))) {
        copy_bytes(t->op.bounce_in, t->op.in, t->op.bytes);
    }
    report_point(t, POINT_COPIED_IN, since);
}

void operation_stage(struct tensor *t)
{
    if (t->op.staging)
        arena_free(t->op.staging);
    t->op.staging = NULL;
    if (operation_place(t) == HVD_SUCCESS)
        operation_give(t, NULL);
    else
        t->op.where.in = t->op.where.out = UINT64_MAX; /* nowhere: all find that */
    stream_staged(&t->view, t->op.where.in, t->op.where.out);
}
