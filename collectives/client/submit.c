/* From a request to a published operation.
 *
 * Up to SHM_INLINE_MAX bytes the elements are copied into my entry of the control region. Above, the other
 * ranks read and write my buffer where it is, if it lies in a segment; a private buffer is copied to a
 * staging block first and the result copied back by the wait. The member that arrives last wakes those that
 * sleep and, if the engine has something to do, tells it. */
#include <string.h>
#include <unistd.h>

#include "collectives/kernels/copy.h"
#include "collectives/kernels/dtype.h"
#include "collectives/client/counts.h"
#include "collectives/client/gpu/gpu.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"
#include "collectives/local/pipeline.h"

#define STREAM_LEAST (1u << 20) /* bytes: below, a copy of the whole is cheaper */

/* ---- where everything lies ----------------------------------------------------------------------------- */

static bool is_root(const struct tensor *t, const struct tensor_op *op)
{
    return op->kind == SHM_BROADCAST && op->root == t->index;
}

static size_t table_bytes(const struct tensor *t)
{
    return (size_t)t->view.team->size * sizeof(uint64_t);
}

static bool shared(const void *memory, const struct tensor_op *op, uint64_t bytes, uint64_t *address)
{
    return memory && (uintptr_t)memory % dtype_size(op->dtype) == 0 && arena_address(memory, bytes, address);
}

static size_t lines(size_t bytes)
{
    return (bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

/* Memory for the results of shared allreduces; where the one before is too small, that one is kept until the
 * next operation has ended: others may still read it. */
static int make_shared(struct tensor *t, size_t bytes)
{
    bytes = bytes < SHM_INLINE_MAX ? SHM_INLINE_MAX : bytes;
    if (t->shared_bytes >= bytes)
        return HVD_SUCCESS;
    void *larger = arena_alloc(bytes, false);
    if (!larger)
        return last_failure(); /* the one before stays: other ranks may still read it */
    t->shared_before = t->shared;
    t->shared = larger;
    t->shared_bytes = bytes;
    return HVD_SUCCESS;
}

/* One block for what has to be staged: output, input and table, 0 bytes for what has not. */
static int make_block(struct tensor *t, size_t bytes, uint64_t *address)
{
    t->staging = bytes ? arena_alloc(bytes, false) : NULL;
    if (bytes && !t->staging)
        return last_failure();
    if (bytes && !arena_address(t->staging, bytes, address))
        return fail(HVD_ERR_MEMORY, "tensor \"%s\": staging memory is nowhere", t->name);
    return HVD_SUCCESS;
}

/* Finds or makes shared places for the elements. An input that has none stands in its output's place where
 * that is as large. */
static int place(struct tensor *t)
{
    const struct tensor_op *op = &t->op;
    bool one_result = op->kind == SHM_ALLREDUCE_SHARED, apart = one_result || op_scatters(op->kind);
    uint64_t bytes = t->bytes, address = 0;
    void *out = is_root(t, op) ? (void *)(uintptr_t)t->in : t->out;
    bool far_out = op_scatters(op->kind) ? t->room > SHM_INLINE_MAX : !one_result || t->view.me == 0;
    bool stage_in = !t->small && !shared(t->in, op, bytes, &t->where.in);
    bool same = far_out && !apart && !stage_in && out == t->in;
    bool stage_out = far_out && !same && !shared(out, op, t->room, &t->where.out);
    size_t out_bytes = stage_out ? lines(t->room) : 0, in_bytes = stage_in && apart ? lines(bytes) : 0;
    size_t table = t->where.table_place == SHM_SEGMENT ? table_bytes(t) : 0;
    size_t receipt = !team_is_here(t->view.team) && op_is_ragged(op->kind) ? table_bytes(t) : 0;
    int status = make_block(t, out_bytes + in_bytes + table + receipt, &address);

    if (status != HVD_SUCCESS)
        return status;
    if (same)
        t->where.out = t->where.in;
    if (stage_out) {
        t->landing = t->staging;
        t->where.out = address;
    }
    if (stage_in) {
        t->stand_in = apart ? (char *)t->staging + out_bytes : stage_out ? t->staging : out;
        t->where.in = apart ? address + out_bytes : t->where.out;
    }
    if (table) {
        memcpy((char *)t->staging + out_bytes + in_bytes, t->where.table, table);
        t->where.table_at = address + out_bytes + in_bytes;
    }
    if (receipt) {
        t->where.receipt_at = address + out_bytes + in_bytes + table;
        t->receipt = (uint64_t *)(void *)((char *)t->staging + out_bytes + in_bytes + table);
    }
    return HVD_SUCCESS;
}

/* Too small to go by pieces. Of ragged ones no rank knows how much the others give; all know much the same
 * of their room. */
static bool is_short(const struct tensor *t)
{
    if (t->op.kind == SHM_ALLREDUCE)
        return t->bytes < STREAM_LEAST;
    return t->small && (!op_is_ragged(t->op.kind) || t->room <= SHM_INLINE_MAX);
}

/* All of its elements are private, they are many, and this thread will wait until the others have got them.
 */
static bool can_stream(const struct tensor *t, bool will_wait)
{
    uint64_t address;

    return will_wait && op_kind_in(t->op.kind, STREAM_KINDS) && !op_is_adasum(&t->op) && !is_short(t) &&
           team_is_here(t->view.team) && !t->group && t->where.table_place != SHM_SEGMENT &&
           !shared(t->in, &t->op, t->bytes, &address) && !shared(t->out, &t->op, t->room, &address);
}

/* Who only takes needs no place. */
static int make_place(struct tensor *t)
{
    if (t->op.kind == SHM_BROADCAST && !is_root(t, &t->op))
        return HVD_SUCCESS;
    return make_block(t, STREAM_PLACE, &t->where.in);
}

/* Nothing of its elements goes through shared memory; tables do. */
__attribute__((cold, noinline)) static int prepare_device(struct tensor *t, const struct request *r)
{
    int status = HVD_SUCCESS;

    t->room = 0;
    t->small = true;
    if (!client.solo && op_scatters(r->op.kind))
        status = place(t);
    if (status == HVD_SUCCESS)
        status = device_prepare(t, r);
    if (status != HVD_SUCCESS)
        release_locked(t);
    return status;
}

int prepare_locked(struct tensor *t, const struct request *r, bool will_wait)
{
    bool gives = r->op.kind != SHM_BROADCAST || is_root(t, &r->op);
    int status = HVD_SUCCESS;

    t->op = r->op;
    t->bytes = tensor_all_bytes(&r->op);
    t->in = r->in;
    t->out = is_root(t, &r->op) ? NULL : r->out;
    t->rows = r->rows;
    t->result = r->result;
    t->room = r->room;
    t->group = r->group;
    t->stand_in = t->landing = t->staging = NULL;
    t->receipt = NULL;
    t->where = (struct tensor_where){0};
    if (op_is_ragged(r->op.kind))
        t->where.room = r->room >> __builtin_ctzll(dtype_size(r->op.dtype)); /* a power of two */
    if (r->table) {
        t->where.table = r->table;
        t->where.table_place = table_bytes(t) <= SHM_TABLE_MAX ? SHM_INLINE : SHM_SEGMENT;
    }
    if (__builtin_expect(r->op.device, 0))
        return prepare_device(t, r);
    t->small = tensor_is_inline(t->bytes, t->where.table_place == SHM_INLINE ? table_bytes(t) : 0);
    if (t->small && gives)
        t->where.payload = r->in;
    if (r->result && !client.solo) {
        if (t->small || t->view.me == 0)
            status = make_shared(t, r->room);
        t->out = t->shared;
    }
    t->where.is_streamed = !client.solo && can_stream(t, will_wait);
    t->where.own_in = t->in;
    t->where.own_out = t->out;
    if (t->where.is_streamed)
        status = make_place(t);
    else if (status == HVD_SUCCESS && !client.solo && (!t->small || op_scatters(r->op.kind)))
        status = place(t);
    if (status != HVD_SUCCESS)
        release_locked(t);
    return status;
}

void release_locked(struct tensor *t)
{
    if (t->staging)
        arena_free(t->staging);
    if (t->shared_before)
        arena_free(t->shared_before);
    if (t->group)
        group_free(t->group);
    t->staging = t->shared_before = NULL;
    t->group = NULL;
}

/* ---- one operation ------------------------------------------------------------------------------------- */

void kick_engine(void)
{
    uint64_t one = 1;

    if (atomic_load(&client.region.header->engine_sleeping) && write(client.kick, &one, sizeof one) < 0)
        return; /* its counter is full: it is awake, or its beat will tell */
}

/* However slow the engine is, there is room: each slot is in the ring once. */
static void tell_engine(struct tensor *t)
{
    pthread_mutex_lock(&client.ring_lock);
    bool put = ring_put_once(&client.mailbox->ready, t->slot, &t->told);
    pthread_mutex_unlock(&client.ring_lock);
    if (put)
        kick_engine();
}

/* I am the last: let the sleepers see it, and the engine, when it has a part in it. */
static inline __attribute__((always_inline)) void announce(struct tensor *t, bool will_wait)
{
    bool for_engine = !team_is_here(t->view.team) || (!t->small && !will_wait);

    if (for_engine) {
        tensor_offer(&t->view);
        tell_engine(t);
    }
    if (team_is_here(t->view.team))
        region_ring_sleepers(&client.region, UINT32_MAX);
}

/* Others are to come, or, when all are here, to copy first what they wanted to pass by pieces: they may
 * sleep. */
static inline __attribute__((always_inline)) void arrived_early(struct tensor *t)
{
    if (tensor_missing(&t->view) == t->view.team->members)
        region_ring_sleepers(&client.region, UINT32_MAX);
    if (__builtin_expect(atomic_load(&client.region.header->joined), 0))
        tell_engine(t); /* so that it tells those that have joined, and others may lack */
}

static inline __attribute__((always_inline)) void published(struct tensor *t, bool will_wait)
{
    if (tensor_arrived(&t->view))
        announce(t, will_wait);
    else
        arrived_early(t);
}

/* The elements to where the others look for them. `small` has room for an entry's. */
static void give(struct tensor *t, uint8_t *small)
{
    uint64_t since = timeline_clock();

    if (t->group) {
        group_pack(t->group, t->small ? small : t->stand_in);
        t->where.payload = small;
    } else if (t->stand_in && (t->op.kind != SHM_BROADCAST || is_root(t, &t->op))) {
        copy_bytes(t->stand_in, t->in, t->bytes);
    }
    timeline(t, TIMELINE_IN, since);
}

void tell_others(struct tensor *t, bool will_wait)
{
    published(t, will_wait);
}

void stage_locked(struct tensor *t)
{
    if (t->staging)
        arena_free(t->staging);
    t->staging = NULL;
    if (place(t) == HVD_SUCCESS)
        give(t, NULL);
    else
        t->where.in = t->where.out = UINT64_MAX; /* nowhere: all find that */
    stream_staged(&t->view, t->where.in, t->where.out);
}

/* Everybody else is here, and my memory is private: I read the others' elements and mine where they are and
 * write all results, which spares me both copies. Who waits anyway shares the work with the others instead.
 */
static bool does_all(struct tensor *t, bool will_wait)
{
    struct tensor_where *where = &t->where;

    where->is_private = t->staging && t->op.kind == SHM_ALLREDUCE && team_is_here(t->view.team) &&
                        !t->group && !will_wait && tensor_others_arrived(&t->view);
    return where->is_private;
}

int start_locked(struct tensor *t, bool will_wait)
{
    bool alone;
    uint8_t small[SHM_INLINE_MAX];

    timeline(t, TIMELINE_SUBMIT, 0);
    if (client.solo) {
        timeline(t, TIMELINE_AGREED, 0);
        t->status = run_solo(t);
        t->phase = PHASE_ENDED;
        timeline(t, TIMELINE_ENDED, 0);
        return HVD_SUCCESS;
    }
    if (region_poisoned(&client.region)) {
        timeline(t, TIMELINE_ENDED, 0);
        return fail_poisoned();
    }
    if (__builtin_expect(t->op.device, 0))
        return device_start(t, will_wait);
    tensor_begin(&t->view, ++t->sequence);
    count_begins(t);
    alone = does_all(t, will_wait);
    if (!alone && (t->group || t->stand_in))
        give(t, small);
    tensor_publish(&t->view, &t->op, &t->where);
    t->phase = team_is_here(t->view.team) ? PHASE_ARRIVE : PHASE_REMOTE;
    if (alone) {
        finish_locked(t);
        if (t->status != HVD_SUCCESS) /* else they were rung when the work was done */
            region_ring_sleepers(&client.region, UINT32_MAX);
    } else {
        published(t, will_wait);
    }
    if (t->staging && !will_wait && t->phase == PHASE_ARRIVE)
        pending_add(t);
    return HVD_SUCCESS;
}

int submit_locked(struct tensor *t, const struct request *r, bool will_wait)
{
    int status;

    if (t->phase != PHASE_IDLE || t->persistent) {
        if (r->group)
            group_free(r->group);
        if (r->op.kind == SHM_BARRIER)
            return fail(HVD_ERR_IN_PROGRESS, "a barrier of this rank is pending already");
        return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": %s", t->name,
                    t->persistent ? "a persistent handle has this name"
                                  : "an operation of this name is pending already");
    }
    t->generation++;
    if ((status = prepare_locked(t, r, will_wait)) == HVD_SUCCESS &&
        (status = start_locked(t, will_wait)) != HVD_SUCCESS)
        release_locked(t);
    return status;
}

int begin(const struct team *team, const char *name, struct tensor **t)
{
    int status = tensor_find(team, name, t);

    if (status)
        return status;
    if (!lock_unless_waited(*t))
        return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": an operation of this name is pending already", name);
    return HVD_SUCCESS;
}

hvd_handle tensor_handle(const struct tensor *t)
{
    return (hvd_handle)t->generation * SHM_SLOTS + t->slot;
}

struct tensor *barrier_tensor(const struct team *team)
{
    struct tensor *t;

    if (team->id == HVD_WORLD)
        return tensor_fixed(SHM_SLOT_BARRIER);
    return tensor_find(team, SHM_BARRIER_NAME, &t) == HVD_SUCCESS ? t : NULL;
}

/* Barriers of several threads follow one another: ranks cannot tell them apart, nor need they. */
int run_fixed(struct tensor *t, uint8_t kind)
{
    struct request r = {.op = {.kind = kind, .prescale = 1, .postscale = 1}};
    int status;

    if (!t)
        return HVD_ERR_MEMORY;
    r.op.set = t->view.team->id;
    pthread_mutex_lock(&t->lock);
    if ((status = submit_locked(t, &r, true)) == HVD_SUCCESS)
        status = wait_locked(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}
