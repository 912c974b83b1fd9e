/* How long a job waits for its hosts to end, on a clock of the test's own. */
#include <check.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "launcher/job/end_limit.h"

#define START  (1000 * NSEC_PER_SEC)
#define SECOND NSEC_PER_SEC

/* Hosts end one after the other, one each `every` ms; the first `stuck` never do. Returns after how many
 * seconds the limit was over, 0 when all had ended before. */
static uint64_t run(uint64_t grace_ms, uint32_t hosts, uint32_t stuck, uint64_t every, bool well)
{
    struct end_limit l;
    uint64_t now = START, left;
    uint32_t ended = 0;

    end_limit_begin(&l, now, grace_ms, hosts, well);
    while (ended < hosts && (left = end_limit_left(&l, now)) > 0) {
        bool next = ended < hosts - stuck && left > every;
        now += (next ? every : left) * NSEC_PER_MSEC;
        if (!next)
            continue;
        ended++;
        end_limit_progress(&l, now);
    }
    return ended < hosts ? (now - START) / NSEC_PER_SEC : 0;
}

START_TEST(one_that_hangs_is_given_up)
{
    ck_assert_uint_eq(run(0, 1, 1, 0, false), 8);
    ck_assert_uint_eq(run(5000, 1, 1, 0, false), 13);
    ck_assert_uint_eq(run(0, 2, 2, 0, false), 8);
}
END_TEST

START_TEST(as_long_as_hosts_end_nobody_is_given_up)
{
    ck_assert_uint_eq(run(0, 2, 0, 7000, false), 0);
    ck_assert_uint_eq(run(0, 256, 0, 7000, false), 0);
    ck_assert_uint_eq(run(0, 1000, 0, 20000, true), 0);
}
END_TEST

/* The last one gets no more than the first did. */
START_TEST(the_rest_is_given_up_after_the_last_progress)
{
    ck_assert_uint_eq(run(0, 2, 1, 6000, false), 6 + 8);
    ck_assert_uint_eq(run(0, 3, 1, 6000, false), 12 + 8);
}
END_TEST

START_TEST(many_hosts_get_more_time_for_the_first)
{
    ck_assert_uint_eq(run(0, 256, 0, 15000, false), 0);
    ck_assert_uint_eq(run(0, 256, 256, 0, false), 20);
    ck_assert_uint_gt(run(0, 2, 0, 15000, false), 0);
}
END_TEST

START_TEST(ranks_that_ended_well_can_wait)
{
    ck_assert_uint_eq(run(0, 1, 0, 30000, true), 0);
    ck_assert_uint_eq(run(0, 1, 1, 0, true), 32);
}
END_TEST

/* Hosts that end early take nothing from the grace of the others' workers. */
START_TEST(progress_never_shortens)
{
    struct end_limit l;
    end_limit_begin(&l, START, 60000, 2, false);
    end_limit_progress(&l, START + 1 * SECOND);
    ck_assert_uint_gt(end_limit_left(&l, START + 68 * SECOND), 0);
    ck_assert_uint_eq(end_limit_left(&l, START + 69 * SECOND), 0);
}
END_TEST

/* A timer of whole milliseconds never fires too early for good. */
START_TEST(what_is_left_is_rounded_up)
{
    struct end_limit l;
    end_limit_begin(&l, START, 0, 0, false);
    ck_assert_uint_eq(end_limit_left(&l, START + 8 * SECOND - 1), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("end limit");
    TCase *c = tcase_create("limit");
    tcase_add_test(c, one_that_hangs_is_given_up);
    tcase_add_test(c, as_long_as_hosts_end_nobody_is_given_up);
    tcase_add_test(c, the_rest_is_given_up_after_the_last_progress);
    tcase_add_test(c, many_hosts_get_more_time_for_the_first);
    tcase_add_test(c, ranks_that_ended_well_can_wait);
    tcase_add_test(c, progress_never_shortens);
    tcase_add_test(c, what_is_left_is_rounded_up);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
