/* Reading how long a limit of processor time has held processes back. */
#include <unistd.h>

#include "agent/inspect/usage.h"

#include <check.h>

#include "tests/unit/run_test.h"

START_TEST(both_versions_of_the_file)
{
    ck_assert_uint_eq(throttle_parse("usage_usec 7\nnr_periods 4\nnr_throttled 3\nthrottled_usec 91500\n"),
                      91);
    ck_assert_uint_eq(throttle_parse("nr_periods 4\nnr_throttled 3\nthrottled_time 91500000\n"), 91);
    ck_assert_uint_eq(throttle_parse("usage_usec 7\n"), 0);
    ck_assert_uint_eq(throttle_parse("throttled_usec many\n"), 0);
    ck_assert_uint_eq(throttle_parse(""), 0);
}
END_TEST

START_TEST(weights_of_both_versions)
{
    ck_assert_uint_eq(weight_parse("100\n", 100), 100);
    ck_assert_uint_eq(weight_parse("10000\n", 100), 100);
    ck_assert_uint_eq(weight_parse("39\n", 100), 39);
    ck_assert_uint_eq(weight_parse("0\n", 100), 1);
    ck_assert_uint_eq(weight_parse("2\n", 1024), 1);
    ck_assert_uint_eq(weight_parse("512\n", 1024), 50);
    ck_assert_uint_eq(weight_parse("", 100), 100);
    ck_assert_uint_eq(weight_parse("max", 100), 100);
}
END_TEST

START_TEST(a_process_that_has_gone_was_not_held_back)
{
    ck_assert_uint_eq(throttled_ms(1 << 30), 0);
    ck_assert_uint_eq(cgroup_weight(1 << 30), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("throttle");
    TCase *c = tcase_create("throttle");
    tcase_add_test(c, both_versions_of_the_file);
    tcase_add_test(c, weights_of_both_versions);
    tcase_add_test(c, a_process_that_has_gone_was_not_held_back);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
