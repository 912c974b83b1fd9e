/* The ranks of memberships: survivors first, in their order, then those that are ready by host. */
#include <check.h>
#include <stdlib.h>

#include "launcher/elastic/roster.h"

static struct roster roster;

/* Workers 0 and 1 on host 0, 2 and 3 on host 1. */
static void begin_roster(void)
{
    ck_assert_int_eq(roster_init(&roster, 8), 0);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(roster_add(&roster, i / 2, i % 2), i);
    ck_assert_int_eq(roster_begin(&roster), 0);
    for (uint32_t i = 0; i < 4; i++)
        roster_enter(&roster, i, 1);
}

static void end_roster(void)
{
    roster_free(&roster);
}

static void expect_ranks(uint32_t number, uint32_t size, const uint32_t *worker)
{
    ck_assert_uint_eq(roster.number, number);
    ck_assert_uint_eq(roster.size, size);
    for (uint32_t i = 0; i < size; i++)
        ck_assert_uint_eq(roster.rank[i], worker[i]);
}

START_TEST(survivors_keep_their_order)
{
    static const uint32_t next[] = {1, 2, 3};
    ck_assert(!roster_is_broken(&roster) && roster_is_settled(&roster));
    roster.worker[0].phase = ROSTER_GONE;
    ck_assert(roster_is_broken(&roster));
    ck_assert_uint_eq(roster_staying(&roster), 3);
    ck_assert_int_eq(roster_advance(&roster, 100), 0);
    expect_ranks(2, 3, next);
    ck_assert(!roster_is_broken(&roster) && !roster_is_settled(&roster));
    ck_assert_uint_eq(roster_rank_of(&roster, 2), 1);
    ck_assert_uint_eq(roster_rank_of(&roster, 0), UINT32_MAX);
    for (uint32_t i = 1; i < 4; i++)
        roster_enter(&roster, i, 2);
    ck_assert(roster_is_settled(&roster));
}
END_TEST

/* Those that are ready come by host, whatever their numbers are; others wait for their turn. */
START_TEST(newcomers_come_behind_them_by_host)
{
    static const uint32_t next[] = {0, 1, 2, 3, 5, 4}, most[] = {0, 1, 2, 3, 5};
    ck_assert_uint_eq(roster_add(&roster, 1, 2), 4);
    ck_assert_uint_eq(roster_add(&roster, 0, 2), 5);
    ck_assert_uint_eq(roster_add(&roster, 0, 3), 6);
    ck_assert_uint_eq(roster_ready(&roster), 0);
    roster_wait(&roster, 4, 0);
    roster_wait(&roster, 5, 0);
    ck_assert_uint_eq(roster_ready(&roster), 2);
    ck_assert_uint_eq(roster_living(&roster), 7);
    if (_i == 0) {
        ck_assert_int_eq(roster_advance(&roster, 100), 0);
        expect_ranks(2, 6, next);
    } else {
        ck_assert_int_eq(roster_advance(&roster, 5), 0);
        expect_ranks(2, 5, most);
        ck_assert_uint_eq(roster_ready(&roster), 1);
    }
}
END_TEST

START_TEST(leavers_are_left_out)
{
    static const uint32_t next[] = {0, 1};
    roster.worker[2].leaves = roster.worker[3].leaves = true;
    ck_assert(roster_has_leavers(&roster) && !roster_is_broken(&roster));
    ck_assert_uint_eq(roster_staying(&roster), 2);
    ck_assert_int_eq(roster_advance(&roster, 100), 0);
    expect_ranks(2, 2, next);
    ck_assert(!roster_has_leavers(&roster));
    roster.worker[2].phase = ROSTER_GONE; /* its end breaks nothing */
    ck_assert(!roster_is_broken(&roster));
}
END_TEST

START_TEST(all_may_wait_without_a_change)
{
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert(!roster_all_wait(&roster));
        roster_wait(&roster, i, 1);
    }
    ck_assert(roster_all_wait(&roster));
    roster_enter(&roster, 2, 1);
    ck_assert(!roster_all_wait(&roster));
}
END_TEST

/* One that waits is late when others have entered: it is stopped in the call. */
START_TEST(late_for_the_membership)
{
    roster.worker[3].phase = ROSTER_GONE;
    roster_wait(&roster, 0, 1);
    ck_assert_int_eq(roster_advance(&roster, 100), 0);
    roster_wait(&roster, 1, 1);
    ck_assert(!roster_is_late(&roster, 0) && !roster_is_late(&roster, 1) && !roster_is_late(&roster, 3));
    ck_assert(roster_is_late(&roster, 2));
    roster_wait(&roster, 2, 1);
    ck_assert(!roster_is_late(&roster, 2));
    roster_enter(&roster, 0, 2);
    roster_enter(&roster, 2, 2);
    ck_assert(roster_is_late(&roster, 1) && !roster_is_late(&roster, 0) && !roster_is_late(&roster, 2));
}
END_TEST

/* A rank has done its work: who never trained is of no use; who waits is, while another one works. */
START_TEST(who_is_of_no_use_at_the_end)
{
    ck_assert_uint_eq(roster_add(&roster, 0, 2), 4);
    roster.worker[0].phase = ROSTER_GONE;
    roster_wait(&roster, 1, 1);
    roster_wait(&roster, 2, 1);
    ck_assert(roster_is_needless(&roster, 4));
    ck_assert(!roster_is_needless(&roster, 0) && !roster_is_needless(&roster, 1));
    roster_wait(&roster, 3, 1);
    ck_assert(roster_is_needless(&roster, 1) && roster_is_needless(&roster, 3));
}
END_TEST

/* Newcomers are members when the membership is named, and have no state until they enter it. */
START_TEST(members_that_have_the_state)
{
    ck_assert_uint_eq(roster_add(&roster, 1, 2), 4);
    roster_wait(&roster, 4, 0);
    ck_assert(roster_has_state(&roster));
    ck_assert_int_eq(roster_advance(&roster, 100), 0);
    for (uint32_t i = 0; i < 4; i++)
        roster.worker[i].phase = ROSTER_GONE;
    ck_assert_uint_eq(roster_staying(&roster), 1);
    ck_assert(!roster_has_state(&roster));
    roster_enter(&roster, 4, 2);
    ck_assert(roster_has_state(&roster));
}
END_TEST

/* All that have the state are to leave: the first of them gives it to a newcomer before it goes. */
START_TEST(a_leaver_gives_the_state_away)
{
    static const uint32_t with_leaver[] = {0, 4}, without[] = {4};
    ck_assert_uint_eq(roster_add(&roster, 2, 0), 4);
    for (uint32_t i = 0; i < 4; i++)
        roster.worker[i].leaves = true;
    ck_assert(!roster_has_state(&roster) && roster_has_holder(&roster));
    roster_wait(&roster, 4, 0);
    ck_assert_int_eq(roster_advance(&roster, 1), 0);
    expect_ranks(2, 2, with_leaver);
    roster_enter(&roster, 0, 2);
    roster_enter(&roster, 4, 2);
    ck_assert_int_eq(roster_advance(&roster, 1), 0);
    expect_ranks(3, 1, without);
    roster.worker[4].phase = ROSTER_GONE;
    ck_assert(!roster_has_holder(&roster));
}
END_TEST

/* A program without libhvd waits for nothing, so its workers end by themselves. */
START_TEST(who_never_called_hvd_init_is_not_needless)
{
    roster.worker[0].phase = roster.worker[2].phase = roster.worker[3].phase = ROSTER_GONE;
    roster.worker[1].trained = false;
    ck_assert(!roster_is_needless(&roster, 1));
    roster_wait(&roster, 1, 0);
    ck_assert(roster_is_needless(&roster, 1));
}
END_TEST

START_TEST(slots_and_room)
{
    ck_assert(roster_slot_is_taken(&roster, 1, 1) && !roster_slot_is_taken(&roster, 1, 2));
    roster.worker[3].phase = ROSTER_GONE;
    ck_assert(!roster_slot_is_taken(&roster, 1, 1));
    for (uint32_t i = 4; i < 8; i++)
        ck_assert_uint_eq(roster_add(&roster, 2, i), i);
    ck_assert_uint_eq(roster_add(&roster, 2, 8), UINT32_MAX);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("roster");
    TCase *c = tcase_create("roster");
    tcase_add_checked_fixture(c, begin_roster, end_roster);
    tcase_add_test(c, survivors_keep_their_order);
    tcase_add_loop_test(c, newcomers_come_behind_them_by_host, 0, 2);
    tcase_add_test(c, leavers_are_left_out);
    tcase_add_test(c, all_may_wait_without_a_change);
    tcase_add_test(c, late_for_the_membership);
    tcase_add_test(c, who_is_of_no_use_at_the_end);
    tcase_add_test(c, members_that_have_the_state);
    tcase_add_test(c, a_leaver_gives_the_state_away);
    tcase_add_test(c, who_never_called_hvd_init_is_not_needless);
    tcase_add_test(c, slots_and_room);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
