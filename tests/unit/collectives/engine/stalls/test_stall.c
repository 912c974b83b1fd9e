/* When a tensor counts as stalled, and how missing ranks are written. Time is an argument. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/stalls/stall.h"
#include "common/base/clock.h"

static struct stall *s;

static void setup(void)
{
    s = calloc(1, sizeof *s);
    ck_assert_ptr_nonnull(s);
    s->warn_ns = 10 * NSEC_PER_SEC;
    s->give_up_ns = 30 * NSEC_PER_SEC;
}

static void teardown(void)
{
    free(s);
}

static enum stall_news seen(uint32_t operation, bool together, uint64_t second)
{
    return stall_seen(s, 5, operation, together, (100 + second) * NSEC_PER_SEC);
}

START_TEST(told_once_and_given_up_once)
{
    ck_assert_int_eq(seen(1, false, 0), STALL_NONE);
    ck_assert_int_eq(seen(1, false, 9), STALL_NONE);
    ck_assert_int_eq(seen(1, false, 10), STALL_WARN);
    ck_assert_int_eq(seen(1, false, 29), STALL_NONE);
    ck_assert_int_eq(seen(1, false, 30), STALL_GIVE_UP);
    ck_assert_int_eq(seen(1, false, 90), STALL_NONE);
}
END_TEST

START_TEST(what_moves_counts_anew)
{
    seen(1, false, 0);
    ck_assert_int_eq(seen(2, false, 11), STALL_NONE); /* another operation */
    ck_assert_int_eq(seen(2, false, 20), STALL_NONE);
    ck_assert_int_eq(seen(2, false, 21), STALL_WARN);
    seen(2, true, 22);
    ck_assert_int_eq(seen(2, false, 23), STALL_NONE); /* a name used again */
    ck_assert_int_eq(seen(2, false, 33), STALL_WARN);
    ck_assert_int_eq(stall_seen(s, 6, 2, false, 200 * NSEC_PER_SEC), STALL_NONE); /* another tensor */
}
END_TEST

START_TEST(never_is_never)
{
    s->warn_ns = 0;
    seen(1, false, 0);
    ck_assert_int_eq(seen(1, false, 29), STALL_NONE);
    ck_assert_int_eq(seen(1, false, 31), STALL_GIVE_UP);
    s->give_up_ns = 0;
    seen(2, false, 40);
    ck_assert_int_eq(seen(2, false, 4000), STALL_NONE);
    ck_assert_uint_eq(stall_period(s), 0);
}
END_TEST

START_TEST(looks_as_often_as_the_times_need)
{
    ck_assert_uint_eq(stall_period(s), NSEC_PER_SEC);
    s->give_up_ns = NSEC_PER_SEC;
    ck_assert_uint_eq(stall_period(s), NSEC_PER_SEC / 4);
    s->warn_ns = 1;
    ck_assert_uint_eq(stall_period(s), NSEC_PER_SEC / 10);
}
END_TEST

START_TEST(ranks_are_listed_by_host)
{
    static const uint32_t c[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, e[] = {17, 19, 20};
    struct stall_ranks r = {0};
    stall_ranks_add(&r, "a", (const uint32_t[]){0, 1, 2, 3}, 4, (const uint8_t[]){0x00}, "");
    stall_ranks_add(&r, "b", (const uint32_t[]){4}, 1, (const uint8_t[]){0xff}, "");
    stall_ranks_add(&r, "c", c, 10, (const uint8_t[]){0x77, 0x02}, " (its engine does not answer)");
    stall_ranks_add(&r, "d", (const uint32_t[]){15, 16}, 2, (const uint8_t[]){0xff}, "");
    stall_ranks_add(&r, "e", e, 3, (const uint8_t[]){0x07}, "");
    ck_assert_str_eq(stall_ranks_end(&r), "rank 4 on b, ranks 5 to 7, 9 to 11, 14 on c (its engine does not "
                                          "answer), ranks 15 and 16 on d, ranks 17, 19 and 20 on e");
    ck_assert_uint_eq(r.hosts, 4);
}
END_TEST

START_TEST(what_does_not_fit_is_counted)
{
    struct stall_ranks r = {0};
    uint8_t odd[128];
    uint32_t rank[1124];
    for (uint32_t i = 0; i < 1124; i++)
        rank[i] = i;
    memset(odd, 0x55, sizeof odd);
    stall_ranks_add(&r, "large", rank, 1024, odd, "");
    ck_assert_str_eq(r.text, "512 of the ranks 0 to 1023 on large");
    for (uint32_t i = 0; i < 100; i++)
        stall_ranks_add(&r, "host", rank + 1024 + i, 1, (const uint8_t[]){1}, "");
    const char *text = stall_ranks_end(&r);
    ck_assert_uint_lt(strlen(text), sizeof r.text);
    ck_assert_ptr_nonnull(strstr(text, " more ranks"));
    ck_assert_uint_eq(r.hosts, 101);
    ck_assert_uint_gt(r.cut, 50);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stall");
    TCase *t = tcase_create("stall");
    tcase_set_timeout(t, 20);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, told_once_and_given_up_once);
    tcase_add_test(t, what_moves_counts_anew);
    tcase_add_test(t, never_is_never);
    tcase_add_test(t, looks_as_often_as_the_times_need);
    tcase_add_test(t, ranks_are_listed_by_host);
    tcase_add_test(t, what_does_not_fit_is_counted);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
