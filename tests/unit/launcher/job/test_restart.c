/* Restarts: the ends that cause one, the wait before it, and the hosts that it leaves out. */
#include <check.h>
#include <string.h>

#include "launcher/job/restart_policy.h"

#define SECOND UINT64_C(1000000000)

START_TEST(what_is_worth_a_restart)
{
    static const struct {
        const char *what;
        struct job_end end;
        uint32_t epoch, max;
        bool worth;
    } cases[] = {
        {"a good end", {.ran = true}, 0, 3, false},
        {"a failed rank", {.failed = true, .ran = true, .exit_status = 1}, 0, 3, true},
        {"without --max-restarts", {.failed = true, .ran = true, .exit_status = 1}, 0, 0, false},
        {"the last but one epoch", {.failed = true, .ran = true, .exit_status = 1}, 2, 3, true},
        {"the last epoch", {.failed = true, .ran = true, .exit_status = 1}, 3, 3, false},
        {"it never ran", {.failed = true, .exit_status = 127}, 0, 3, false},
        {"it ran in an earlier epoch", {.failed = true, .exit_status = 125}, 1, 3, true},
        {"a signal", {.failed = true, .ran = true, .final = true, .exit_status = 143}, 0, 3, false},
        {"a signal while a restart connects",
         {.failed = true, .final = true, .exit_status = 130},
         1,
         3,
         false},
        {"a rank failed, then the signal",
         {.failed = true, .ran = true, .final = true, .exit_status = 3},
         0,
         3,
         false},
    };
    ck_assert_msg(restart_is_worth(&cases[_i].end, cases[_i].epoch, cases[_i].max) == cases[_i].worth, "%s",
                  cases[_i].what);
}
END_TEST

START_TEST(the_wait_doubles_up_to_half_a_minute)
{
    static const uint32_t expected[] = {1, 2, 4, 8, 16, 30, 30, 30};
    uint32_t delay = 0;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        delay = restart_delay(delay, 59 * SECOND);
        ck_assert_uint_eq(delay, expected[i]);
    }
    ck_assert_uint_eq(restart_delay(delay, 60 * SECOND), 1);
    ck_assert_uint_eq(restart_delay(1, 0), 2);
}
END_TEST

/* Hosts are given by their slots, 0 for auto; who is lost by digits, 0 for nobody. */
START_TEST(which_hosts_are_left_out)
{
    static const struct {
        uint32_t slots[4], count, np;
        const char *lost, *after;
    } cases[] = {
        {{2, 2}, 2, 4, "00", "00"},      {{2, 2, 2}, 3, 4, "010", "010"}, /* a spare takes over */
        {{2, 2, 1}, 3, 4, "010", "000"},                                  /* too small a spare: tried again */
        {{4}, 1, 4, "1", "0"},                                            /* the only host */
        {{4, 4, 4}, 3, 4, "120", "120"},                                  /* one lost after the other */
        {{4, 4, 4}, 3, 4, "123", "023"}, /* none left: the one lost longest ago */
        {{4, 4, 4}, 3, 4, "423", "403"}, /* and so on in turn */
        {{2, 2, 2}, 3, 4, "210", "200"}, /* only as many as are needed */
        {{2, 2, 2}, 3, 4, "110", "000"}, /* those lost at the same time together */
        {{0, 0}, 2, 1, "10", "10"},      /* auto: one slot is sure, */
        {{0, 0}, 2, 2, "10", "00"},      /* and not more */
        {{1, 1}, 2, 3, "10", "00"},      /* never enough: it ends */
    };
    struct host_spec host[4];
    struct host_list list = {host, cases[_i].count};
    uint32_t lost[4];
    size_t left_out = 0;
    memset(host, 0, sizeof host);
    for (size_t i = 0; i < list.count; i++) {
        host[i].slots = cases[_i].slots[i];
        lost[i] = (uint32_t)(cases[_i].lost[i] - '0');
        left_out += cases[_i].after[i] != '0';
    }
    ck_assert_uint_eq(restart_choose(&list, lost, &(struct plan_want){.np = cases[_i].np}), left_out);
    for (size_t i = 0; i < list.count; i++)
        ck_assert_uint_eq(lost[i], (uint32_t)(cases[_i].after[i] - '0'));
}
END_TEST

START_TEST(programs_need_their_hosts_again)
{
    struct host_spec host[2] = {{.slots = 4}, {.slots = 4}};
    uint32_t lost[2] = {1, 0};
    struct plan_part part[1] = {{.ranks = 1}};
    struct plan_want want = {.np = 1, .part = part, .parts = 1};
    ck_assert_uint_eq(restart_choose(&(struct host_list){host, 2}, lost, &want), 0);
    ck_assert_uint_eq(lost[0], 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restart");
    TCase *c = tcase_create("restart");
    tcase_add_loop_test(c, what_is_worth_a_restart, 0, 10);
    tcase_add_test(c, the_wait_doubles_up_to_half_a_minute);
    tcase_add_loop_test(c, which_hosts_are_left_out, 0, 12);
    tcase_add_test(c, programs_need_their_hosts_again);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
