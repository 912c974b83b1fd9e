/* How a thread waits for other ranks: what it learns from its yields. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "collectives/shm/patience.h"
#include "tests/unit/run_test.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* Quick yields, as long as it is allowed to. Returns how many there were. */
static uint32_t yield_quickly(struct patience *p, uint64_t from, uint64_t until)
{
    uint32_t yields = 0;

    for (uint64_t now = from; now < until; now += US)
        if (patience_has(p, now)) {
            patience_learn(p, now, US);
            yields++;
        }
    return yields;
}

START_TEST(quick_yields_go_on)
{
    struct patience p = {0};
    ck_assert_uint_eq(yield_quickly(&p, 1, 100 * MS), 100000);
    patience_learn(&p, 100 * MS, 999 * US); /* ranks that share the processor had something to do */
    ck_assert(patience_has(&p, 100 * MS));
}
END_TEST

START_TEST(a_slow_yield_ends_them_for_a_while)
{
    struct patience p = {0};
    patience_learn(&p, 10 * MS, 3 * MS);
    ck_assert(!patience_has(&p, 10 * MS));
    ck_assert(!patience_has(&p, 11 * MS));
    ck_assert(patience_has(&p, 13 * MS));
}
END_TEST

/* A process that always wants the processor costs a slice of 3 ms now and then. */
START_TEST(a_busy_processor_is_tried_ever_more_rarely)
{
    struct patience p = {0};
    uint64_t now = 0, lost = 0, end = 10000 * MS;
    uint32_t yields = 0;
    for (; now < end; now += US)
        if (patience_has(&p, now)) {
            now += 3 * MS;
            lost += 3 * MS;
            yields++;
            patience_learn(&p, now, 3 * MS);
        }
    ck_assert_uint_ge(yields, 30); /* once in a quarter of a second: the process may have gone */
    ck_assert_uint_lt(lost, end / 50);
}
END_TEST

START_TEST(a_processor_that_became_quiet_is_forgiven)
{
    struct patience p = {0};
    uint64_t now = 0;
    for (int i = 0; i < 20; i++, now += 300 * MS)
        patience_learn(&p, now, 3 * MS);
    uint64_t span = p.span;
    ck_assert_uint_gt(span, 100 * MS);
    (void)yield_quickly(&p, now, now + 40 * MS);
    ck_assert_uint_lt(p.span, span / 100);
    patience_learn(&p, now, 3 * MS);
    ck_assert(patience_has(&p, now + 4 * MS)); /* chance: a short while only */
}
END_TEST

/* So many waits end with the first yield until there is advice. */
static uint32_t waits_until_advice(struct patience *p, uint64_t *now, enum patience_advice *advice)
{
    for (uint32_t waits = 1; waits < 1000000; waits++, *now += US) {
        patience_handed(p, *now, true);
        *advice = patience_advice(p);
        if (*advice != PATIENCE_YIELD)
            return waits;
    }
    return 0;
}

START_TEST(ranks_on_one_processor_part)
{
    struct patience p = {0};
    enum patience_advice advice;
    uint64_t now = 1000 * MS;
    ck_assert_uint_eq(waits_until_advice(&p, &now, &advice), 16);
    ck_assert_int_eq(advice, PATIENCE_SLEEP);
    ck_assert_int_eq(patience_advice(&p), PATIENCE_YIELD); /* once */
    ck_assert_uint_gt(waits_until_advice(&p, &now, &advice), 100);
    ck_assert_int_eq(advice, PATIENCE_MOVE);
    uint64_t before = now;
    for (int i = 0; i < 20; i++)
        ck_assert_uint_gt(waits_until_advice(&p, &now, &advice), 16);
    ck_assert_uint_gt(now - before, 200 * MS); /* little is lost if nothing helps */
    before = now;
    ck_assert_uint_gt(waits_until_advice(&p, &now, &advice), 16);
    ck_assert_uint_le(now - before, 21 * MS); /* and what the kernel does again is undone soon */
}
END_TEST

START_TEST(ranks_with_a_processor_each_stay)
{
    struct patience p = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        patience_handed(&p, 1000 * MS + i, i % 16 != 15);
        ck_assert_int_eq(patience_advice(&p), PATIENCE_YIELD);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("patience");
    TCase *tc = tcase_create("patience");
    tcase_add_test(tc, quick_yields_go_on);
    tcase_add_test(tc, a_slow_yield_ends_them_for_a_while);
    tcase_add_test(tc, a_busy_processor_is_tried_ever_more_rarely);
    tcase_add_test(tc, a_processor_that_became_quiet_is_forgiven);
    tcase_add_test(tc, ranks_on_one_processor_part);
    tcase_add_test(tc, ranks_with_a_processor_each_stay);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
