#include "collectives/local/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/shm/doorbell.h"
#include "collectives/local/pipeline.h"
#include "collectives/local/kind.h"
#include "collectives/local/tensor.h"

/* The arrays are one piece of memory, which `in` names. */
int tensor_view_init(struct tensor_view *v, const struct region *region, const struct team *team,
                     uint32_t slot, uint32_t me)
{
    uint32_t members = team->members;
    *v = (struct tensor_view){
        .region = region, .team = team, .slot = region_slot(region, slot), .number = slot, .me = me};
    v->in = calloc(members, 2 * sizeof *v->in + 2 * sizeof *v->out + sizeof *v->recv_counts +
                                sizeof *v->member_slot + 3 * sizeof(uint64_t));
    if (!v->in)
        return -1;
    v->out = (void **)(v->in + members);
    v->stream.in = (const void **)(v->out + members);
    v->stream.out = (void **)(v->stream.in + members);
    v->recv_counts = (uint64_t **)(v->stream.out + members);
    v->member_slot = (struct shm_member_slot **)(v->recv_counts + members);
    v->count = (uint64_t *)(v->member_slot + members);
    v->capacity = v->count + members;
    v->get = v->capacity + members;
    for (uint32_t i = 0; i < members; i++)
        v->member_slot[i] = &v->slot->member_slot[team->local[i]];
    return 0;
}

void tensor_view_free(struct tensor_view *v)
{
    free(v->in);
    free(v->split);
    free(v->scratch);
    v->in = NULL;
    v->split = NULL;
    v->scratch = NULL;
}

void tensor_begin(struct tensor_view *v, uint32_t sequence)
{
    v->sequence = sequence;
    v->seen = 0;
    v->mine = v->stream.gave = v->stream.taken = 0;
    v->stream.host = NULL;
    v->stream.copied = 0;
    v->streamed = v->patient = false;
    if (v->scratch) {
        free(v->scratch);
        v->scratch = NULL;
    }
    v->place = v->own.place = 0;
    v->chunks =
        (struct chunks){0}; /* none can be taken before tensor_open has found this operation's elements */
}

/* 0: it has none. */
static uint8_t details_place(const struct tensor_op *op, const struct tensor_where *where, uint8_t place)
{
    if (op->prescale != 1 || op->postscale != 1 || (op->group | op->compression) != 0 ||
        where->table_place != 0 || where->recv_counts_at != 0 || (op->device && where->in != 0))
        return SHM_DETAILED;
    if (op->row == 0 && where->capacity == 0)
        return 0;
    return place == SHM_INLINE && where->capacity * dtype_size(op->dtype) <= SHM_INLINE_MAX ? SHM_BRIEF
                                                                                            : SHM_DETAILED;
}

/* The flags of the entry's `place`, beside `place` itself and the details. */
static uint8_t flags_of(const struct tensor_op *op, const struct tensor_where *where)
{
    uint8_t device = op->device == OP_EITHER ? SHM_DEVICE | SHM_EITHER : SHM_DEVICE;
    return (uint8_t)((where->is_private ? SHM_PRIVATE : 0) | (where->is_streamed ? SHM_STREAMED : 0) |
                     (op->device ? device : 0));
}

void tensor_publish(struct tensor_view *v, const struct tensor_op *op, const struct tensor_where *where)
{
    struct shm_entry *entry = tensor_entry(v, v->me);
    uint64_t bytes = tensor_bytes(op), table = 0;
    if (where->table_place == SHM_INLINE) {
        table = (uint64_t)v->team->size * sizeof *where->table;
        memcpy(tensor_body(v, v->me)->payload, where->table, table);
    }
    entry->kind = op->kind;
    entry->dtype = op->dtype;
    entry->op = op->op;
    v->place = tensor_is_inline(bytes, table) ? SHM_INLINE : SHM_SEGMENT;
    if (where->payload && v->place == SHM_INLINE)
        memcpy(tensor_payload(v, v->me, bytes, table), where->payload, bytes);
    uint8_t details = details_place(op, where, v->place);
    v->own.capacity = where->capacity;
    v->own.place = v->place | details | flags_of(op, where);
    v->own.small = op->kind == SHM_ALLREDUCE && details == 0 ? where->payload : NULL;
    if (details == SHM_DETAILED)
        tensor_body(v, v->me)->details =
            (struct shm_details){op->row,         op->prescale,       op->postscale,
                                 op->group,       op->compression,    where->capacity,
                                 where->table_at, where->table_place, where->recv_counts_at};
    v->op = *op;
    v->own.in = where->own_in;
    v->own.out = where->own_out;
    v->bytes = bytes;
    entry->place = v->own.place;
    entry->root = op->root;
    entry->set = op->set;
    entry->count = op->count;
    entry->in = details == SHM_BRIEF ? op->row : where->in;
    entry->out = details == SHM_BRIEF ? where->capacity : where->out;
    atomic_store(&entry->sequence, v->sequence);
}

/* Asks for a line that this processor will write. No fault, and no effect but in time. */
static void claim_line(const volatile void *line)
{
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const volatile char *)line));
#else
    __builtin_prefetch((const void *)(uintptr_t)line, 1);
#endif
}

void tensor_claim_next(const struct tensor_view *v)
{
    const uint8_t *payload = v->member_slot[v->me]->body[(v->sequence + 1) & 1].payload;
    bool writes_payload = v->place == SHM_INLINE && v->bytes > SHM_SMALL_MAX;
    claim_line(tensor_entry_at(v, v->me, v->sequence + 1));
    for (size_t at = 0; writes_payload && at < v->bytes; at += SHM_LINE)
        claim_line(payload + at);
}

uint64_t tensor_out_address(const struct tensor_view *v, uint32_t member)
{
    return tensor_entry(v, member)->out;
}

bool tensor_arrived(struct tensor_view *v)
{
    uint32_t members = v->team->members;
    while (v->seen < members && ((v->seen == v->me && v->own.place != 0) ||
                                 atomic_load(&tensor_entry(v, v->seen)->sequence) == v->sequence))
        v->seen++;
    return v->seen == members && ((v->place == SHM_INLINE && !op_is_ragged(v->op.kind)) || stream_settled(v));
}

bool tensor_still_here(const struct tensor_view *v)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        if (atomic_load(&tensor_entry(v, i)->sequence) != v->sequence)
            return false;
    return true;
}

bool tensor_others_arrived(const struct tensor_view *v)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        if (i != v->me && (atomic_load(&tensor_entry(v, i)->sequence) != v->sequence ||
                           (tensor_entry(v, i)->place & SHM_STREAMED) != 0))
            return false;
    return true;
}

bool tensor_is_over(const struct tensor_view *v)
{
    READS_ARE_DONE();
    for (uint32_t i = 0; i < v->team->members; i++)
        if ((int32_t)(atomic_load(&tensor_entry_at(v, i, v->sequence + 1)->sequence) - v->sequence) <= 0)
            return false;
    return true;
}

uint32_t tensor_missing(const struct tensor_view *v)
{
    return v->seen;
}

/* ---- the work ------------------------------------------------------------------------------------------ */

const struct kind *kind_of(const struct tensor_op *op)
{
    static const struct kind *const work[SHM_KINDS] = {
        [SHM_ALLREDUCE] = &kind_allreduce, [SHM_ALLREDUCE_SHARED] = &kind_allreduce_shared,
        [SHM_BROADCAST] = &kind_broadcast, [SHM_ALLGATHER] = &kind_allgather,
        [SHM_ALLTOALL] = &kind_alltoall,   [SHM_REDUCESCATTER] = &kind_reducescatter,
    };
    return op_is_adasum(op) ? &kind_adasum : work[op->kind];
}

void tensor_compute(const struct tensor_view *v, void *out)
{
    if (out && v->bytes > 0)
        kind_of(&v->op)->mine(v, out);
}

static _Atomic uint64_t *done_word(const struct tensor_view *v, uint32_t participant)
{
    return participant < v->team->members ? &v->member_slot[participant]->done : &v->slot->done;
}

static bool may_work(const struct tensor_view *v)
{
    return v->worker == TENSOR_ANYBODY || v->worker == v->me;
}

/* Chunk number, or CHUNK_NONE. Only members move the word on to a new operation: they cannot be late. */
static uint32_t take_chunk(struct tensor_view *v)
{
    uint64_t seen = atomic_load_explicit(&v->slot->claim, memory_order_relaxed);
    for (;;) {
        bool fresh = (uint32_t)(seen >> 32) != v->sequence;
        uint32_t members = v->team->members, then = 0;
        uint32_t chunk =
            chunks_pick(&v->chunks, fresh ? 0 : (uint32_t)seen, v->me, members, v->patient, &then);
        if (chunk == CHUNK_NONE || (fresh && v->me == members) || !may_work(v))
            return CHUNK_NONE;
        if (atomic_compare_exchange_weak(&v->slot->claim, &seen, shm_tagged(v->sequence, then)))
            return chunk;
    }
}

bool tensor_work(struct tensor_view *v)
{
    uint32_t chunk = take_chunk(v);
    if (chunk == CHUNK_NONE)
        return false;
    size_t first, count;
    chunks_range(&v->chunks, chunk, &first, &count);
    kind_of(&v->op)->part(v, first, count);
    FINISHED_FOR_OTHERS(v);
    atomic_store(done_word(v, v->me), shm_tagged(v->sequence, ++v->mine));
    if (tensor_done(v))
        region_ring_sleepers(v->region, UINT32_MAX);
    return true;
}

/* `fresh`: the answer where nobody has begun. */
static bool has_chunk_left(const struct tensor_view *v, bool patient, bool fresh)
{
    uint64_t seen = atomic_load_explicit(&v->slot->claim, memory_order_relaxed);
    uint32_t then;
    return (uint32_t)(seen >> 32) != v->sequence
               ? fresh
               : chunks_pick(&v->chunks, (uint32_t)seen, v->me, v->team->members, patient, &then) !=
                     CHUNK_NONE;
}

bool tensor_has_chunk(const struct tensor_view *v)
{
    return may_work(v) && has_chunk_left(v, v->patient, v->me < v->team->members);
}

bool tensor_all_taken(const struct tensor_view *v)
{
    return !has_chunk_left(v, false, true);
}

void tensor_offer(struct tensor_view *v)
{
    uint64_t seen = atomic_load_explicit(&v->slot->claim, memory_order_relaxed);
    if ((uint32_t)(seen >> 32) != v->sequence)
        atomic_compare_exchange_strong(&v->slot->claim, &seen, shm_tagged(v->sequence, 0));
}

bool tensor_done(const struct tensor_view *v)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i <= v->team->members; i++) {
        uint64_t done = atomic_load(done_word(v, i));
        if ((uint32_t)(done >> 32) == v->sequence)
            total += (uint32_t)done;
    }
    return total >= v->chunks.number;
}

void tensor_has_read(struct tensor_view *v)
{
    FINISHED_FOR_OTHERS(v);
    atomic_store(&v->member_slot[v->me]->done, shm_tagged(v->sequence, 1));
}

/* A member that has arrived at a later operation has ended this one. All had arrived at this one. So an
 * earlier number belongs to another name, which has the slot now. */
bool tensor_is_read(const struct region *region, uint32_t slot, uint32_t local, uint32_t sequence)
{
    uint64_t done = atomic_load(&region_slot(region, slot)->member_slot[local].done);
    uint32_t a = atomic_load(&region_entry(region, slot, local, 0)->sequence);
    uint32_t b = atomic_load(&region_entry(region, slot, local, 1)->sequence);

    return (uint32_t)(done >> 32) == sequence || ((int32_t)(a - b) > 0 ? a : b) != sequence;
}

bool tensor_was_left(const struct tensor_view *v)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        if (atomic_load(&region_mailbox(v->region, v->team->local[i])->left))
            return true;
    return false;
}
