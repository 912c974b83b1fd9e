#include "collectives/client/link/stream.h"

#include <stdlib.h>
#include <string.h>

/* To and from one other rank. */
struct lane {
    struct link_part part;    /* the part of the result that the other rank makes */
    size_t elements, results; /* bytes of its part, and of mine, whose sending has begun */
    struct link_out out;      /* the piece that is being sent, */
    size_t sent;              /* so far */
    bool sends;
    enum link_said comes; /* the piece that is being read, */
    size_t coming;        /* of so many bytes; 0: none is */
    size_t given, made;   /* bytes of my part, and of its result, that have come */
    uint8_t *slot[STREAM_SLOTS];
};

static struct {
    bool active;
    struct link_operation o;
    struct link_part mine;
    size_t summed; /* bytes of my part */
    struct lane lane[LINK_HOSTS_MAX];
} stream;

static const char no_piece[] = "got a piece from the rank of another host that is not the next one";

static size_t piece_at(size_t at, size_t all)
{
    return all - at < LINK_PIECE_MAX ? all - at : LINK_PIECE_MAX;
}

static uint8_t **slot_at(struct lane *l, size_t at)
{
    return &l->slot[at / LINK_PIECE_MAX % STREAM_SLOTS];
}

/* ---- from the first to the last ------------------------------------------------------------------------ */

static bool make_slots(struct lane *l)
{
    for (uint32_t i = 0; i < STREAM_SLOTS; i++) {
        if (!l->slot[i])
            l->slot[i] = malloc(LINK_PIECE_MAX);
        if (!l->slot[i])
            return false;
    }
    return true;
}

bool stream_begin(const struct link_operation *o)
{
    for (uint32_t r = 0; r < link_ranks(); r++) {
        struct lane *l = &stream.lane[r];
        l->part = link_part_of(o, LINK_STREAM, r, link_ranks());
        l->elements = l->results = l->given = l->made = l->coming = 0;
        l->sends = false;
        link_hold(r, false);
        if (link_is_other(r) && !make_slots(l))
            return false;
    }
    stream.o = *o;
    stream.mine = stream.lane[client.rank].part;
    stream.summed = 0;
    stream.active = true;
    link_expect_pieces(true);
    return true;
}

void stream_end(void)
{
    stream.active = false;
    link_expect_pieces(false);
    for (uint32_t r = 0; r < link_ranks(); r++)
        link_hold(r, false);
}

void stream_free(void)
{
    stream_end();
    for (uint32_t r = 0; r < LINK_HOSTS_MAX; r++)
        for (uint32_t i = 0; i < STREAM_SLOTS; i++) {
            free(stream.lane[r].slot[i]);
            stream.lane[r].slot[i] = NULL;
        }
}

static bool has_sent_all(const struct lane *l)
{
    return !l->sends && l->elements == l->part.bytes && l->results == stream.mine.bytes;
}

bool stream_is_complete(void)
{
    for (uint32_t r = 0; r < link_ranks(); r++)
        if (link_is_other(r) && !(stream_has_all(r) && has_sent_all(&stream.lane[r])))
            return false;
    return stream.summed == stream.mine.bytes;
}

/* ---- pieces in ----------------------------------------------------------------------------------------- */

static size_t next_bytes(const struct lane *l, enum link_said said)
{
    return said == LINK_ELEMENTS_PIECE ? piece_at(l->given, stream.mine.bytes)
                                       : piece_at(l->made, l->part.bytes);
}

/* NULL: all slots are full. */
static uint8_t *next_place(struct lane *l, enum link_said said)
{
    if (said == LINK_RESULT_PIECE)
        return (uint8_t *)stream.o.out + l->part.at + l->made;
    return l->given < stream.summed + STREAM_SLOTS * LINK_PIECE_MAX ? *slot_at(l, l->given) : NULL;
}

bool stream_take(uint32_t rank, const struct link_message *m)
{
    struct lane *l = &stream.lane[rank];
    if (!stream.active) {
        link_hold(rank, true);
        return false;
    }
    if (m->sequence != stream.o.sequence || m->piece != next_bytes(l, m->said)) {
        link_break(no_piece);
        return false;
    }
    uint8_t *place = next_place(l, m->said);
    link_hold(rank, !place);
    if (!place)
        return false;
    l->comes = m->said;
    l->coming = m->piece;
    link_place(rank, place);
    return true;
}

bool stream_count(uint32_t rank)
{
    struct lane *l = &stream.lane[rank];
    if (!stream.active || l->coming == 0 || link_place_left(rank) > 0 || link_state() != LINK_UP)
        return false;
    *(l->comes == LINK_ELEMENTS_PIECE ? &l->given : &l->made) += l->coming;
    l->coming = 0;
    return true;
}

bool stream_has_all(uint32_t rank)
{
    const struct lane *l = &stream.lane[rank];
    return l->given == stream.mine.bytes && l->made == l->part.bytes;
}

bool stream_is_ahead(uint32_t rank)
{
    return stream.lane[rank].given > stream.summed;
}

/* Bytes of my part that all ranks have given. */
static size_t count_given(void)
{
    size_t least = stream.mine.bytes;
    for (uint32_t r = 0; r < link_ranks(); r++)
        if (link_is_other(r) && stream.lane[r].given < least)
            least = stream.lane[r].given;
    return least;
}

static void sum_piece(size_t bytes)
{
    const struct link_operation *o = &stream.o;
    size_t at = stream.mine.at + stream.summed, size = o->bytes / o->op.count;
    const void *in[LINK_HOSTS_MAX];
    for (uint32_t r = 0; r < link_ranks(); r++)
        in[r] = link_is_other(r) ? *slot_at(&stream.lane[r], stream.summed) : (const uint8_t *)o->in + at;
    link_reduce(o, in, link_ranks(), (uint8_t *)o->out + at, bytes / size);
    stream.summed += bytes;
}

bool stream_sum(void)
{
    size_t before = stream.summed, given = stream.active ? count_given() : before;
    while (stream.summed < given)
        sum_piece(piece_at(stream.summed, given));
    return stream.summed > before;
}

/* ---- pieces out ---------------------------------------------------------------------------------------- */

static bool may_begin(uint32_t rank)
{
    const struct lane *l = &stream.lane[rank];
    size_t begun = l->elements + l->results, came = l->given + l->made;
    if (l->coming > 0)
        came += l->coming - link_place_left(rank);
    size_t ahead = link_is_near() ? STREAM_AHEAD_NEAR : STREAM_AHEAD;
    return begun <= came + ahead && (l->elements < l->part.bytes || l->results < stream.summed);
}

/* Results go first. Else ranks whose slots are full could wait for each other in a circle: a piece would wait
 * for the slots of the next rank, whose piece is missed by the one after that. */
static void begin_piece(struct lane *l)
{
    const struct link_operation *o = &stream.o;
    bool is_result = l->results < stream.summed;
    size_t *at = is_result ? &l->results : &l->elements;
    size_t bytes = piece_at(*at, is_result ? stream.mine.bytes : l->part.bytes);
    const uint8_t *from =
        is_result ? (const uint8_t *)o->out + stream.mine.at : (const uint8_t *)o->in + l->part.at;
    link_out_make_piece(&l->out, is_result ? LINK_RESULT_PIECE : LINK_ELEMENTS_PIECE, o->sequence, from + *at,
                        bytes);
    *at += bytes;
    l->sent = 0;
    l->sends = true;
}

bool stream_send(uint32_t rank)
{
    struct lane *l = &stream.lane[rank];
    if (!stream.active || (!l->sends && !may_begin(rank)))
        return false;
    if (!l->sends)
        begin_piece(l);
    size_t before = l->sent;
    l->sends = !link_send(&l->out, rank, &l->sent);
    return l->sent > before;
}

bool stream_send_rest(uint32_t rank)
{
    struct lane *l = &stream.lane[rank];
    if (stream.active && l->sends)
        l->sends = !link_send(&l->out, rank, &l->sent);
    return !stream.active || !l->sends;
}

uint32_t stream_to_send(void)
{
    uint32_t ranks = 0;
    for (uint32_t r = 0; stream.active && r < link_ranks(); r++)
        if (link_is_other(r) && (stream.lane[r].sends || may_begin(r)))
            ranks |= 1u << r;
    return ranks;
}
