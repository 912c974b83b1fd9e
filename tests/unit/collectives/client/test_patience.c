/* When a rank looks for the others and when it sleeps at once: what it learns, and that ranks learn alike. */
#include <check.h>
#include <stdint.h>

#include "collectives/client/wait_policy.h"

/* Operations first to last; each look is quick or slow. Returns how many looked. */
static uint32_t run(struct patience *p, uint32_t first, uint32_t last, bool quick)
{
    uint32_t looked = 0;

    for (uint32_t i = first; i <= last; i++)
        if (patience_has(p, i)) {
            looked++;
            patience_learn(p, quick);
        }
    return looked;
}

START_TEST(who_finds_others_quickly_always_looks)
{
    struct patience p = {0};

    ck_assert_uint_eq(run(&p, 1, 5000, true), 5000);
}
END_TEST

START_TEST(slow_looks_become_rare)
{
    struct patience p = {0};

    ck_assert_uint_eq(run(&p, 1, 1, false), 1);
    ck_assert(!patience_has(&p, 3)); /* each second one */
    ck_assert(patience_has(&p, 4));
    run(&p, 4, 4096, false);
    ck_assert_uint_eq(run(&p, 4097, 4096 + 10 * 1024, false), 10);
}
END_TEST

START_TEST(one_quick_look_brings_the_next)
{
    struct patience p = {0};

    run(&p, 1, 4096, false);
    ck_assert_uint_eq(run(&p, 5120, 5120, true), 1);
    ck_assert_uint_eq(run(&p, 5121, 5220, true), 100);
    ck_assert_uint_eq(run(&p, 5221, 5221, false), 1);
    ck_assert_uint_le(run(&p, 5222, 5221 + 1024, false), 2); /* it has not forgotten */
}
END_TEST

START_TEST(long_calm_is_trusted_again)
{
    struct patience p = {0};

    run(&p, 1, 4096, false);
    run(&p, 5120, 5120 + 10 * 64, true);
    ck_assert_uint_eq(run(&p, 6001, 6001, false), 1);
    ck_assert(patience_has(&p, 6002));
}
END_TEST

/* Ranks with different pasts: who looks rarely does so when the others look, too. */
START_TEST(rare_looks_coincide)
{
    struct patience much = {0}, little = {0};

    run(&much, 1, 4096, false);
    run(&little, 4090, 4096, false);
    for (uint32_t i = 4097; i < 4097 + 4096; i++)
        ck_assert(!patience_has(&much, i) || patience_has(&little, i));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("patience");
    TCase *tc = tcase_create("patience");
    SRunner *runner;
    int failed;

    tcase_add_test(tc, who_finds_others_quickly_always_looks);
    tcase_add_test(tc, slow_looks_become_rare);
    tcase_add_test(tc, one_quick_look_brings_the_next);
    tcase_add_test(tc, long_calm_is_trusted_again);
    tcase_add_test(tc, rare_looks_coincide);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
