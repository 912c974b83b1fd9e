/* When a worker gives up an engine that does not answer. */
#include <check.h>
#include <stdlib.h>

#include "collectives/client/overdue.h"

/* How many slices are waited while the beat moves during the first `moving`. */
static unsigned waited(unsigned moving, bool blind, bool failed)
{
    struct overdue o = {.beat = UINT32_MAX};
    uint32_t beat = UINT32_MAX;
    unsigned slices = 1;

    while (!overdue_after(&o, beat += slices <= moving, blind, failed))
        slices++;
    return slices;
}

START_TEST(a_beat_that_stands_still_is_given_up)
{
    ck_assert_uint_eq(waited(0, false, false), OVERDUE_QUIET);
    ck_assert_uint_eq(waited(1, false, false), OVERDUE_QUIET + 1);
    ck_assert_uint_eq(waited(100, false, false), OVERDUE_QUIET + 100);
}
END_TEST

START_TEST(a_beat_that_moves_is_waited_for)
{
    ck_assert_uint_eq(waited(1000, false, false), OVERDUE_MOST);
}
END_TEST

START_TEST(what_has_no_beat_gets_the_whole_time)
{
    ck_assert_uint_eq(waited(0, true, false), OVERDUE_MOST);
}
END_TEST

START_TEST(a_failed_job_ends_it)
{
    ck_assert_uint_eq(waited(1000, true, true), OVERDUE_QUIET);
    ck_assert_uint_eq(waited(1000, false, true), OVERDUE_QUIET);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("overdue");
    TCase *tc = tcase_create("overdue");
    SRunner *runner;
    int failed;

    tcase_add_test(tc, a_beat_that_stands_still_is_given_up);
    tcase_add_test(tc, a_beat_that_moves_is_waited_for);
    tcase_add_test(tc, what_has_no_beat_gets_the_whole_time);
    tcase_add_test(tc, a_failed_job_ends_it);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
