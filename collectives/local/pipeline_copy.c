/* A broadcast, allgather or alltoall of private memory in which every member of the host waits: like a
 * streamed allreduce (pipeline.h), but nothing is computed, so the elements pass from one member's memory
 * through its place to the others' memory: two copies, at different members at the same time.
 *
 * The elements that a member gives are cut into pieces; a place holds PASS_PIECES of them. Everybody goes
 * through rounds: in round k it copies, of every other member's piece k, what is for it, as soon as that is
 * given. A member counts the rounds it has finished; so a giver sees when nobody touches a piece's part of
 * its place any more. A member copies its elements for itself when it has nothing else to do. In an alltoall
 * a member gives first what is for the next one, so that not all read from the same one. */
#include "collectives/kernels/copy.h"
#include "collectives/shm/doorbell.h"
#include "collectives/local/pipeline.h"
#include "collectives/local/kind.h"

#define PASS_PIECES 4
#define PIECE_LEAST (PIECE_MOST / 16)
#define PIECE_MOST  (STREAM_PLACE / 16)
_Static_assert(PASS_PIECES *PIECE_MOST <= STREAM_PLACE, "a place has room for the pieces");

/* All in bytes. */
struct way {
    uint64_t in;    /* its begin in the giver's input, */
    uint64_t given; /* in all that the giver gives, */
    uint64_t out;   /* and in the taker's result */
    uint64_t bytes;
};

static struct way way_alltoall(const struct tensor_view *v, uint32_t from, uint32_t to)
{
    uint32_t members = v->team->members; /* all ranks are here */
    const uint64_t *split = v->split + (size_t)from * members;
    struct way w = {.bytes = split[to] * tensor_element_size(v)};
    for (uint32_t j = 0; j < to; j++)
        w.in += split[j] * tensor_element_size(v);
    for (uint32_t j = (from + 1) % members; j != to && j != from; j = (j + 1) % members)
        w.given += split[j] * tensor_element_size(v);
    for (uint32_t i = 0; i < from; i++)
        w.out += v->split[(size_t)i * members + to] * tensor_element_size(v);
    return w;
}

/* The way of the elements from one member to another, or to itself (given has no meaning then). */
static struct way way_of(const struct tensor_view *v, uint32_t from, uint32_t to)
{
    struct way w = {.bytes = v->count[from] * tensor_element_size(v)};
    if (v->op.kind == SHM_ALLTOALL)
        return way_alltoall(v, from, to);
    if (v->op.kind == SHM_BROADCAST && (from != v->op.root || from == to))
        return (struct way){0};
    for (uint32_t i = 0; v->op.kind == SHM_ALLGATHER && i < from; i++)
        w.out += v->count[i] * tensor_element_size(v);
    return w;
}

/* All that a member gives to others. */
static uint64_t given_by(const struct tensor_view *v, uint32_t from)
{
    uint32_t members = v->team->members;
    uint32_t last = v->op.kind == SHM_ALLTOALL ? from + members - 1 : from + 1; /* of those it gives to */
    if (members == 1)
        return 0;
    struct way w = way_of(v, from, last % members);
    return w.given + w.bytes;
}

/* The others read the member's elements where they are: it gives no pieces. */
static bool is_shared(const struct tensor_view *v, uint32_t member)
{
    return op_is_sized(&v->op) && v->out[member] == NULL;
}

static uint32_t count_pieces(const struct tensor_view *v, uint64_t bytes)
{
    return (uint32_t)(bytes / v->stream.piece + (bytes % v->stream.piece != 0));
}

void pass_plan(struct tensor_view *v)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < v->team->members; i++) {
        uint64_t bytes = given_by(v, i);
        most = bytes > most ? bytes : most;
    }
    uint64_t piece = (most / PASS_PIECES + PIECE_LEAST - 1) / PIECE_LEAST * PIECE_LEAST;
    v->stream.piece = piece < PIECE_LEAST ? PIECE_LEAST : piece > PIECE_MOST ? PIECE_MOST : piece;
    v->stream.rounds = count_pieces(v, most);
    v->stream.mine = is_shared(v, v->me) ? 0 : count_pieces(v, given_by(v, v->me));
    v->stream.kept = 0;
    v->stream.to_keep = way_of(v, v->me, v->me).bytes;
}

static char *place_of(const struct tensor_view *v, uint32_t member, uint32_t piece)
{
    return (char *)v->out[member] + piece % PASS_PIECES * v->stream.piece;
}

/* Cuts the way to what of it is in a piece. false: nothing. */
static bool in_piece(const struct tensor_view *v, struct way *w, uint32_t piece)
{
    uint64_t begin = piece * (uint64_t)v->stream.piece, end = begin + v->stream.piece;
    if (w->given >= end || w->given + w->bytes <= begin)
        return false;
    uint64_t skip = w->given < begin ? begin - w->given : 0;
    w->in += skip;
    w->out += skip;
    w->given += skip;
    w->bytes -= skip;
    w->bytes = w->bytes < end - w->given ? w->bytes : end - w->given;
    w->given -= begin;
    return w->bytes > 0;
}

static void give_piece(struct tensor_view *v)
{
    uint32_t members = v->team->members, targets = v->op.kind == SHM_ALLTOALL ? members - 1 : 1;
    char *place = place_of(v, v->me, v->stream.gave);
    ARRIVED_FROM_OTHERS(v);
    for (uint32_t k = 1; k <= targets; k++) {
        struct way w = way_of(v, v->me, (v->me + k) % members);
        if (in_piece(v, &w, v->stream.gave))
            copy_bytes(place + w.given, (const char *)v->own.in + w.in, w.bytes);
    }
    FINISHED_FOR_OTHERS(v);
    atomic_store(&v->member_slot[v->me]->given, shm_tagged(v->sequence, ++v->stream.gave));
    region_ring_sleepers(v->region, UINT32_MAX);
}

/* The member whose piece I look at next in this round. */
static uint32_t current_source(const struct tensor_view *v)
{
    uint32_t members = v->team->members;
    return (v->me + members - 1 - v->stream.taken) % members;
}

/* The way of the current source's elements to me. */
static bool find_wanted(const struct tensor_view *v, struct way *w)
{
    *w = way_of(v, current_source(v), v->me);
    return in_piece(v, w, v->mine);
}

static const char *find_piece(const struct tensor_view *v, const struct way *w)
{
    uint32_t from = current_source(v);

    return is_shared(v, from) ? (const char *)v->in[from] + w->in : place_of(v, from, v->mine) + w->given;
}

/* One member's part of the round; with the last one the round is finished. */
static void take_piece(struct tensor_view *v)
{
    ARRIVED_FROM_OTHERS(v);
    struct way w;
    if (v->own.out && find_wanted(v, &w)) /* a rank that found no memory takes part all the same */
        copy_bytes((char *)v->own.out + w.out, find_piece(v, &w), w.bytes);
    if (++v->stream.taken + 1 < v->team->members)
        return;
    v->stream.taken = 0;
    FINISHED_FOR_OTHERS(v);
    atomic_store(&v->member_slot[v->me]->done, shm_tagged(v->sequence, ++v->mine));
    region_ring_sleepers(v->region, UINT32_MAX);
}

static void keep_own(struct tensor_view *v)
{
    struct way w = way_of(v, v->me, v->me);
    uint64_t left = w.bytes - v->stream.kept, bytes = left < v->stream.piece ? left : v->stream.piece;
    if (v->own.out)
        copy_bytes((char *)v->own.out + w.out + v->stream.kept,
                   (const char *)v->own.in + w.in + v->stream.kept, bytes);
    v->stream.kept += bytes;
}

static bool has_counted(const struct tensor_view *v, const _Atomic uint64_t *word, uint32_t number)
{
    uint64_t seen = atomic_load(word);
    return (uint32_t)(seen >> 32) == v->sequence && (uint32_t)seen >= number;
}

static bool others_have_finished(const struct tensor_view *v, uint32_t rounds)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        if (i != v->me && !has_counted(v, &v->member_slot[i]->done, rounds))
            return false;
    return true;
}

static bool can_give(const struct tensor_view *v)
{
    return v->stream.gave < v->stream.mine &&
           (v->stream.gave < PASS_PIECES || others_have_finished(v, v->stream.gave - PASS_PIECES + 1));
}

static bool can_take(const struct tensor_view *v)
{
    struct way w;
    return v->mine < v->stream.rounds &&
           (!find_wanted(v, &w) || is_shared(v, current_source(v)) ||
            has_counted(v, &v->member_slot[current_source(v)]->given, v->mine + 1));
}

enum action { NONE, GIVE, TAKE, KEEP };

static enum action next_action(const struct tensor_view *v)
{
    if (v->stream.gave <= v->mine + 1 && can_give(v))
        return GIVE;
    if (can_take(v))
        return TAKE;
    if (can_give(v))
        return GIVE;
    return v->stream.kept < v->stream.to_keep ? KEEP : NONE;
}

bool pass_step(struct tensor_view *v)
{
    switch (next_action(v)) {
    case GIVE:
        give_piece(v);
        return true;
    case TAKE:
        take_piece(v);
        return true;
    case KEEP:
        keep_own(v);
        return true;
    case NONE:
        break;
    }
    return false;
}

bool pass_has_step(const struct tensor_view *v)
{
    return next_action(v) != NONE;
}

bool pass_ended(const struct tensor_view *v)
{
    return v->stream.gave == v->stream.mine && v->mine == v->stream.rounds &&
           v->stream.kept == v->stream.to_keep &&
           ((v->stream.gave == 0 && !is_shared(v, v->me)) || others_have_finished(v, v->stream.rounds));
}
