#include "collectives/local/pipeline_copy.h"

#include "collectives/kernels/copy.h"
#include "collectives/shm/doorbell.h"
#include "collectives/local/pipeline.h"
#include "collectives/local/work.h"

#define PASS_PIECES 4
#define PIECE_LEAST (8u << 10)
#define PIECE_MOST  (128u << 10)
_Static_assert(PASS_PIECES *PIECE_MOST <= STREAM_PLACE, "a place has room for the pieces");

/* All in bytes. */
struct way {
    uint64_t in;    /* where it begins in the giver's input, */
    uint64_t given; /* in all that the giver gives, */
    uint64_t out;   /* and in the taker's result */
    uint64_t bytes;
};

static struct way way_alltoall(const struct tensor_view *v, uint32_t from, uint32_t to)
{
    uint32_t members = v->team->members; /* which are all ranks */
    const uint64_t *split = v->split + (size_t)from * members;
    struct way w = {.bytes = split[to] * work_size(v)};

    for (uint32_t j = 0; j < to; j++)
        w.in += split[j] * work_size(v);
    for (uint32_t j = (from + 1) % members; j != to && j != from; j = (j + 1) % members)
        w.given += split[j] * work_size(v);
    for (uint32_t i = 0; i < from; i++)
        w.out += v->split[(size_t)i * members + to] * work_size(v);
    return w;
}

/* What goes from one member to another, or (given has no meaning then) stays with it. */
static struct way way_of(const struct tensor_view *v, uint32_t from, uint32_t to)
{
    struct way w = {.bytes = v->count[from] * work_size(v)};

    if (v->op.kind == SHM_ALLTOALL)
        return way_alltoall(v, from, to);
    if (v->op.kind == SHM_BROADCAST && (from != v->op.root || from == to))
        return (struct way){0};
    for (uint32_t i = 0; v->op.kind == SHM_ALLGATHER && i < from; i++)
        w.out += v->count[i] * work_size(v);
    return w;
}

/* All that a member gives to others. */
static uint64_t given_by(const struct tensor_view *v, uint32_t from)
{
    uint32_t members = v->team->members;
    uint32_t last = v->op.kind == SHM_ALLTOALL ? from + members - 1 : from + 1; /* of those it gives to */
    struct way w;

    if (members == 1)
        return 0;
    w = way_of(v, from, last % members);
    return w.given + w.bytes;
}

static uint32_t pieces(const struct tensor_view *v, uint64_t bytes)
{
    return (uint32_t)(bytes / v->pass.piece + (bytes % v->pass.piece != 0));
}

void pass_plan(struct tensor_view *v)
{
    uint64_t most = 0, piece;

    for (uint32_t i = 0; i < v->team->members; i++) {
        uint64_t bytes = given_by(v, i);
        most = bytes > most ? bytes : most;
    }
    piece = (most / PASS_PIECES + PIECE_LEAST - 1) / PIECE_LEAST * PIECE_LEAST;
    v->pass.piece = piece < PIECE_LEAST ? PIECE_LEAST : piece > PIECE_MOST ? PIECE_MOST : piece;
    v->pass.rounds = pieces(v, most);
    v->pass.mine = pieces(v, given_by(v, v->me));
    v->pass.kept = 0;
    v->pass.to_keep = way_of(v, v->me, v->me).bytes;
}

static char *place_of(const struct tensor_view *v, uint32_t member, uint32_t piece)
{
    return (char *)v->out[member] + piece % PASS_PIECES * v->pass.piece;
}

/* Cuts the way to what of it is in a piece. false: nothing. */
static bool in_piece(const struct tensor_view *v, struct way *w, uint32_t piece)
{
    uint64_t begin = piece * (uint64_t)v->pass.piece, end = begin + v->pass.piece, skip;

    if (w->given >= end || w->given + w->bytes <= begin)
        return false;
    skip = w->given < begin ? begin - w->given : 0;
    w->in += skip;
    w->out += skip;
    w->given += skip;
    w->bytes -= skip;
    w->bytes = w->bytes < end - w->given ? w->bytes : end - w->given;
    w->given -= begin;
    return w->bytes > 0;
}

static void give(struct tensor_view *v)
{
    uint32_t members = v->team->members, targets = v->op.kind == SHM_ALLTOALL ? members - 1 : 1;
    char *place = place_of(v, v->me, v->gave);

    arrived_from_others(v);
    for (uint32_t k = 1; k <= targets; k++) {
        struct way w = way_of(v, v->me, (v->me + k) % members);
        if (in_piece(v, &w, v->gave))
            copy_bytes(place + w.given, (const char *)v->own_in + w.in, w.bytes);
    }
    finished_for_others(v);
    atomic_store(&v->seat[v->me]->given, shm_tagged(v->sequence, ++v->gave));
    doorbell_ring_sleepers(v->region, UINT32_MAX);
}

/* The member whose piece I look at next in this round. */
static uint32_t source(const struct tensor_view *v)
{
    uint32_t members = v->team->members;

    return (v->me + members - 1 - v->taken) % members;
}

/* What I get of it. */
static bool wanted(const struct tensor_view *v, struct way *w)
{
    *w = way_of(v, source(v), v->me);
    return in_piece(v, w, v->mine);
}

/* One member's part of the round; with the last one the round is finished. */
static void take(struct tensor_view *v)
{
    struct way w;

    arrived_from_others(v);
    if (wanted(v, &w))
        copy_bytes((char *)v->own_out + w.out, place_of(v, source(v), v->mine) + w.given, w.bytes);
    if (++v->taken + 1 < v->team->members)
        return;
    v->taken = 0;
    finished_for_others(v);
    atomic_store(&v->seat[v->me]->done, shm_tagged(v->sequence, ++v->mine));
    doorbell_ring_sleepers(v->region, UINT32_MAX);
}

static void keep(struct tensor_view *v)
{
    struct way w = way_of(v, v->me, v->me);
    uint64_t left = w.bytes - v->pass.kept, bytes = left < v->pass.piece ? left : v->pass.piece;

    copy_bytes((char *)v->own_out + w.out + v->pass.kept, (const char *)v->own_in + w.in + v->pass.kept,
               bytes);
    v->pass.kept += bytes;
}

static bool counted(const struct tensor_view *v, const _Atomic uint64_t *word, uint32_t number)
{
    uint64_t seen = atomic_load(word);

    return (uint32_t)(seen >> 32) == v->sequence && (uint32_t)seen >= number;
}

static bool others_have_finished(const struct tensor_view *v, uint32_t rounds)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        if (i != v->me && !counted(v, &v->seat[i]->done, rounds))
            return false;
    return true;
}

static bool can_give(const struct tensor_view *v)
{
    return v->gave < v->pass.mine &&
           (v->gave < PASS_PIECES || others_have_finished(v, v->gave - PASS_PIECES + 1));
}

static bool can_take(const struct tensor_view *v)
{
    struct way w;

    return v->mine < v->pass.rounds &&
           (!wanted(v, &w) || counted(v, &v->seat[source(v)]->given, v->mine + 1));
}

enum action { NONE, GIVE, TAKE, KEEP };

static enum action next(const struct tensor_view *v)
{
    if (v->gave <= v->mine + 1 && can_give(v))
        return GIVE;
    if (can_take(v))
        return TAKE;
    if (can_give(v))
        return GIVE;
    return v->pass.kept < v->pass.to_keep ? KEEP : NONE;
}

bool pass_step(struct tensor_view *v)
{
    switch (next(v)) {
    case GIVE:
        give(v);
        return true;
    case TAKE:
        take(v);
        return true;
    case KEEP:
        keep(v);
        return true;
    case NONE:
        break;
    }
    return false;
}

bool pass_has_step(const struct tensor_view *v)
{
    return next(v) != NONE;
}

bool pass_ended(const struct tensor_view *v)
{
    return v->gave == v->pass.mine && v->mine == v->pass.rounds && v->pass.kept == v->pass.to_keep &&
           (v->gave == 0 || others_have_finished(v, v->pass.rounds));
}
