/* Bounds of a host's clock, from round trips that take any time in either direction. The clock is the
 * test's own, random with a printed seed: HVD_SEED. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "launcher/host/host_clock.h"

#define MS NSEC_PER_MSEC

static uint64_t state;

static uint64_t below(uint64_t n)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % n;
}

/* A host whose clock is `offset` behind ours at the beginning and loses one ns in `drift`. */
struct there {
    int64_t offset, drift;
};

static uint64_t their_time(const struct there *t, uint64_t ours)
{
    return ours - (uint64_t)t->offset - (uint64_t)(t->drift ? (int64_t)ours / t->drift : 0);
}

static uint64_t error_at(const struct host_clock *c, const struct there *t, uint64_t ours)
{
    uint64_t found = host_clock_ours(c, their_time(t, ours));
    return found > ours ? found - ours : ours - found;
}

/* A message goes there, is answered, and comes back. Returns when it is back. */
static uint64_t round_trip(struct host_clock *c, const struct there *t, uint64_t sent, uint64_t out,
                           uint64_t back)
{
    host_clock_saw(c, their_time(t, sent + out), sent, sent + out + back);
    return sent + out + back;
}

/* As on a busy machine: Welcome came 640 ms after Hello, 600 ms of which the session took to begin. */
START_TEST(one_slow_answer_is_not_the_offset)
{
    struct there t = {.offset = 5000 * (int64_t)MS};
    struct host_clock c = {0};
    uint64_t now = round_trip(&c, &t, 100 * MS, 600 * MS, 40 * MS);
    ck_assert_uint_ge(error_at(&c, &t, now), 250 * MS);
    now = round_trip(&c, &t, now, 3 * MS, 4 * MS);
    ck_assert_uint_le(error_at(&c, &t, now), 4 * MS);
    /* Nor does a slow one later take anything back. */
    now = round_trip(&c, &t, now, 2 * MS, 800 * MS);
    ck_assert_uint_le(error_at(&c, &t, now), 4 * MS);
}
END_TEST

/* One was slow on its way there, the other on its way back: what was quick of each counts. */
START_TEST(bounds_of_several_round_trips_meet)
{
    struct there t = {.offset = -7000 * (int64_t)MS};
    struct host_clock c = {0};
    uint64_t now = round_trip(&c, &t, 9000 * MS, 500 * MS, 1 * MS);
    now = round_trip(&c, &t, now, 1 * MS, 500 * MS);
    ck_assert_uint_le(host_clock_error(&c), 2 * MS);
    ck_assert_uint_le(error_at(&c, &t, now), 2 * MS);
}
END_TEST

/* A rank's start is such a pair too: after Spawn was sent, before the launcher heard of it. */
START_TEST(a_rank_starts_after_its_spawn)
{
    struct there t = {.offset = 1000 * (int64_t)MS};
    struct host_clock c = {0};
    uint64_t now = round_trip(&c, &t, 100 * MS, 800 * MS, 0);
    uint64_t spawn = now + 1 * MS, start = spawn + 30 * MS, heard = start + 20 * MS;
    host_clock_saw(&c, their_time(&t, start), spawn, heard);
    uint64_t found = host_clock_ours(&c, their_time(&t, start));
    ck_assert_uint_ge(found, spawn);
    ck_assert_uint_le(found, heard);
}
END_TEST

START_TEST(our_own_clock_is_exact)
{
    struct host_clock c;
    host_clock_same(&c);
    host_clock_saw(&c, 3600000 * MS, 3599990 * MS, 3600900 * MS);
    ck_assert_uint_eq(host_clock_ours(&c, 77), 77);
    ck_assert_uint_eq(host_clock_error(&c), 0);
}
END_TEST

/* Two faults of one host stay in their order, whatever is learned between them. */
START_TEST(a_fixed_clock_learns_nothing)
{
    struct there t = {.offset = 1000 * (int64_t)MS};
    struct host_clock c = {0};
    uint64_t now = round_trip(&c, &t, 100 * MS, 800 * MS, 0), first = now + 1 * MS;
    uint64_t a = host_clock_ours(&c, their_time(&t, first));
    host_clock_fix(&c);
    (void)round_trip(&c, &t, first, 1 * MS, 1 * MS);
    ck_assert_uint_lt(a, host_clock_ours(&c, their_time(&t, first + 10 * MS)));
}
END_TEST

START_TEST(times_that_cannot_be_are_no_news)
{
    struct host_clock c = {0};
    host_clock_saw(&c, 1ULL << 63, 100 * MS, 101 * MS);
    host_clock_saw(&c, (1ULL << 63) + 100 * MS, 100 * MS, 101 * MS);
    ck_assert(!c.known);
    host_clock_saw(&c, 100 * MS, 100 * MS, 101 * MS);
    host_clock_saw(&c, 3ULL << 62, 100 * MS, 101 * MS);
    ck_assert_uint_le(host_clock_error(&c), 1 * MS);
}
END_TEST

START_TEST(a_clock_that_jumped_is_learned_anew)
{
    struct there t = {.offset = 0};
    struct host_clock c = {0};
    uint64_t now = round_trip(&c, &t, 100 * MS, 1 * MS, 1 * MS);
    t.offset = 60000 * (int64_t)MS;
    now = round_trip(&c, &t, now + 60000 * MS, 2 * MS, 3 * MS);
    ck_assert_uint_le(error_at(&c, &t, now), 3 * MS);
}
END_TEST

/* Days of heartbeats, and clocks that drift: never wrong by more than it says, nor by more than half of the
 * best round trip and what the clocks drifted in it and since. */
START_TEST(it_never_errs_by_more_than_it_says)
{
    for (int host = 0; host < 200; host++) {
        struct there t = {.offset = (int64_t)below(2000000 * MS) - (int64_t)(1000000 * MS),
                          .drift = (int64_t)(20000 + below(1000000)) * (below(2) ? 1 : -1)};
        struct host_clock c = {0};
        uint64_t now = 4000000 * MS, best = UINT64_MAX;
        for (int i = 0; i < 500; i++) {
            uint64_t out = below(below(3) ? 1000000 : 900 * MS), back = below(below(3) ? 1000000 : 900 * MS);
            uint64_t began = now;
            now = round_trip(&c, &t, now, out, back) + 900 * MS;
            best += best < UINT64_MAX ? 2 * (now - began) / 10000 : 0;
            uint64_t trip = out + back + 2 * (out + back) / 10000; /* the clocks drift on the way, too */
            best = trip < best ? trip : best;
            uint64_t error = error_at(&c, &t, now - 900 * MS);
            ck_assert_uint_le(error, host_clock_error(&c) + 1);
            ck_assert_uint_le(error, best / 2 + 1);
        }
    }
}
END_TEST

/* The rank that failed first is found: two hosts, two ends that are further apart than 50 ms. */
START_TEST(the_first_cause_stays_the_first)
{
    for (int run = 0; run < 2000; run++) {
        struct there t[2] = {{.offset = (int64_t)below(100000 * MS)},
                             {.offset = -(int64_t)below(100000 * MS)}};
        struct host_clock c[2] = {{0}, {0}};
        uint64_t now = 1000000 * MS;
        for (int h = 0; h < 2; h++) {
            now = round_trip(&c[h], &t[h], now, below(800 * MS), below(100 * MS)); /* Hello and Welcome */
            for (int i = 0; i < 3; i++)
                now = round_trip(&c[h], &t[h], now, below(i == 1 ? 20 * MS : 300 * MS),
                                 below(i == 1 ? 20 * MS : 300 * MS));
        }
        uint64_t first = now + below(1000 * MS), second = first + 50 * MS;
        int early = (int)below(2);
        uint64_t a = host_clock_ours(&c[early], their_time(&t[early], first));
        uint64_t b = host_clock_ours(&c[!early], their_time(&t[!early], second));
        ck_assert_uint_lt(a, b);
    }
}
END_TEST

int main(void)
{
    const char *given = getenv("HVD_SEED");
    state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("HVD_SEED=%llu\n", (unsigned long long)state);
    Suite *s = suite_create("host clock");
    TCase *c = tcase_create("clock");
    tcase_add_test(c, one_slow_answer_is_not_the_offset);
    tcase_add_test(c, bounds_of_several_round_trips_meet);
    tcase_add_test(c, a_rank_starts_after_its_spawn);
    tcase_add_test(c, our_own_clock_is_exact);
    tcase_add_test(c, a_fixed_clock_learns_nothing);
    tcase_add_test(c, times_that_cannot_be_are_no_news);
    tcase_add_test(c, a_clock_that_jumped_is_learned_anew);
    tcase_add_test(c, it_never_errs_by_more_than_it_says);
    tcase_add_test(c, the_first_cause_stays_the_first);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
