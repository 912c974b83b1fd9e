#include "collectives/engine/run/route.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/shm/op.h"

size_t route_width(uint8_t kind, uint32_t size)
{
    return kind == SHM_ALLGATHER ? 2 : kind == SHM_ALLTOALL ? 1 + (size_t)size : 0;
}

static uint64_t capacity_of(uint8_t kind, uint32_t size, const uint64_t *table, uint32_t rank)
{
    return table[rank * route_width(kind, size)];
}

uint64_t route_between(uint8_t kind, uint32_t size, const uint64_t *table, uint32_t from, uint32_t to)
{
    return table[from * route_width(kind, size) + (kind == SHM_ALLTOALL ? 1 + (size_t)to : 1)];
}

const char *route_wrong(uint8_t kind, uint32_t size, const uint32_t *rank, const uint64_t *table,
                        uint64_t row, uint64_t most, char *text, size_t text_size)
{
    for (uint32_t to = 0; to < size; to++) {
        uint64_t capacity = capacity_of(kind, size, table, to), total = 0;
        for (uint32_t from = 0; from < size; from++) {
            uint64_t n = route_between(kind, size, table, from, to);
            if (n > most - total || (row > 0 && n % row != 0)) {
                snprintf(text, text_size, "rank %u gives rank %u an impossible %llu elements", rank[from],
                         rank[to], (unsigned long long)n);
                return text;
            }
            total += n;
        }
        if (total > capacity) {
            snprintf(text, text_size, "rank %u has room for %llu rows, %s %llu", rank[to],
                     (unsigned long long)(row ? capacity / row : capacity),
                     kind == SHM_ALLTOALL ? "it is sent" : "the result has",
                     (unsigned long long)(row ? total / row : total));
            return text;
        }
    }
    return NULL;
}

/* ---- the lists ----------------------------------------------------------------------------------------- */

/* One more copy, or more of the last one. */
static void add_copy(struct route_copy *list, uint32_t *n, struct route_copy copy)
{
    struct route_copy *last = *n > 0 ? &list[*n - 1] : NULL;
    if (copy.count == 0)
        return;
    if (last && last->from == copy.from && last->to == copy.to && last->from_member == copy.from_member &&
        last->to_member == copy.to_member && last->from_at + last->count == copy.from_at &&
        last->to_at + last->count == copy.to_at)
        last->count += copy.count;
    else
        list[(*n)++] = copy;
}

static const struct route_host *own_ranks(const struct route_shape *shape)
{
    return &shape->host[shape->self];
}

/* The i-th rank of host h. */
static uint32_t rank_of(const struct route_shape *s, uint32_t h, uint32_t i)
{
    uint32_t at = s->host[h].first + i;
    return s->order ? s->order[at] : at;
}

static void to_all_members(struct route *r)
{
    add_copy(r->spread, &r->spreads,
             (struct route_copy){.from = ROUTE_DATA, .to = ROUTE_OUTS, .count = r->data});
}

/* place[i]: where the rows of rank i begin in the result. */
static void route_allgather(struct route *r, const struct route_shape *s, const uint64_t *table,
                            uint64_t *place)
{
    for (uint32_t i = 0; i + 1 < s->size; i++)
        place[i + 1] = place[i] + route_between(SHM_ALLGATHER, s->size, table, i, 0);
    r->in_order = true;
    for (uint32_t h = 0; h < s->hosts; h++)
        for (uint32_t i = 0; i < s->host[h].ranks; i++) {
            uint32_t rank = rank_of(s, h, i);
            uint64_t n = route_between(SHM_ALLGATHER, s->size, table, rank, 0);
            if (h == s->self)
                add_copy(
                    r->pack, &r->packs,
                    (struct route_copy){
                        .from = ROUTE_IN, .to = ROUTE_DATA, .from_member = i, .to_at = r->data, .count = n});
            add_copy(r->spread, &r->spreads,
                     (struct route_copy){.from = ROUTE_DATA,
                                         .to = ROUTE_OUTS,
                                         .from_at = r->data,
                                         .to_at = place[rank],
                                         .count = n});
            r->in_order = r->in_order && (n == 0 || place[rank] == r->data);
            r->part[h] += n;
            r->data += n;
        }
}

static void route_reducescatter(struct route *r, const struct route_shape *s, const uint64_t *of_rank,
                                uint64_t *place)
{
    for (uint32_t i = 0; i + 1 < s->size; i++)
        place[i + 1] = place[i] + of_rank[i];
    for (uint32_t h = 0; h < s->hosts; h++)
        for (uint32_t i = 0; i < s->host[h].ranks; i++) {
            uint32_t rank = rank_of(s, h, i);
            uint64_t n = of_rank[rank];
            add_copy(r->pack, &r->packs,
                     (struct route_copy){.from = ROUTE_IN,
                                         .to = ROUTE_DATA,
                                         .from_at = place[rank],
                                         .to_at = r->data,
                                         .count = n});
            if (h == s->self)
                add_copy(
                    r->spread, &r->spreads,
                    (struct route_copy){
                        .from = ROUTE_DATA, .to = ROUTE_OUT, .to_member = i, .from_at = r->data, .count = n});
            r->part[h] += n;
            r->data += n;
        }
}

/* The begin of the rows for each rank in the members' inputs, and of each rank's rows in their outputs. */
struct alltoall_places {
    const struct route_shape *s;
    const uint64_t *table;
    uint64_t *in, *out; /* [members][size] */
};

static void find_places(const struct alltoall_places *p)
{
    uint32_t size = p->s->size;
    for (uint32_t j = 0; j < own_ranks(p->s)->ranks; j++) {
        uint64_t *in = p->in + (size_t)j * size, *out = p->out + (size_t)j * size;
        uint32_t self = rank_of(p->s, p->s->self, j);
        for (uint32_t i = 0; i + 1 < size; i++) {
            in[i + 1] = in[i] + route_between(SHM_ALLTOALL, size, p->table, self, i);
            out[i + 1] = out[i] + route_between(SHM_ALLTOALL, size, p->table, i, self);
        }
    }
}

/* The elements that member `from` of this host gives the ranks of host h. */
static void pack_for_host(struct route *r, const struct alltoall_places *p, uint32_t from, uint32_t h)
{
    const struct route_shape *s = p->s;
    uint32_t giver = rank_of(s, s->self, from);
    for (uint32_t j = 0; j < s->host[h].ranks; j++) {
        uint32_t taker = rank_of(s, h, j);
        struct route_copy copy = {.from = ROUTE_IN,
                                  .from_member = from,
                                  .from_at = p->in[(size_t)from * s->size + taker],
                                  .count = route_between(SHM_ALLTOALL, s->size, p->table, giver, taker)};
        if (h == s->self) {
            copy.to = ROUTE_OUT;
            copy.to_member = j;
            copy.to_at = p->out[(size_t)j * s->size + giver];
        } else {
            copy.to = ROUTE_DATA;
            copy.to_at = r->data;
            r->part[h] += copy.count;
            r->data += copy.count;
        }
        add_copy(r->pack, &r->packs, copy);
    }
}

/* The elements of host h: their place in `got`, then in each member's output. */
static void spread_from_host(struct route *r, const struct alltoall_places *p, uint32_t h)
{
    const struct route_shape *s = p->s;
    for (uint32_t i = 0; i < s->host[h].ranks; i++)
        for (uint32_t j = 0; j < own_ranks(s)->ranks; j++) {
            uint32_t giver = rank_of(s, h, i);
            uint64_t n = route_between(SHM_ALLTOALL, s->size, p->table, giver, rank_of(s, s->self, j));
            add_copy(r->spread, &r->spreads,
                     (struct route_copy){.from = ROUTE_GOT,
                                         .to = ROUTE_OUT,
                                         .to_member = j,
                                         .from_at = r->got,
                                         .to_at = p->out[(size_t)j * s->size + giver],
                                         .count = n});
            r->part_in[h] += n;
            r->got += n;
        }
}

static int route_alltoall(struct route *r, const struct route_shape *s, const uint64_t *table)
{
    size_t numbers = (size_t)own_ranks(s)->ranks * s->size;
    uint64_t *places = calloc(2 * numbers, sizeof *places);
    struct alltoall_places p = {s, table, places, places ? places + numbers : NULL};
    if (!places)
        return -1;
    find_places(&p);
    for (uint32_t h = 0; h < s->hosts; h++) {
        for (uint32_t i = 0; i < own_ranks(s)->ranks; i++)
            pack_for_host(r, &p, i, h);
        if (h != s->self)
            spread_from_host(r, &p, h);
    }
    free(places);
    return 0;
}

static int fill_route(struct route *r, uint8_t kind, const struct route_shape *s, const uint64_t *numbers)
{
    uint64_t *place;
    switch (kind) {
    case SHM_ALLGATHER:
    case SHM_REDUCESCATTER:
        place = calloc(s->size, sizeof *place);
        if (!place)
            return -1;
        (kind == SHM_ALLGATHER ? route_allgather : route_reducescatter)(r, s, numbers, place);
        free(place);
        return 0;
    case SHM_ALLTOALL:
        return route_alltoall(r, s, numbers);
    default:
        r->data = *numbers;
        to_all_members(r);
        return 0;
    }
}

/* With room for the lists of any kind. */
static struct route *make_route(const struct route_shape *s)
{
    size_t members = own_ranks(s)->ranks;
    struct route *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->part = calloc(s->hosts, sizeof *r->part);
    r->part_in = calloc(s->hosts, sizeof *r->part_in);
    r->pack = calloc(members * s->size, sizeof *r->pack);
    r->spread = calloc(members * s->size, sizeof *r->spread);
    if (r->part && r->part_in && r->pack && r->spread)
        return r;
    route_free(r);
    return NULL;
}

struct route *route_new(uint8_t kind, const struct route_shape *s, const uint64_t *numbers, struct err *e)
{
    struct route *r = make_route(s);
    if (r && fill_route(r, kind, s, numbers) == 0)
        return r;
    route_free(r);
    err_set(e, ERR_MEMORY, "no memory for an operation between hosts");
    return NULL;
}

/* ---- elements that are kept apart ---------------------------------------------------------------------- */

uint64_t route_unreduced_at(const struct route_shape *s, const uint64_t *segment, uint32_t index)
{
    const struct route_host *o = own_ranks(s);
    uint64_t each = segment[s->self];
    if (index < o->first)
        return index * each;
    if (index - o->first < o->ranks)
        return (s->size - o->ranks + index - o->first) * each;
    return (index - o->ranks) * each;
}

/* The elements of a member that host h owns: one range, or one of each of its ranks. place[]: their begin. */
static void pack_for_owner(struct route *r, const struct route_shape *s, uint32_t h, struct route_copy copy,
                           const uint64_t *of_rank, const uint64_t *place)
{
    for (uint32_t j = 0; of_rank && j < s->host[h].ranks; j++) {
        copy.from_at = place[rank_of(s, h, j)];
        copy.count = of_rank[rank_of(s, h, j)];
        add_copy(r->pack, &r->packs, copy);
        copy.to_at += copy.count;
    }
    copy.from_at = *place;
    if (!of_rank)
        add_copy(r->pack, &r->packs, copy);
}

struct route *route_unreduced(const struct route_shape *s, const uint64_t *segment, const uint64_t *of_rank,
                              struct err *e)
{
    struct route *r = make_route(s);
    uint64_t *place = calloc(s->size, sizeof *place), at = 0;
    if (!r || !place) {
        route_free(r);
        free(place);
        err_set(e, ERR_MEMORY, "no memory for an operation between hosts");
        return NULL;
    }
    for (uint32_t i = 0; of_rank && i + 1 < s->size; i++)
        place[i + 1] = place[i] + of_rank[i];
    for (uint32_t h = 0; h < s->hosts; h++) {
        bool stays = h == s->self;
        for (uint32_t i = 0; i < own_ranks(s)->ranks; i++) {
            struct route_copy copy = {.from = ROUTE_IN,
                                      .to = stays ? ROUTE_GOT : ROUTE_LEAVES,
                                      .from_member = i,
                                      .to_at = r->data + i * segment[h],
                                      .count = segment[h]};
            if (stays)
                copy.to_at = route_unreduced_at(s, segment, own_ranks(s)->first + i);
            pack_for_owner(r, s, h, copy, of_rank, of_rank ? place : &at);
        }
        at += segment[h];
        if (stays)
            continue;
        r->part[h] = own_ranks(s)->ranks * segment[h];
        r->data += r->part[h];
        r->part_in[h] = s->host[h].ranks * segment[s->self];
    }
    r->got = s->size * segment[s->self];
    free(place);
    return r;
}

void route_free(struct route *r)
{
    if (!r)
        return;
    free(r->part);
    free(r->part_in);
    free(r->pack);
    free(r->spread);
    free(r);
}
