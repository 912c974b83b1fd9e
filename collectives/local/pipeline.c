#include "collectives/local/pipeline.h"

#include <stdlib.h>

#include "collectives/kernels/copy.h"
#include "collectives/shm/doorbell.h"
#include "collectives/local/kind.h"

#define STAGED UINT32_MAX /* pieces given by who has copied the whole */
#define LONG   (4u << 20) /* bytes: below, pieces are half as large, so that there are some */

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
    kind_reduce_from(v, v->stream.in, v->stream.out, p.at + p.first, p.last - p.first);
    FINISHED_FOR_OTHERS(v);
    atomic_store(&v->member_slot[v->me]->done, shm_tagged(v->sequence, ++v->mine));
    region_ring_sleepers(v->region, UINT32_MAX);
}

static void take_piece(struct tensor_view *v)
{
    struct piece p = piece_of(v, v->stream.taken);
    ARRIVED_FROM_OTHERS(v);
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
