/* Routes of operations over several hosts, executed on arrays: whatever the placement and the sizes are,
 * every rank gets what the operation means, and nobody writes beyond a buffer.
 *
 * needs: algo */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/run/route.h"
#include "collectives/shm/op.h"

#define HOSTS  3
#define RANKS  7
#define ROOM   400
#define MARGIN 7777u

static const struct placement {
    struct route_host host[HOSTS];
    uint32_t order[RANKS];
    bool in_order;
} placement[] = {{{{0, 3}, {3, 1}, {4, 3}}, {0}, true},
                 {{{0, 1}, {1, 1}, {2, 5}}, {0}, true},
                 {{{0, 2}, {2, 4}, {6, 1}}, {0}, true},
                 {{{0, 3}, {3, 2}, {5, 2}}, {0, 3, 6, 1, 4, 2, 5}, false}, /* round the hosts */
                 {{{0, 1}, {1, 4}, {5, 2}}, {6, 0, 1, 4, 5, 2, 3}, false}};
#define PLACEMENTS ((int)(sizeof placement / sizeof *placement))

struct world {
    struct route_shape shape[HOSTS];
    struct route *route[HOSTS];
    uint32_t in[RANKS][ROOM], out[RANKS][ROOM], data[HOSTS][RANKS * ROOM], got[HOSTS][RANKS * ROOM];
};

static struct world w;

static void world_new(const struct placement *p)
{
    memset(&w, 0, sizeof w);
    for (uint32_t h = 0; h < HOSTS; h++)
        w.shape[h] = (struct route_shape){p->host, p->in_order ? NULL : p->order, HOSTS, h, RANKS};
    for (uint32_t i = 0; i < RANKS * ROOM; i++)
        (&w.out[0][0])[i] = MARGIN;
    for (uint32_t i = 0; i < RANKS; i++)
        for (uint32_t k = 0; k < ROOM; k++)
            w.in[i][k] = i * 1000 + k;
}

static void routes(uint8_t kind, const uint64_t *numbers)
{
    for (uint32_t h = 0; h < HOSTS; h++)
        ck_assert_ptr_nonnull(w.route[h] = route_new(kind, &w.shape[h], numbers, NULL));
}

static uint32_t rank_of(uint32_t h, uint32_t member)
{
    uint32_t index = w.shape[h].host[h].first + member;
    return w.shape[h].order ? w.shape[h].order[index] : index;
}

static uint32_t *at(uint32_t h, enum route_buffer buffer, uint32_t member, uint64_t offset)
{
    uint32_t rank = rank_of(h, member);
    return (buffer == ROUTE_IN                               ? w.in[rank]
            : buffer == ROUTE_DATA || buffer == ROUTE_LEAVES ? w.data[h]
            : buffer == ROUTE_GOT                            ? w.got[h]
                                                             : w.out[rank]) +
           offset;
}

static void execute(uint32_t h, const struct route_copy *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct route_copy *c = &list[i];
        uint32_t first = c->to == ROUTE_OUTS ? 0 : c->to_member;
        uint32_t last = c->to == ROUTE_OUTS ? w.shape[h].host[h].ranks - 1 : first;
        ck_assert_uint_gt(c->count, 0);
        for (uint32_t m = first; m <= last; m++)
            memcpy(at(h, c->to, m, c->to_at), at(h, c->from, c->from_member, c->from_at), c->count * 4);
    }
}

static void pack_all(void)
{
    for (uint32_t h = 0; h < HOSTS; h++)
        execute(h, w.route[h]->pack, w.route[h]->packs);
}

static void spread_all(void)
{
    for (uint32_t h = 0; h < HOSTS; h++) {
        execute(h, w.route[h]->spread, w.route[h]->spreads);
        route_free(w.route[h]);
    }
}

static uint64_t before(const uint64_t *part, uint32_t h)
{
    return h == 0 ? 0 : part[h - 1] + before(part, h - 1);
}

/* A rank's output has the wanted elements, and nothing is written behind them. */
static void check_out(uint32_t rank, const uint32_t *want, uint64_t count)
{
    for (uint64_t k = 0; k < ROOM; k++)
        if (w.out[rank][k] != (k < count ? want[k] : MARGIN))
            ck_abort_msg("rank %u has %u at %llu of %llu", rank, w.out[rank][k], (unsigned long long)k,
                         (unsigned long long)count);
}

static uint64_t rows(uint32_t a, uint32_t b)
{
    return (a * 5 + b * 3) % 4 * ((a + b) % 9);
}

START_TEST(allgather_reaches_everybody)
{
    uint64_t table[RANKS][2];
    uint32_t want[RANKS * ROOM], n = 0;
    world_new(&placement[_i]);
    for (uint32_t i = 0; i < RANKS; i++) {
        table[i][0] = ROOM;
        table[i][1] = rows(i, 5);
        for (uint32_t k = 0; k < table[i][1]; k++)
            want[n++] = w.in[i][k];
    }
    routes(SHM_ALLGATHER, &table[0][0]);
    pack_all();
    for (uint32_t h = 0; h < HOSTS; h++) {
        ck_assert_uint_eq(w.route[h]->data, n);
        ck_assert(w.route[h]->in_order == placement[_i].in_order);
        ck_assert(!w.route[h]->in_order || w.route[h]->spreads == 1);
        for (uint32_t from = 0; from < HOSTS; from++) {
            uint64_t offset = before(w.route[h]->part, from);
            memcpy(w.data[h] + offset, w.data[from] + offset, w.route[h]->part[from] * 4);
        }
    }
    spread_all();
    for (uint32_t i = 0; i < RANKS; i++)
        check_out(i, want, n);
}
END_TEST

START_TEST(alltoall_reaches_everybody)
{
    uint64_t table[RANKS][1 + RANKS];
    world_new(&placement[_i]);
    for (uint32_t i = 0; i < RANKS; i++) {
        table[i][0] = ROOM;
        for (uint32_t j = 0; j < RANKS; j++)
            table[i][1 + j] = rows(i, j);
    }
    routes(SHM_ALLTOALL, &table[0][0]);
    pack_all();
    for (uint32_t from = 0; from < HOSTS; from++) {
        ck_assert_uint_eq(w.route[from]->part[from], 0);
        for (uint32_t to = 0; to < HOSTS; to++) {
            const struct route *a = w.route[from], *b = w.route[to];
            ck_assert_uint_eq(a->part[to], b->part_in[from]);
            memcpy(w.got[to] + before(b->part_in, from), w.data[from] + before(a->part, to), a->part[to] * 4);
        }
    }
    /* Between two hosts the data is by sender, then by receiver, on both sides. */
    spread_all();
    for (uint32_t j = 0; j < RANKS; j++) {
        uint32_t want[RANKS * ROOM], n = 0;
        for (uint32_t i = 0; i < RANKS; i++)
            for (uint64_t k = 0; k < rows(i, j); k++)
                want[n++] = w.in[i][before(&table[i][1], j) + k];
        check_out(j, want, n);
    }
}
END_TEST

/* Packs and moves; segment: of each owner. */
static void move_apart(const uint64_t *segment, const uint64_t *of_rank)
{
    for (uint32_t h = 0; h < HOSTS; h++) {
        ck_assert_ptr_nonnull(w.route[h] = route_unreduced(&w.shape[h], segment, of_rank, NULL));
        ck_assert_uint_eq(w.route[h]->got, RANKS * segment[h]);
        ck_assert_uint_eq(w.route[h]->data, before(w.route[h]->part, HOSTS));
    }
    pack_all();
    for (uint32_t from = 0; from < HOSTS; from++)
        for (uint32_t to = 0; to < HOSTS; to++) {
            const struct route *a = w.route[from], *b = w.route[to];
            ck_assert_uint_eq(a->part[to], b->part_in[from]);
            memcpy(w.got[to] + before(b->part_in, from), w.data[from] + before(a->part, to), a->part[to] * 4);
        }
    spread_all();
    for (uint32_t i = 0; i < RANKS; i++)
        check_out(i, NULL, 0);
}

/* Host h has the `count` elements from `first` of every rank, behind `at` others. */
static void check_apart(uint32_t h, const uint64_t *segment, uint64_t at, uint64_t first, uint64_t count)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        uint32_t rank = w.shape[h].order ? w.shape[h].order[i] : i;
        uint32_t *got = w.got[h] + route_unreduced_at(&w.shape[h], segment, i) + at;
        for (uint64_t k = 0; k < count; k++)
            ck_assert_uint_eq(got[k], w.in[rank][first + k]);
    }
}

START_TEST(apart_an_owner_gets_its_elements_of_every_rank)
{
    uint64_t segment[HOSTS] = {0}, cuts[HOSTS] = {0, 37, 100};
    world_new(&placement[_i / HOSTS]);
    for (uint32_t h = 0; h < HOSTS; h++)
        segment[(h + (uint32_t)_i) % HOSTS] = cuts[h];
    move_apart(segment, NULL);
    for (uint32_t h = 0; h < HOSTS; h++)
        check_apart(h, segment, 0, before(segment, h), segment[h]);
}
END_TEST

START_TEST(apart_a_host_gets_its_ranks_parts_of_every_rank)
{
    uint64_t segment[HOSTS] = {0}, part[RANKS];
    world_new(&placement[_i]);
    for (uint32_t i = 0; i < RANKS; i++)
        part[i] = rows(i, 2);
    for (uint32_t h = 0; h < HOSTS; h++)
        for (uint32_t i = 0; i < w.shape[h].host[h].ranks; i++)
            segment[h] += part[rank_of(h, i)];
    move_apart(segment, part);
    for (uint32_t h = 0; h < HOSTS; h++)
        for (uint32_t i = 0, at = 0; i < w.shape[h].host[h].ranks; i++) {
            uint32_t rank = rank_of(h, i);
            check_apart(h, segment, at, before(part, rank), part[rank]);
            at += (uint32_t)part[rank];
        }
}
END_TEST

START_TEST(reducescatter_reaches_its_rank)
{
    uint64_t part[RANKS];
    world_new(&placement[_i]);
    for (uint32_t i = 0; i < RANKS; i++)
        part[i] = rows(i, 2);
    routes(SHM_REDUCESCATTER, part);
    /* The element at k reduces to k. Each host's part of that is right in the end, and nothing else. */
    for (uint32_t h = 0; h < HOSTS; h++) {
        const struct route *r = w.route[h];
        uint64_t offset = before(r->part, h);
        ck_assert_uint_eq(r->data, before(part, RANKS));
        ck_assert(!placement[_i].in_order || r->packs == 1);
        for (uint32_t i = 0; i < r->packs; i++)
            for (uint64_t k = 0; k < r->pack[i].count; k++)
                w.data[h][r->pack[i].to_at + k] = (uint32_t)(r->pack[i].from_at + k);
        for (uint64_t k = 0; k < r->data; k++)
            if (k < offset || k >= offset + r->part[h])
                w.data[h][k] = MARGIN;
    }
    spread_all();
    for (uint32_t i = 0; i < RANKS; i++) {
        uint32_t want[ROOM];
        for (uint64_t k = 0; k < part[i]; k++)
            want[k] = (uint32_t)(before(part, i) + k);
        check_out(i, want, part[i]);
    }
}
END_TEST

START_TEST(tables_are_checked)
{
    static const uint32_t rank[] = {0, 1};
    char text[200];
    uint64_t table[2][2] = {{8, 4}, {8, 4}};
    uint64_t splits[2][3] = {{100, 2, 4}, {4, 4, 2}};
    ck_assert_ptr_null(route_wrong(SHM_ALLGATHER, 2, rank, &table[0][0], 2, 1000, text, sizeof text));
    table[1][0] = 7;
    ck_assert_str_eq(route_wrong(SHM_ALLGATHER, 2, rank, &table[0][0], 2, 1000, text, sizeof text),
                     "rank 1 has room for 3 rows, the result has 4");
    table[0][1] = 3; /* no whole rows */
    ck_assert_ptr_nonnull(route_wrong(SHM_ALLGATHER, 2, rank, &table[0][0], 2, 1000, text, sizeof text));
    table[0][0] = table[1][0] = UINT64_MAX; /* more than there can be, together */
    table[0][1] = table[1][1] = 600;
    ck_assert_ptr_nonnull(route_wrong(SHM_ALLGATHER, 2, rank, &table[0][0], 2, 1000, text, sizeof text));
    table[0][1] = UINT64_MAX - 3;
    ck_assert_ptr_nonnull(route_wrong(SHM_ALLGATHER, 2, rank, &table[0][0], 2, 1000, text, sizeof text));
    ck_assert_str_eq(route_wrong(SHM_ALLTOALL, 2, rank, &splits[0][0], 2, 1000, text, sizeof text),
                     "rank 1 has room for 2 rows, it is sent 3");
    splits[1][0] = 6;
    ck_assert_ptr_null(route_wrong(SHM_ALLTOALL, 2, rank, &splits[0][0], 2, 1000, text, sizeof text));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("route");
    TCase *c = tcase_create("route");
    tcase_add_loop_test(c, allgather_reaches_everybody, 0, PLACEMENTS);
    tcase_add_loop_test(c, alltoall_reaches_everybody, 0, PLACEMENTS);
    tcase_add_loop_test(c, reducescatter_reaches_its_rank, 0, PLACEMENTS);
    tcase_add_loop_test(c, apart_an_owner_gets_its_elements_of_every_rank, 0, HOSTS * PLACEMENTS);
    tcase_add_loop_test(c, apart_a_host_gets_its_ranks_parts_of_every_rank, 0, PLACEMENTS);
    tcase_add_test(c, tables_are_checked);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
