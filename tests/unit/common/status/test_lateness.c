/* How late ranks are: sums over operations whose arrivals are given. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/status/lateness.h"
#include "tests/unit/run_test.h"

#define MS 1000000u

static struct lateness l;
static uint64_t now;

static void set_up(void)
{
    lateness_init(&l, 4);
    now = 1000u * MS;
}

static void tear_down(void)
{
    lateness_free(&l);
}

/* Four ranks that come so many ms after `now`. */
static void add_operation(double first, double second, double third, double fourth)
{
    static const uint32_t rank[] = {3, 1, 0, 2}; /* in any order */
    double after[] = {first, second, third, fourth};
    uint64_t at[4];
    for (int i = 0; i < 4; i++)
        at[i] = now + (uint64_t)(after[rank[i]] * MS);
    lateness_add(&l, "layer", rank, at, 4, 0);
    now += 10u * MS;
}

START_TEST(a_rank_that_is_always_late_is_named)
{
    for (int second = 0; second < 10; second++) {
        for (int i = 0; i < 20; i++) /* late in the first operation of each step */
            add_operation(0, i % 4 ? 0.01 : 0, i % 4 == 0 ? 5 : 0, 0.02);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_uint_eq(l.operations, 200);
    ck_assert_int_eq(lateness_kind_of(&l, 2), LATENESS_ALWAYS);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(i == 2 || lateness_kind_of(&l, i) == LATENESS_NONE);
    ck_assert(lateness_share(&l, 2) > 0.95);
    ck_assert_uint_eq(l.rank[2].late, 50);
    ck_assert_uint_eq(l.rank[2].worst_ns, 5 * MS);
    uint64_t median = lateness_median(&l, 2);
    ck_assert(median >= 4.2 * MS && median <= 5 * MS);
}
END_TEST

START_TEST(one_pause_is_no_habit)
{
    for (int second = 0; second < 20; second++) {
        for (int i = 0; i < 20; i++)
            add_operation(0.1, 0, second == 7 && i == 3 ? 600 : 0.05, 0);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_int_eq(lateness_kind_of(&l, 2), LATENESS_ONCE);
    ck_assert_uint_eq(l.rank[2].worst_ns, 600 * MS);
    ck_assert_str_eq(l.rank[2].worst_name, "layer");
    ck_assert_int_eq(lateness_kind_of(&l, 0), LATENESS_NONE);
}
END_TEST

/* A short job has few periods. */
START_TEST(one_pause_of_a_short_job)
{
    for (int second = 0; second < 3; second++) {
        for (int i = 0; i < 20; i++)
            add_operation(0, 0, second == 1 && i == 3 ? 600 : 0.05, 0);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_int_eq(lateness_kind_of(&l, 2), LATENESS_ONCE);
}
END_TEST

START_TEST(pauses_now_and_then_are_often)
{
    for (int second = 0; second < 20; second++) {
        for (int i = 0; i < 20; i++)
            add_operation(second % 4 == 0 && i == 3 ? 100 : 0, 0.1,
                          second % 4 && i % 4 == second % 4 ? 0.5 : 0.05, 0.3);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_int_eq(lateness_kind_of(&l, 0), LATENESS_OFTEN);
}
END_TEST

START_TEST(even_lateness_accuses_nobody)
{
    for (int second = 0; second < 40; second++) {
        for (int i = 0; i < 20; i++) {
            double after[4] = {0};
            after[(second + i) % 4] = 3;
            add_operation(after[0], after[1], after[2], after[3]);
        }
        lateness_end_period(&l, 1, 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(lateness_kind_of(&l, i), LATENESS_NONE);
        ck_assert(lateness_share(&l, i) > 0.24 && lateness_share(&l, i) < 0.26);
    }
}
END_TEST

/* Nobody notices some microseconds, though one rank has all of them. */
/* An elastic job has room for more ranks than come. */
START_TEST(ranks_that_never_come_share_nothing)
{
    lateness_free(&l);
    lateness_init(&l, 16386);
    for (int second = 0; second < 40; second++) {
        for (int i = 0; i < 20; i++)
            add_operation((second + i) % 2 ? 3 : 0, (second + i) % 2 ? 0 : 3, 0, 0);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_uint_eq(l.size, 4);
    for (int second = 0; second < 40; second++) {
        for (int i = 0; i < 20; i++)
            add_operation(0, 0, (second + i) % 4 == 1 ? 3 : 0, (second + i) % 4 == 3 ? 3 : 0);
        lateness_end_period(&l, 1, 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(lateness_kind_of(&l, i), LATENESS_NONE);
}
END_TEST

/* A host may say anything. */
START_TEST(a_rank_that_comes_twice_is_refused)
{
    const uint32_t rank[] = {0, 1, 0, 1, 0};
    const uint64_t at[] = {1, 2, 3, 4, 5};
    lateness_free(&l);
    lateness_init(&l, 16386);
    lateness_add(&l, "layer", rank, at, 5, 0);
    ck_assert_uint_eq(l.operations, 0);
}
END_TEST

START_TEST(noise_accuses_nobody)
{
    for (int second = 0; second < 10; second++) {
        for (int i = 0; i < 20; i++)
            add_operation(0, 0, 0, 0.015);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_int_eq(lateness_kind_of(&l, 3), LATENESS_NONE);
    ck_assert_uint_eq(l.rank[3].late, 0);
}
END_TEST

START_TEST(clocks_that_are_not_known_well_accuse_nobody)
{
    const uint32_t rank[] = {0, 1};
    for (int i = 0; i < 100; i++) {
        const uint64_t at[] = {now, now + MS};
        lateness_add(&l, "layer", rank, at, 2, 2 * MS);
        lateness_end_period(&l, 1, 0);
    }
    ck_assert_uint_eq(l.operations, 100);
    ck_assert(l.waited_ns == 0);
    ck_assert_uint_eq(l.rank[1].last, 0);
    ck_assert_uint_eq(l.rank[1].late, 0);
}
END_TEST

START_TEST(what_is_recent_fades)
{
    for (int i = 0; i < 100; i++)
        add_operation(0, 0, 5, 0);
    lateness_end_period(&l, 300, 0);
    for (int i = 0; i < 100; i++)
        add_operation(5, 0, 0, 0);
    lateness_end_period(&l, 1, 0);
    ck_assert(lateness_share(&l, 0) > 0.49 && lateness_share(&l, 0) < 0.51);
    ck_assert(lateness_recent_share(&l, 0) > 0.99);
    ck_assert(lateness_recent_share(&l, 2) < 0.01);
}
END_TEST

START_TEST(ranks_that_are_not_there_are_ignored)
{
    const uint32_t rank[] = {0, 4}, one[] = {0};
    const uint64_t at[] = {now, now + MS};
    lateness_add(&l, "layer", rank, at, 2, 0);
    lateness_add(&l, "layer", one, at, 1, 0);
    ck_assert_uint_eq(l.operations, 0);
}
END_TEST

START_TEST(medians_of_all_sizes)
{
    static const double ms[] = {0.03, 0.5, 7, 90, 1000, 33000, 700000};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        lateness_free(&l);
        lateness_init(&l, 4);
        for (int k = 0; k < 9; k++)
            add_operation(0, 0, 0, ms[i]);
        double median = (double)lateness_median(&l, 3) / MS;
        ck_assert_msg(median > 0.84 * ms[i] && median <= ms[i], "%g: %g", ms[i], median);
    }
}
END_TEST

START_TEST(sentences)
{
    Hvd__Lateness of = HVD__LATENESS__INIT;
    char text[600];
    of.word = (char *)"always";
    of.share_ppm = 820000;
    of.recent_share_ppm = 800000;
    of.median_ns = 3100000;
    of.worst_ns = 2100000000;
    of.worst_tensor = (char *)"layer.7";
    of.reason = (char *)"it computes (98 % of a processor)";
    lateness_describe(&of, 3, "h2", text, sizeof text);
    ck_assert_str_eq(
        text, "rank 3 on h2 is always late: 82 % of all waiting for others is for it; by 3.1 ms in the "
              "median, by 2.1 s at \"layer.7\"; it computes (98 % of a processor)");
    of.recent_share_ppm = 100000;
    lateness_describe(&of, 3, "h2", text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "is for it, and less of late; by"));
    of.word = (char *)"once";
    lateness_describe(&of, 3, "h2", text, sizeof text);
    ck_assert_str_eq(text, "rank 3 on h2 was late once by 2.1 s, at \"layer.7\"");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lateness");
    TCase *t = tcase_create("sums");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_rank_that_is_always_late_is_named);
    tcase_add_test(t, one_pause_is_no_habit);
    tcase_add_test(t, one_pause_of_a_short_job);
    tcase_add_test(t, pauses_now_and_then_are_often);
    tcase_add_test(t, even_lateness_accuses_nobody);
    tcase_add_test(t, ranks_that_never_come_share_nothing);
    tcase_add_test(t, a_rank_that_comes_twice_is_refused);
    tcase_add_test(t, noise_accuses_nobody);
    tcase_add_test(t, clocks_that_are_not_known_well_accuse_nobody);
    tcase_add_test(t, what_is_recent_fades);
    tcase_add_test(t, ranks_that_are_not_there_are_ignored);
    tcase_add_test(t, medians_of_all_sizes);
    tcase_add_test(t, sentences);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
