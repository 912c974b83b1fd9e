#include "collectives/shm/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/dtype.h"
#include "collectives/algorithms/reduce.h"
#include "collectives/shm/doorbell.h"

/* An order that goes through another process (I finish a chunk, it sees that and reuses the memory, I see its
 * next arrival) is invisible to ThreadSanitizer, which knows only this process. These two tell it. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TELL_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(TELL_TSAN)
#include <sanitizer/tsan_interface.h>
#define finished_for_others(v) __tsan_release((v)->region->header)
#define arrived_from_others(v) __tsan_acquire((v)->region->header)
#else
#define finished_for_others(v) ((void)(v))
#define arrived_from_others(v) ((void)(v))
#endif

#define TENSOR_BYTES_MAX (1ull << SHM_OFFSET_BITS)

int tensor_view_init(struct tensor_view *v, const struct region *region, uint32_t slot, uint32_t me)
{
    *v = (struct tensor_view){.region = region, .slot = region_slot(region, slot), .me = me};
    v->in = calloc(region->members, sizeof *v->in);
    v->out = calloc(region->members, sizeof *v->out);
    if (v->in && v->out)
        return 0;
    tensor_view_free(v);
    return -1;
}

void tensor_view_free(struct tensor_view *v)
{
    free(v->in);
    free(v->out);
    v->in = NULL;
    v->out = NULL;
}

void tensor_begin(struct tensor_view *v, uint32_t sequence)
{
    v->sequence = sequence;
    v->seen = 0;
    v->mine = 0;
    v->chunks =
        (struct chunks){0}; /* none can be taken before tensor_open has found this operation's elements */
}

static struct shm_entry *entry_of(const struct tensor_view *v, uint32_t member)
{
    return &v->slot->seat[member].entry[v->sequence & 1];
}

uint64_t tensor_bytes(const struct tensor_op *op)
{
    size_t size = dtype_size(op->dtype);

    if (!op_moves(op->kind))
        return 0;
    if (size == 0 || op->count > TENSOR_BYTES_MAX / size)
        return UINT64_MAX;
    return op->count * size;
}

static bool has_details(const struct tensor_op *op)
{
    return op->prescale != 1 || op->postscale != 1 || (op->row | op->group | op->compression) != 0;
}

void tensor_publish(struct tensor_view *v, const struct tensor_op *op, const void *payload, uint64_t in,
                    uint64_t out)
{
    struct shm_entry *entry = entry_of(v, v->me);
    uint64_t bytes = tensor_bytes(op);

    entry->kind = op->kind;
    entry->dtype = op->dtype;
    entry->op = op->op;
    entry->place = bytes <= SHM_INLINE_MAX ? SHM_INLINE : SHM_SEGMENT;
    if (has_details(op)) {
        entry->place |= SHM_DETAILED;
        entry->details =
            (struct shm_details){op->row, op->prescale, op->postscale, op->group, op->compression};
    }
    entry->root = op->root;
    entry->set = op->set;
    entry->count = op->count;
    entry->in = in;
    entry->out = out;
    if (payload && bytes <= SHM_INLINE_MAX)
        memcpy(entry->payload, payload, bytes);
    atomic_store(&entry->sequence, v->sequence);
}

bool tensor_arrived(struct tensor_view *v)
{
    uint32_t members = v->region->members;

    while (v->seen < members && atomic_load(&entry_of(v, v->seen)->sequence) == v->sequence)
        v->seen++;
    return v->seen == members;
}

uint32_t tensor_missing(const struct tensor_view *v)
{
    return v->seen;
}

/* ---- agreement ----------------------------------------------------------------------------------------- */

/* The part of an entry that is not its payload, read once. */
struct claim_of_member {
    struct tensor_op op;
    uint8_t place;
    uint64_t in, out;
};

static struct claim_of_member read_entry(const struct tensor_view *v, uint32_t member)
{
    const volatile struct shm_entry *entry = entry_of(v, member);

    struct claim_of_member c = {
        .op = {.kind = entry->kind,
               .dtype = entry->dtype,
               .op = entry->op,
               .root = entry->root,
               .set = entry->set,
               .count = entry->count,
               .prescale = 1,
               .postscale = 1},
        .place = entry->place,
        .in = entry->in,
        .out = entry->out,
    };

    if (c.place & SHM_DETAILED) {
        c.place &= (uint8_t)~SHM_DETAILED;
        c.op.row = entry->details.row;
        c.op.prescale = entry->details.prescale;
        c.op.postscale = entry->details.postscale;
        c.op.group = entry->details.group;
        c.op.compression = (uint8_t)entry->details.compression;
    }
    return c;
}

static int mismatch(const struct tensor_view *v, const char *name, uint32_t other,
                    const struct tensor_op *theirs, int property, char *text, size_t size)
{
    char first[SHM_TEXT_MAX / 4], second[SHM_TEXT_MAX / 4];

    op_text(&v->op, property, first, sizeof first);
    op_text(theirs, property, second, sizeof second);
    snprintf(text, size, "tensor \"%s\": rank %u asks for %s, rank %u for %s", name, v->region->first_rank,
             first, v->region->first_rank + other, second);
    return HVD_ERR_MISMATCH;
}

/* The local rank of a broadcast's root; UINT32_MAX when it is on another host. */
static uint32_t local_root(const struct tensor_view *v)
{
    uint32_t local = v->op.root - v->region->first_rank;

    return local < v->region->members ? local : UINT32_MAX;
}

static bool find_elements(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                          const struct tensor_resolver *resolver)
{
    size_t align = dtype_size(v->op.dtype) - 1;

    if (v->place == SHM_INLINE) {
        v->in[member] = entry_of(v, member)->payload;
        v->out[member] = NULL;
        return true;
    }
    if ((c->in | c->out) & align)
        return false;
    v->in[member] = resolver->resolve(resolver->ctx, c->in, v->bytes);
    v->out[member] =
        c->in == c->out ? (void *)v->in[member] : resolver->resolve(resolver->ctx, c->out, v->bytes);
    return v->in[member] && v->out[member];
}

int tensor_open(struct tensor_view *v, const char *name, const struct tensor_resolver *resolver, char *text,
                size_t text_size)
{
    arrived_from_others(v);
    for (uint32_t i = 0; i < v->region->members; i++) {
        struct claim_of_member c = read_entry(v, i);
        if (i == 0) {
            char wrong[SHM_TEXT_MAX / 4];
            v->op = c.op;
            if (op_wrong(&v->op, v->region->size, wrong, sizeof wrong)) {
                snprintf(text, text_size, "tensor \"%s\": rank %u has written what cannot be: %s", name,
                         v->region->first_rank, wrong);
                return HVD_ERR_INVALID;
            }
            v->bytes = tensor_bytes(&v->op);
            v->place = v->bytes <= SHM_INLINE_MAX ? SHM_INLINE : SHM_SEGMENT;
        } else {
            int property = op_difference(&v->op, &c.op);
            if (property >= 0)
                return mismatch(v, name, i, &c.op, property, text, text_size);
        }
        if (c.place != v->place || !find_elements(v, i, &c, resolver)) {
            snprintf(text, text_size, "tensor \"%s\": rank %u's buffer lies outside its shared memory", name,
                     v->region->first_rank + i);
            return HVD_ERR_INVALID;
        }
    }
    if (v->place == SHM_SEGMENT)
        v->chunks = chunks_cut(v->op.count, dtype_size(v->op.dtype), v->region->members);
    return HVD_SUCCESS;
}

/* ---- the work ------------------------------------------------------------------------------------------ */

static void reduce_to(const struct tensor_view *v, void *const *out, size_t outputs, uint32_t divisor,
                      size_t first, size_t count)
{
    struct reduce_job job = {
        .in = v->in,
        .inputs = v->region->members,
        .out = out,
        .outputs = outputs,
        .dtype = v->op.dtype,
        .op = v->op.op,
        .divisor = divisor,
    };
    reduce_range(&job, first, count);
}

void tensor_compute(const struct tensor_view *v, void *out)
{
    if (!out || v->bytes == 0)
        return;
    if (v->op.kind == SHM_BROADCAST)
        memcpy(out, v->in[local_root(v)], v->bytes);
    else
        reduce_to(v, &out, 1, v->region->size, 0, v->op.count);
}

void tensor_reduce_local(const struct tensor_view *v, void *out, size_t first, size_t count)
{
    reduce_to(v, &out, 1, 0, first, count);
}

static void copy_from_root(const struct tensor_view *v, size_t first, size_t count)
{
    size_t size = dtype_size(v->op.dtype);
    uint32_t root = local_root(v);

    for (uint32_t i = 0; i < v->region->members; i++)
        if (v->out[i] != v->in[root])
            memcpy((char *)v->out[i] + first * size, (const char *)v->in[root] + first * size, count * size);
}

static _Atomic uint64_t *done_word(const struct tensor_view *v, uint32_t participant)
{
    return participant < v->region->members ? &v->slot->seat[participant].done : &v->slot->done;
}

/* Chunk number, or UINT32_MAX. Only members move the word on to a new operation: they cannot be late. */
static uint32_t take_chunk(struct tensor_view *v)
{
    uint64_t seen = atomic_load_explicit(&v->slot->claim, memory_order_relaxed);

    for (;;) {
        bool fresh = (uint32_t)(seen >> 32) != v->sequence;
        uint32_t next = fresh ? 0 : (uint32_t)seen;
        if ((fresh && v->me == v->region->members) || next >= v->chunks.number)
            return UINT32_MAX;
        if (atomic_compare_exchange_weak(&v->slot->claim, &seen, shm_tagged(v->sequence, next + 1)))
            return next;
    }
}

bool tensor_work(struct tensor_view *v)
{
    size_t first, count;
    uint32_t chunk = take_chunk(v);

    if (chunk == UINT32_MAX)
        return false;
    chunks_range(&v->chunks, chunk, &first, &count);
    if (v->op.kind == SHM_BROADCAST)
        copy_from_root(v, first, count);
    else
        reduce_to(v, v->out, v->region->members, v->region->size, first, count);
    finished_for_others(v);
    atomic_store(done_word(v, v->me), shm_tagged(v->sequence, ++v->mine));
    if (tensor_done(v))
        doorbell_ring_sleepers(v->region, v->me);
    return true;
}

bool tensor_has_chunk(const struct tensor_view *v)
{
    uint64_t seen = atomic_load_explicit(&v->slot->claim, memory_order_relaxed);

    return (uint32_t)(seen >> 32) != v->sequence ? v->me < v->region->members
                                                 : (uint32_t)seen < v->chunks.number;
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

    for (uint32_t i = 0; i <= v->region->members; i++) {
        uint64_t done = atomic_load(done_word(v, i));
        if ((uint32_t)(done >> 32) == v->sequence)
            total += (uint32_t)done;
    }
    return total >= v->chunks.number;
}
