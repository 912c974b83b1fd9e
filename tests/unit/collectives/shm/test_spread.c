/* Ranks that share processors: when one of them goes to another processor, and comes back. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "collectives/shm/patience.h"
#include "tests/unit/run_test.h"

#define MS UINT64_C(1000000)

#define RANKS(...)                                                                                           \
    ((const uint16_t[]){__VA_ARGS__}), sizeof((const uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t)

/* The first n processors. */
static cpu_set_t allow_first(int n)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (int i = 0; i < n; i++)
        CPU_SET((unsigned)i, &set);
    return set;
}

START_TEST(the_last_rank_of_a_full_processor_goes)
{
    cpu_set_t two = allow_first(2);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 2, 1), 3, &two), 2);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 2, 1), 1, &two), 0);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 2, 1), 2, &two), 0);
    ck_assert_uint_eq(spread_find(RANKS(2, 2, 2, 2), 3, &two), 1);
}
END_TEST

START_TEST(one_rank_more_is_no_reason)
{
    cpu_set_t two = allow_first(2), four = allow_first(4);
    ck_assert_uint_eq(spread_find(RANKS(1, 2, 1), 2, &two), 0);
    ck_assert_uint_eq(spread_find(RANKS(1, 2, 1, 2), 3, &two), 0);
    ck_assert_uint_eq(spread_find(RANKS(1, 2, 3, 4, 1), 4, &four), 0);
    ck_assert_uint_eq(spread_find(RANKS(1, 2, 3, 1, 1), 4, &four), 4);
}
END_TEST

START_TEST(only_processors_that_are_allowed_count)
{
    cpu_set_t one = allow_first(1), two = allow_first(2);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 1), 2, &one), 0);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 1), 2, &two), 2);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 3, 1), 3, &two), 2);
}
END_TEST

START_TEST(ranks_that_leave_together_part)
{
    cpu_set_t four = allow_first(4), three = allow_first(3);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 2, 2), 1, &four), 3);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 2, 2), 3, &four), 4);
    ck_assert_uint_eq(spread_find(RANKS(2, 2, 1, 1), 1, &four), 3);
    ck_assert_uint_eq(spread_find(RANKS(2, 2, 1, 1), 3, &four), 4);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 2, 2), 3, &three), 3); /* there is one only */
}
END_TEST

START_TEST(many_ranks_check_rarely)
{
    struct spread s = {0};
    ck_assert_uint_eq(spread_advice(&s, 1000 * MS, false, 4, 1, 0), 0);
    ck_assert(spread_is_due(&s, 1001 * MS, false));
    ck_assert_uint_eq(spread_advice(&s, 1001 * MS, false, 1024, 1, 0), 0);
    ck_assert(!spread_is_due(&s, 1064 * MS, false));
    ck_assert(spread_is_due(&s, 1066 * MS, false));
}
END_TEST

/* The words are those of other processes. */
START_TEST(unknown_and_wrong_processors_keep_all_in_place)
{
    cpu_set_t two = allow_first(2);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, 0, 1), 3, &two), SPREAD_UNKNOWN);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, UINT16_MAX, 1), 3, &two), SPREAD_UNKNOWN);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, CPU_SETSIZE + 1, 1), 3, &two), SPREAD_UNKNOWN);
    ck_assert_uint_eq(spread_find(RANKS(0, 0, 0, 0), 3, &two), SPREAD_UNKNOWN);
    ck_assert_uint_eq(spread_find(RANKS(1, 1, CPU_SETSIZE, 1), 3, &two), 2);
}
END_TEST

/* As long as the kernel takes the rank back at once. Returns how often it moved. */
static uint32_t move_until(struct spread *s, uint64_t *now, uint64_t until)
{
    uint32_t moves = 0;

    for (; *now < until; *now += MS / 10)
        if (spread_is_due(s, *now, false))
            moves += spread_advice(s, *now, false, 4, 1, 2) == 2;
    return moves;
}

START_TEST(a_rank_that_is_taken_back_moves_ever_more_rarely)
{
    struct spread s = {0};
    uint64_t now = 1000 * MS;
    ck_assert_uint_ge(move_until(&s, &now, 1010 * MS), 3);
    move_until(&s, &now, 2000 * MS);
    ck_assert_uint_le(move_until(&s, &now, 3000 * MS), 16);
}
END_TEST

/* Checks that find nothing, each when it is due. */
static void stay_calm(struct spread *s, uint64_t *now, uint64_t until)
{
    for (; *now < until; *now += MS / 10)
        if (spread_is_due(s, *now, false))
            ck_assert_uint_eq(spread_advice(s, *now, false, 4, 2, 0), 0);
}

START_TEST(a_quiet_second_makes_it_quick_again)
{
    struct spread s = {0};
    uint64_t now = 1000 * MS;
    move_until(&s, &now, 2000 * MS);
    stay_calm(&s, &now, 3000 * MS);
    ck_assert_uint_ge(move_until(&s, &now, 3010 * MS), 3);
}
END_TEST

START_TEST(nothing_known_is_no_calm)
{
    struct spread s = {0};
    uint64_t now = 1000 * MS;
    ck_assert_uint_eq(spread_advice(&s, now, false, 4, 1, 2), 2);
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(spread_advice(&s, now += MS, false, 4, 2, SPREAD_UNKNOWN), 0);
    ck_assert_uint_eq(spread_advice(&s, now, true, 4, 2, SPREAD_UNKNOWN), 1);
}
END_TEST

START_TEST(a_rank_that_meets_a_stranger_goes_back_and_stays)
{
    struct spread s = {0};
    uint64_t now = 1000 * MS;
    ck_assert_uint_eq(spread_advice(&s, now, false, 4, 1, 2), 2);
    ck_assert(!spread_is_due(&s, now + 1, false));
    ck_assert(spread_is_due(&s, now + 1, true));
    ck_assert_uint_eq(spread_advice(&s, now + 1, true, 4, 2, 0), 1);
    ck_assert(!spread_is_due(&s, now + 1, true));
    ck_assert(!spread_is_due(&s, now + 900 * MS, false));
    ck_assert(spread_is_due(&s, now + 1100 * MS, false));
}
END_TEST

START_TEST(strangers_everywhere_keep_no_rank_from_moving)
{
    struct spread s = {0};
    ck_assert_uint_eq(spread_advice(&s, 1000 * MS, true, 4, 1, 2), 2);
    ck_assert(!spread_is_due(&s, 1000 * MS + 1, true));
    ck_assert_uint_eq(spread_advice(&s, 1002 * MS, true, 4, 2, 0), 0);
}
END_TEST

START_TEST(a_stranger_who_comes_later_drives_nobody_back)
{
    struct spread s = {0};
    uint64_t now = 1000 * MS;
    ck_assert_uint_eq(spread_advice(&s, now, false, 4, 1, 2), 2);
    stay_calm(&s, &now, 1100 * MS);
    ck_assert_uint_eq(spread_advice(&s, now, true, 4, 2, 0), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spread");
    TCase *tc = tcase_create("spread");
    tcase_add_test(tc, the_last_rank_of_a_full_processor_goes);
    tcase_add_test(tc, one_rank_more_is_no_reason);
    tcase_add_test(tc, only_processors_that_are_allowed_count);
    tcase_add_test(tc, ranks_that_leave_together_part);
    tcase_add_test(tc, many_ranks_check_rarely);
    tcase_add_test(tc, unknown_and_wrong_processors_keep_all_in_place);
    tcase_add_test(tc, a_rank_that_is_taken_back_moves_ever_more_rarely);
    tcase_add_test(tc, a_quiet_second_makes_it_quick_again);
    tcase_add_test(tc, nothing_known_is_no_calm);
    tcase_add_test(tc, a_rank_that_meets_a_stranger_goes_back_and_stays);
    tcase_add_test(tc, strangers_everywhere_keep_no_rank_from_moving);
    tcase_add_test(tc, a_stranger_who_comes_later_drives_nobody_back);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
