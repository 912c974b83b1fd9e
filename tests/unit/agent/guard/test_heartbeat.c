/* Deadlines by virtual time: silence means death only after a fresh look. */
#include <check.h>
#include <stdlib.h>

#include "agent/guard/heartbeat.h"

#define LIMIT 1000u

static struct heartbeat h;

static void set_up(void)
{
    heartbeat_start(&h, LIMIT, 5000);
}

/* Looks every interval from `from` to `to`; the last verdict. */
static enum heartbeat_verdict look_until(uint64_t from, uint64_t to)
{
    enum heartbeat_verdict v = HEARTBEAT_ALIVE;
    for (uint64_t t = from; t <= to; t += heartbeat_interval(&h))
        v = heartbeat_look(&h, t);
    return v;
}

START_TEST(silence_is_doubted_then_believed)
{
    ck_assert_int_eq(look_until(5250, 6000), HEARTBEAT_ALIVE);
    ck_assert_int_eq(heartbeat_look(&h, 6001), HEARTBEAT_DOUBT);
    ck_assert_int_eq(heartbeat_look(&h, 6002), HEARTBEAT_DEAD);
}
END_TEST

START_TEST(what_was_read_in_doubt_counts)
{
    ck_assert_int_eq(look_until(5250, 6250), HEARTBEAT_DOUBT);
    heartbeat_seen(&h, 6251);
    ck_assert_int_eq(heartbeat_look(&h, 6252), HEARTBEAT_ALIVE);
    ck_assert_int_eq(look_until(6500, 7251), HEARTBEAT_ALIVE);
    ck_assert_int_eq(heartbeat_look(&h, 7252), HEARTBEAT_DOUBT);
}
END_TEST

START_TEST(who_overslept_counts_anew)
{
    ck_assert_int_eq(heartbeat_look(&h, 100000), HEARTBEAT_ALIVE);
    ck_assert_int_eq(look_until(100250, 101000), HEARTBEAT_ALIVE);
    ck_assert_int_eq(heartbeat_look(&h, 101001), HEARTBEAT_DOUBT);
    /* Asleep again between doubt and belief. */
    ck_assert_int_eq(heartbeat_look(&h, 200000), HEARTBEAT_ALIVE);
}
END_TEST

/* A lease ends when it should, not up to an interval later. */
START_TEST(the_last_look_comes_at_the_deadline)
{
    uint64_t ms = 1000000, now = 7 * ms, begun = now;
    heartbeat_start(&h, 1000 * ms, now);
    while (heartbeat_look(&h, now) == HEARTBEAT_ALIVE) {
        uint64_t next = heartbeat_next_ms(&h, now);
        ck_assert(next > 0 && next <= 250);
        now += next * ms;
        heartbeat_seen(&h, now < begun + 100 * ms ? now : h.last);
    }
    ck_assert_uint_gt(now, begun + 1000 * ms);
    ck_assert_uint_le(now, begun + 1002 * ms);
    heartbeat_seen(&h, now - 130 * ms); /* between two looks */
    ck_assert_uint_eq(heartbeat_next_ms(&h, now + 700 * ms), 171);
    heartbeat_suspend(&h, true, now);
    ck_assert_uint_eq(heartbeat_next_ms(&h, now + 100000 * ms), 250);
}
END_TEST

START_TEST(a_stopped_peer_may_be_silent)
{
    heartbeat_suspend(&h, true, 5100);
    ck_assert_int_eq(look_until(5250, 20000), HEARTBEAT_ALIVE);
    heartbeat_suspend(&h, false, 20000);
    ck_assert_int_eq(look_until(20250, 21000), HEARTBEAT_ALIVE);
    ck_assert_int_eq(heartbeat_look(&h, 21250), HEARTBEAT_DOUBT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("heartbeat");
    TCase *t = tcase_create("heartbeat");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, silence_is_doubted_then_believed);
    tcase_add_test(t, what_was_read_in_doubt_counts);
    tcase_add_test(t, who_overslept_counts_anew);
    tcase_add_test(t, the_last_look_comes_at_the_deadline);
    tcase_add_test(t, a_stopped_peer_may_be_silent);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
