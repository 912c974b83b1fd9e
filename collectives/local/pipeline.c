#include "collectives/local/pipeline.h"

#include <stdlib.h>

#include "collectives/kernels/copy.h"
#include "collectives/shm/doorbell.h"
#include "collectives/local/kind.h"

#define STAGED UINT32_MAX         /* pieces given by a member that has copied the whole */
#define LEFT   (UINT32_MAX - 1)   /* and by one that has left */
#define LONG   (4 * STREAM_PIECE) /* bytes: below, pieces are half as large, so that there are some */

/* ---- members that stream ------------------------------------------------------------------------------- */

static bool is_streamed(const struct tensor_view *v, uint32_t member)
{
    const volatile struct shm_entry *entry = tensor_entry(v, member);
    return (entry->place & SHM_STREAMED) != 0;
}

bool stream_of_all(const struct tensor_view *v)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        if (!is_streamed(v, i))
            return false;
    return true;
}

static bool has_staged(const struct tensor_view *v, uint32_t member)
{
    return atomic_load(&v->member_slot[member]->given) == shm_tagged(v->sequence, STAGED);
}

bool stream_settled(const struct tensor_view *v)
{
    uint32_t streamed = 0, staged = 0;
    for (uint32_t i = 0; i < v->team->members; i++)
        if (is_streamed(v, i)) {
            streamed++;
            staged += has_staged(v, i);
        }
    return streamed == staged || streamed == v->team->members;
}

bool stream_must_stage(const struct tensor_view *v)
{
    return v->seen == v->team->members && is_streamed(v, v->me) && !has_staged(v, v->me) && !stream_of_all(v);
}

void stream_staged(struct tensor_view *v, uint64_t in, uint64_t out)
{
    struct shm_entry *entry = tensor_entry(v, v->me);
    entry->in = in;
    entry->out = out;
    atomic_store(&v->member_slot[v->me]->given, shm_tagged(v->sequence, STAGED));
    region_ring_sleepers(v->region, UINT32_MAX);
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

static size_t piece_elements(const struct tensor_view *v)
{
    size_t size = tensor_element_size(v);
    return (v->op.count * size < LONG ? STREAM_PIECE / 2 : STREAM_PIECE) / size;
}

static uint32_t count_pieces(const struct tensor_view *v)
{
    size_t each = piece_elements(v);
    return (uint32_t)(v->op.count / each + (v->op.count % each != 0));
}

struct piece {
    size_t at, count;   /* of the tensor */
    size_t first, last; /* the part that I reduce */
    size_t place;       /* bytes, where it begins in every member's place */
};

/* The begin of member i's part, by whole lines. */
static size_t part_begins(const struct tensor_view *v, size_t count, uint32_t i)
{
    size_t line = SHM_LINE / tensor_element_size(v);
    return i == v->team->members ? count : count * i / v->team->members / line * line;
}

static struct piece piece_of(const struct tensor_view *v, uint32_t k)
{
    size_t each = piece_elements(v), at = each * k, count = v->op.count - at < each ? v->op.count - at : each;
    return (struct piece){at, count, part_begins(v, count, v->me), part_begins(v, count, v->me + 1),
                          (k & 1) * (size_t)STREAM_PIECE};
}

/* The parts of all others, from one array that begins with the piece to another. */
static void copy_others(const struct tensor_view *v, const struct piece *p, char *to, const char *from)
{
    size_t size = tensor_element_size(v);
    copy_bytes(to, from, p->first * size);
    copy_bytes(to + p->last * size, from + p->last * size, (p->count - p->last) * size);
}

static void give_piece(struct tensor_view *v)
{
    struct piece p = piece_of(v, v->stream.gave);
    copy_others(v, &p, (char *)v->out[v->me] + p.place,
                (const char *)v->own.in + p.at * tensor_element_size(v));
    atomic_store(&v->member_slot[v->me]->given, shm_tagged(v->sequence, ++v->stream.gave));
    region_ring_sleepers(v->region, UINT32_MAX);
}

/* This host's only member has nobody to reduce with. */
static bool only_copies(const struct tensor_view *v)
{
    return v->team->members == 1 && v->op.prescale == 1;
}

static void reduce_for_host(struct tensor_view *v, const struct piece *p)
{
    size_t size = tensor_element_size(v);
    if (only_copies(v))
        copy_bytes((char *)v->stream.host + p->at * size, (const char *)v->own.in + p->at * size,
                   p->count * size);
    else
        kind_reduce_partly(v, v->stream.in, v->stream.host, p->at + p->first, p->last - p->first);
}

/* Pointers to where each array would begin if it held the whole tensor; mine are not in my place. */
static void reduce_piece(struct tensor_view *v)
{
    struct piece p = piece_of(v, v->mine);
    uint32_t members = v->team->members;
    for (uint32_t i = 0; i < members; i++) {
        uintptr_t place = (uintptr_t)v->out[i] + p.place - p.at * tensor_element_size(v);
        v->stream.in[i] = i == v->me ? v->own.in : (const void *)place;
        v->stream.out[i] = i == v->me ? v->own.out : (void *)place;
    }
    if (v->stream.host)
        reduce_for_host(v, &p);
    else
        kind_reduce_from(v, v->stream.in, v->stream.out, p.at + p.first, p.last - p.first);
    FINISHED_FOR_OTHERS(v);
    atomic_store(&v->member_slot[v->me]->done, shm_tagged(v->sequence, ++v->mine));
    region_ring_sleepers(v->region, UINT32_MAX);
}

static void take_piece(struct tensor_view *v)
{
    struct piece p = piece_of(v, v->stream.taken);
    ARRIVED_FROM_OTHERS(v);
    if (!v->stream.host)
        copy_others(v, &p, (char *)v->own.out + p.at * tensor_element_size(v),
                    (const char *)v->out[v->me] + p.place);
    v->stream.taken++;
}

/* Has everybody else counted more than `number` there? */
static bool all_have(const struct tensor_view *v, size_t word, uint32_t number)
{
    for (uint32_t i = 0; i < v->team->members; i++) {
        uint64_t seen = atomic_load((_Atomic uint64_t *)(void *)((char *)v->member_slot[i] + word));
        if (i != v->me && ((uint32_t)(seen >> 32) != v->sequence || (uint32_t)seen <= number))
            return false;
    }
    return true;
}

enum action { NONE, GIVE, REDUCE, TAKE };

static enum action next_action(const struct tensor_view *v)
{
    if (v->stream.gave <= v->stream.taken + 1 && v->stream.gave < count_pieces(v))
        return GIVE;
    if (v->mine == v->stream.taken && v->mine < count_pieces(v))
        return all_have(v, offsetof(struct shm_member_slot, given), v->mine) ? REDUCE : NONE;
    return v->stream.taken < v->mine && all_have(v, offsetof(struct shm_member_slot, done), v->stream.taken)
               ? TAKE
               : NONE;
}

/* ---- several hosts ------------------------------------------------------------------------------------- */

/* A 16-bit float travels as another type, and so does a compressed element (engine/partial.h). */
bool stream_crosses(const struct region *region, const struct tensor_op *op)
{
    return op->kind == SHM_ALLREDUCE && !op_is_adasum(op) && op->compression == HVD_COMPRESSION_NONE &&
           op->dtype != HVD_FLOAT16 && op->dtype != HVD_BFLOAT16 && tensor_bytes(op) >= region->stream_least;
}

static size_t buffer_bytes(const struct tensor_view *v)
{
    return (tensor_bytes(&v->op) + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

static struct stream_final *final_of(const struct tensor_view *v)
{
    return (struct stream_final *)(void *)((char *)v->stream.host + buffer_bytes(v));
}

size_t stream_host_bytes(const struct tensor_view *v)
{
    return buffer_bytes(v) + sizeof(struct stream_final) + count_pieces(v) * sizeof(uint32_t);
}

bool stream_begin_host(struct tensor_view *v, uint64_t address, void *memory)
{
    /* Bytes of each piece that are final, and the number of pieces that are, which ranks cannot change. */
    v->scratch = calloc((size_t)count_pieces(v) + 1, sizeof(uint64_t));
    if (!v->scratch)
        return false;
    v->stream.host = memory;
    atomic_store(&final_of(v)->count, 0);
    v->slot->host_at = address;
    atomic_store(&v->slot->host_made, v->sequence);
    region_ring_sleepers(v->region, UINT32_MAX);
    return true;
}

/* Bytes of piece k, from its beginning in the tensor. */
static uint64_t piece_bytes(const struct tensor_view *v, uint32_t k, uint64_t *begins)
{
    size_t size = tensor_element_size(v);
    uint64_t each = piece_elements(v) * size, all = v->op.count * size;
    *begins = k * each;
    return all - *begins < each ? all - *begins : each;
}

void stream_note_final(struct tensor_view *v, uint64_t offset, uint64_t size)
{
    struct stream_final *final = final_of(v);
    uint64_t *done = v->scratch, each = piece_elements(v) * tensor_element_size(v), begins;
    uint32_t pieces = count_pieces(v);
    bool more = false;
    while (size > 0) {
        uint32_t k = (uint32_t)(offset / each);
        uint64_t bytes = piece_bytes(v, k, &begins), part = begins + bytes - offset;
        part = part < size ? part : size;
        done[k] += part;
        offset += part;
        size -= part;
        if (done[k] < bytes)
            continue;
        final->piece[done[pieces]++] = k;
        more = true;
    }
    if (!more)
        return;
    atomic_store(&final->count, (uint32_t)done[pieces]);
    region_ring_sleepers(v->region, UINT32_MAX);
}

bool stream_has_final(const struct tensor_view *v)
{
    return v->stream.copied < count_pieces(v) && v->stream.copied < atomic_load(&final_of(v)->count);
}

bool stream_take_final(struct tensor_view *v)
{
    uint64_t begins;
    if (!stream_has_final(v))
        return false;
    ARRIVED_FROM_OTHERS(v);
    uint32_t k = final_of(v)->piece[v->stream.copied++];
    if (k >= count_pieces(v))
        return true; /* garbage */
    uint64_t bytes = piece_bytes(v, k, &begins);
    copy_bytes((char *)v->own.out + begins, (const char *)v->stream.host + begins, bytes);
    return true;
}

bool stream_has_host(const struct tensor_view *v, uint64_t *address)
{
    if (atomic_load(&v->slot->host_made) != v->sequence)
        return false;
    *address = v->slot->host_at;
    return true;
}

bool stream_gave_all(const struct tensor_view *v)
{
    return v->mine == count_pieces(v);
}

/* The count of a word that counts operations and pieces. */
static uint32_t count_of(const struct tensor_view *v, _Atomic uint64_t *word)
{
    uint64_t seen = atomic_load(word);
    return (uint32_t)(seen >> 32) == v->sequence ? (uint32_t)seen : 0;
}

static uint32_t packed_by(const struct tensor_view *v, uint32_t member)
{
    return count_of(v, &v->member_slot[member]->done);
}

/* Pieces given and pieces packed: a member that waits for others has given more than they. */
static uint64_t progress_of(const struct tensor_view *v, uint32_t member)
{
    return (uint64_t)count_of(v, &v->member_slot[member]->given) + packed_by(v, member);
}

bool stream_is_behind(const struct tensor_view *v, uint32_t member)
{
    if (packed_by(v, member) >= count_pieces(v))
        return false;
    for (uint32_t i = 0; i < v->team->members; i++)
        if (progress_of(v, i) < progress_of(v, member))
            return false;
    return true;
}

uint32_t stream_packed_pieces(const struct tensor_view *v)
{
    uint32_t least = count_pieces(v);
    for (uint32_t i = 0; i < v->team->members; i++) {
        uint32_t packed = packed_by(v, i);
        least = packed < least ? packed : least;
    }
    ARRIVED_FROM_OTHERS(v);
    return least;
}

uint64_t stream_packed(const struct tensor_view *v)
{
    uint64_t elements = (uint64_t)stream_packed_pieces(v) * piece_elements(v);
    return (elements < v->op.count ? elements : v->op.count) * tensor_element_size(v);
}

void stream_leave(struct tensor_view *v)
{
    FINISHED_FOR_OTHERS(v);
    atomic_store(&v->member_slot[v->me]->given, shm_tagged(v->sequence, LEFT));
}

bool stream_has_left(const struct region *region, uint32_t slot, uint32_t local, uint32_t sequence)
{
    uint64_t given = atomic_load(&region_slot(region, slot)->member_slot[local].given);
    uint32_t a = atomic_load(&region_entry(region, slot, local, 0)->sequence);
    uint32_t b = atomic_load(&region_entry(region, slot, local, 1)->sequence);
    return given == shm_tagged(sequence, LEFT) || ((int32_t)(a - b) > 0 ? a : b) != sequence;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

void stream_plan(struct tensor_view *v)
{
    if (!op_reduces(v->op.kind))
        pass_plan(v);
}

bool stream_step(struct tensor_view *v)
{
    if (!op_reduces(v->op.kind))
        return pass_step(v);
    switch (next_action(v)) {
    case GIVE:
        give_piece(v);
        return true;
    case REDUCE:
        reduce_piece(v);
        return true;
    case TAKE:
        take_piece(v);
        return true;
    case NONE:
        break;
    }
    return false;
}

bool stream_has_step(const struct tensor_view *v)
{
    return op_reduces(v->op.kind) ? next_action(v) != NONE : pass_has_step(v);
}

bool stream_ended(const struct tensor_view *v)
{
    return op_reduces(v->op.kind) ? v->stream.taken == count_pieces(v) : pass_ended(v);
}
