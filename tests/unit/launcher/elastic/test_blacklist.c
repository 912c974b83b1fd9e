/* Hosts that have failed: how long they get no new ranks. */
#include <check.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "launcher/elastic/blacklist.h"

START_TEST(without_a_range_for_ever)
{
    struct blacklist b = {0};
    ck_assert(!blacklist_has(&b, "a", 5));
    ck_assert_int_eq(blacklist_add(&b, "a", 5, 0.5), 0);
    ck_assert(blacklist_has(&b, "a", UINT64_MAX - 1));
    ck_assert(!blacklist_has(&b, "b", 5));
    ck_assert_uint_eq(blacklist_next(&b, 5), UINT64_MAX);
    blacklist_free(&b);
}
END_TEST

/* low * 2^n and a part of low, at most high. */
START_TEST(longer_after_each_failure)
{
    struct blacklist b = {.low = 10 * NSEC_PER_SEC, .high = 35 * NSEC_PER_SEC};
    static const uint64_t wait[] = {15, 25, 35, 35};
    uint64_t now = NSEC_PER_SEC;
    for (size_t i = 0; i < sizeof wait / sizeof *wait; i++) {
        ck_assert_int_eq(blacklist_add(&b, "a", now, 0.5), 0);
        uint64_t until = now + wait[i] * NSEC_PER_SEC;
        ck_assert(blacklist_has(&b, "a", until - 1));
        ck_assert_uint_eq(blacklist_next(&b, now), until);
        ck_assert(!blacklist_has(&b, "a", until));
        now = until;
    }
    for (int i = 0; i < 100; i++) /* no number overflows */
        ck_assert_int_eq(blacklist_add(&b, "a", now, 0.999), 0);
    ck_assert(!blacklist_has(&b, "a", now + 35 * NSEC_PER_SEC));
    blacklist_free(&b);
}
END_TEST

START_TEST(the_next_of_several)
{
    struct blacklist b = {.low = 10 * NSEC_PER_SEC, .high = 100 * NSEC_PER_SEC};
    ck_assert_int_eq(blacklist_add(&b, "a", 0, 0), 0);
    ck_assert_int_eq(blacklist_add(&b, "b", 5 * NSEC_PER_SEC, 0), 0);
    ck_assert_uint_eq(blacklist_next(&b, NSEC_PER_SEC), 10 * NSEC_PER_SEC);
    ck_assert_uint_eq(blacklist_next(&b, 10 * NSEC_PER_SEC), 15 * NSEC_PER_SEC);
    ck_assert_uint_eq(blacklist_next(&b, 15 * NSEC_PER_SEC), UINT64_MAX);
    blacklist_free(&b);
}
END_TEST

/* A pause is no failure, and shortens nothing. */
START_TEST(a_pause)
{
    struct blacklist b = {.low = 10 * NSEC_PER_SEC, .high = 100 * NSEC_PER_SEC};
    ck_assert_int_eq(blacklist_pause(&b, "a", 5 * NSEC_PER_SEC), 0);
    ck_assert(blacklist_has(&b, "a", 4 * NSEC_PER_SEC) && !blacklist_has(&b, "a", 5 * NSEC_PER_SEC));
    ck_assert_int_eq(blacklist_add(&b, "a", 5 * NSEC_PER_SEC, 0), 0);
    ck_assert_int_eq(blacklist_pause(&b, "a", 6 * NSEC_PER_SEC), 0);
    ck_assert(blacklist_has(&b, "a", 15 * NSEC_PER_SEC - 1) && !blacklist_has(&b, "a", 15 * NSEC_PER_SEC));
    blacklist_free(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("blacklist");
    TCase *c = tcase_create("blacklist");
    tcase_add_test(c, without_a_range_for_ever);
    tcase_add_test(c, longer_after_each_failure);
    tcase_add_test(c, the_next_of_several);
    tcase_add_test(c, a_pause);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
