#include "collectives/engine/route.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/shm/op.h"

size_t route_width(uint8_t kind, uint32_t size)
{
    return kind == SHM_ALLGATHER ? 2 : kind == SHM_ALLTOALL ? 1 + (size_t)size : 0;
}

static uint64_t room_of(uint8_t kind, uint32_t size, const uint64_t *table, uint32_t rank)
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
        uint64_t room = room_of(kind, size, table, to), total = 0;
        for (uint32_t from = 0; from < size; from++) {
            uint64_t n = route_between(kind, size, table, from, to);
            if (n > most - total || (row > 0 && n % row != 0)) {
                snprintf(text, text_size, "rank %u gives rank %u an impossible %llu elements", rank[from],
                         rank[to], (unsigned long long)n);
                return text;
            }
            total += n;
        }
        if (total > room) {
            snprintf(text, text_size, "rank %u has room for %llu rows, %s %llu", rank[to],
                     (unsigned long long)(row ? room / row : room),
                     kind == SHM_ALLTOALL ? "it is sent" : "the result has",
                     (unsigned long long)(row ? total / row : total));
            return text;
        }
    }
    return NULL;
}

/* ---- the lists ----------------------------------------------------------------------------------------- */

static void add(struct route_copy *list, uint32_t *n, struct route_copy copy)
{
    if (copy.count > 0)
        list[(*n)++] = copy;
}

static const struct route_host *own(const struct route_shape *shape)
{
    return &shape->host[shape->self];
}

static void to_all_members(struct route *r)
{
    add(r->spread, &r->spreads, (struct route_copy){.from = ROUTE_DATA, .to = ROUTE_OUTS, .count = r->data});
}

static void route_allgather(struct route *r, const struct route_shape *s, const uint64_t *table)
{
    for (uint32_t h = 0; h < s->hosts; h++)
        for (uint32_t i = 0; i < s->host[h].ranks; i++) {
            uint64_t n = route_between(SHM_ALLGATHER, s->size, table, s->host[h].first + i, 0);
            if (h == s->self)
                add(r->pack, &r->packs,
                    (struct route_copy){
                        .from = ROUTE_IN, .to = ROUTE_DATA, .from_member = i, .to_at = r->data, .count = n});
            r->part[h] += n;
            r->data += n;
        }
    to_all_members(r);
}

static void route_reducescatter(struct route *r, const struct route_shape *s, const uint64_t *of_rank)
{
    for (uint32_t h = 0; h < s->hosts; h++)
        for (uint32_t i = 0; i < s->host[h].ranks; i++) {
            uint64_t n = of_rank[s->host[h].first + i];
            if (h == s->self)
                add(r->spread, &r->spreads,
                    (struct route_copy){
                        .from = ROUTE_DATA, .to = ROUTE_OUT, .to_member = i, .from_at = r->data, .count = n});
            r->part[h] += n;
            r->data += n;
        }
}

/* What member `from` of this host gives the ranks of host h, which follows `at` elements that it gives to
 * ranks before them. */
static uint64_t pack_for_host(struct route *r, const struct route_shape *s, const uint64_t *table,
                              uint32_t from, uint32_t h, uint64_t at, uint64_t *place_in)
{
    uint64_t total = 0;
    for (uint32_t j = 0; j < s->host[h].ranks; j++) {
        uint64_t n = route_between(SHM_ALLTOALL, s->size, table, own(s)->first + from, s->host[h].first + j);
        if (h == s->self) {
            add(r->pack, &r->packs,
                (struct route_copy){.from = ROUTE_IN,
                                    .to = ROUTE_OUT,
                                    .from_member = from,
                                    .to_member = j,
                                    .from_at = at + total,
                                    .to_at = place_in[j],
                                    .count = n});
            place_in[j] += n;
        }
        total += n;
    }
    if (h != s->self) {
        add(r->pack, &r->packs,
            (struct route_copy){.from = ROUTE_IN,
                                .to = ROUTE_DATA,
                                .from_member = from,
                                .from_at = at,
                                .to_at = r->data,
                                .count = total});
        r->part[h] += total;
        r->data += total;
    }
    return total;
}

/* What comes from host h: its place in `got`, then in each member's output, where place_in[] counts. */
static void spread_from_host(struct route *r, const struct route_shape *s, const uint64_t *table, uint32_t h,
                             uint64_t *place_in)
{
    for (uint32_t i = 0; i < s->host[h].ranks; i++)
        for (uint32_t j = 0; j < own(s)->ranks; j++) {
            uint64_t n = route_between(SHM_ALLTOALL, s->size, table, s->host[h].first + i, own(s)->first + j);
            add(r->spread, &r->spreads,
                (struct route_copy){.from = ROUTE_GOT,
                                    .to = ROUTE_OUT,
                                    .to_member = j,
                                    .from_at = r->got,
                                    .to_at = place_in[j],
                                    .count = n});
            place_in[j] += n;
            r->part_in[h] += n;
            r->got += n;
        }
}

/* By host, then by sender: `at` is where a member's rows for the next host begin. The places in the outputs
 * are counted in the order of senders, so this host's own members come between the hosts before and after. */
static int route_alltoall(struct route *r, const struct route_shape *s, const uint64_t *table)
{
    uint32_t members = own(s)->ranks;
    uint64_t *at = calloc(2 * (size_t)members, sizeof *at), *place_in = at ? at + members : NULL;
    if (!at)
        return -1;
    for (uint32_t h = 0; h < s->hosts; h++) {
        for (uint32_t i = 0; i < members; i++)
            at[i] += pack_for_host(r, s, table, i, h, at[i], place_in);
        if (h != s->self)
            spread_from_host(r, s, table, h, place_in);
    }
    free(at);
    return 0;
}

static int fill(struct route *r, uint8_t kind, const struct route_shape *s, const uint64_t *numbers)
{
    switch (kind) {
    case SHM_ALLGATHER:
        route_allgather(r, s, numbers);
        return 0;
    case SHM_REDUCESCATTER:
        route_reducescatter(r, s, numbers);
        return 0;
    case SHM_ALLTOALL:
        return route_alltoall(r, s, numbers);
    default:
        r->data = *numbers;
        to_all_members(r);
        return 0;
    }
}

struct route *route_new(uint8_t kind, const struct route_shape *s, const uint64_t *numbers, struct err *e)
{
    size_t members = own(s)->ranks;
    struct route *r = calloc(1, sizeof *r);
    if (r) {
        r->part = calloc(s->hosts, sizeof *r->part);
        r->part_in = calloc(s->hosts, sizeof *r->part_in);
        r->pack = calloc(members * (s->hosts + members), sizeof *r->pack);
        r->spread = calloc(members * s->size, sizeof *r->spread);
    }
    if (!r || !r->part || !r->part_in || !r->pack || !r->spread || fill(r, kind, s, numbers) < 0) {
        route_free(r);
        err_set(e, ERR_MEMORY, "no memory for an operation between hosts");
        return NULL;
    }
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
