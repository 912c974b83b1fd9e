/* The queue for the slots of a node: its order, the next request, and how often a request gets news. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/admission/queue.h"

static struct queue q;
static struct leases l;
static struct lease item[8];
static struct lease_rules rules;
static struct queue_entry x[8];

static void set_up(void)
{
    q = (struct queue){0};
    memset(item, 0, sizeof item);
    l = (struct leases){.item = item};
    rules = (struct lease_rules){.slots = 4};
}

static struct queue_entry *come(int i, uid_t uid, uint32_t slots, uint32_t priority)
{
    static const char *const users[] = {"root", "alice", "bob"};
    struct lease_want want = {.job = "a-1", .user = users[uid], .uid = uid, .slots = slots};
    x[i] = (struct queue_entry){.want = want, .priority = priority, .patient = true};
    queue_add(&q, &x[i]);
    return &x[i];
}

static void run(uid_t uid, uint32_t slots)
{
    item[l.count] = (struct lease){.job = "r", .user = "carol", .uid = uid, .slots = slots};
    snprintf(item[l.count].unit, sizeof item[l.count].unit, "hvd-r.%zu.service", l.count);
    l.count++;
}

static struct queue_entry *next(void)
{
    struct lease lease;
    struct err e = ERR_INIT;
    enum lease_verdict verdict = LEASE_BUSY;
    struct queue_entry *found = queue_next(&q, &l, &rules, &lease, &verdict, &e);
    ck_assert(!found || verdict == LEASE_GIVEN || verdict == LEASE_NEVER);
    ck_assert(!found || verdict == LEASE_GIVEN || e.code);
    return found;
}

START_TEST(first_come_first_served_and_nobody_overtakes)
{
    run(9, 3);
    struct queue_entry *large = come(0, 1, 2, 50), *small = come(1, 2, 1, 50);
    ck_assert_ptr_null(next());
    ck_assert_uint_eq(queue_place(&q, large), 1);
    ck_assert_uint_eq(queue_place(&q, small), 2);
    l.count = 0;
    ck_assert_ptr_eq(next(), large);
    queue_remove(&q, large);
    ck_assert_uint_eq(queue_place(&q, large), 0);
    ck_assert_ptr_eq(next(), small);
    queue_remove(&q, small);
    queue_remove(&q, small);
    ck_assert_ptr_null(next());
}
END_TEST

START_TEST(a_higher_priority_comes_first_and_among_equals_who_came_first)
{
    run(9, 4);
    struct queue_entry *usual = come(0, 1, 1, 50), *low = come(1, 1, 1, 10), *high = come(2, 2, 1, 60),
                       *later = come(3, 2, 1, 50), *lowest = come(4, 2, 1, 0);
    const struct queue_entry *order[] = {high, usual, later, low, lowest};
    l.count = 0;
    for (size_t i = 0; i < 5; i++) {
        struct queue_entry *found = next();
        ck_assert_ptr_eq(found, order[i]);
        queue_remove(&q, found);
    }
}
END_TEST

START_TEST(who_waits_for_his_own_stands_in_nobodys_way)
{
    rules.max_jobs_per_user = 1;
    run(1, 1);
    struct queue_entry *own = come(0, 1, 1, 50), *other = come(1, 2, 1, 50);
    ck_assert_ptr_eq(next(), other);
    queue_remove(&q, other);
    ck_assert_ptr_null(next());
    l.count = 0;
    ck_assert_ptr_eq(next(), own);
    rules.max_jobs = 1; /* but for the limit of the node all wait */
    run(2, 1);
    other = come(1, 2, 1, 50);
    ck_assert_ptr_null(next());
}
END_TEST

START_TEST(what_the_node_has_not_any_more_is_not_waited_for)
{
    run(9, 4);
    struct queue_entry *large = come(0, 1, 4, 50);
    ck_assert_ptr_null(next());
    rules.slots = 3;
    ck_assert_ptr_eq(next(), large);
}
END_TEST

START_TEST(so_many_may_wait)
{
    struct err e = ERR_INIT;
    come(0, 1, 1, 50);
    ck_assert_int_eq(queue_may_wait(&q, come(1, 1, 1, 50), 4, &e), 0);
    ck_assert_int_eq(queue_may_wait(&q, come(2, 1, 1, 50), 4, &e), -1);
    ck_assert_str_eq(e.text, "2 jobs of alice wait there, and more may not (half of max_waiting)");
    queue_remove(&q, &x[2]);
    ck_assert_int_eq(queue_may_wait(&q, come(2, 0, 1, 50), 4, &e), 0);
    ck_assert_int_eq(queue_may_wait(&q, come(3, 0, 1, 50), 4, &e), 0);
    err_clear(&e);
    ck_assert_int_eq(queue_may_wait(&q, come(4, 0, 1, 50), 4, &e), -1);
    ck_assert_str_eq(e.text, "4 jobs wait there, and more may not (max_waiting)");
}
END_TEST

START_TEST(news_are_told_once_and_not_too_often)
{
    uint64_t again = UINT64_MAX;
    run(9, 3);
    struct queue_entry *first = come(0, 1, 2, 50), *second = come(1, 2, 1, 50);
    ck_assert_str_eq(queue_news(&q, second, &l, &rules, 5000, &again),
                     "waiting for 1 slot: place 2 of 2; 1 of 4 are free (carol 3)");
    ck_assert_str_eq(queue_news(&q, first, &l, &rules, 5000, &again),
                     "waiting for 2 slots: place 1 of 2; 1 of 4 are free (carol 3)");
    ck_assert_ptr_null(queue_news(&q, second, &l, &rules, 60000, &again));
    ck_assert(again == UINT64_MAX);
    second->told_at = 60000;
    queue_remove(&q, first);
    ck_assert_ptr_null(queue_news(&q, second, &l, &rules, 60300, &again));
    ck_assert_uint_eq(again, 700);
    ck_assert_str_eq(queue_news(&q, second, &l, &rules, 61000, &again),
                     "waiting for 1 slot: place 1 of 1; 1 of 4 are free (carol 3)");
    rules.max_jobs_per_user = 1;
    run(2, 1);
    ck_assert_str_eq(
        queue_news(&q, second, &l, &rules, 70000, &again),
        "waiting for 1 slot: place 1 of 1; bob runs 1 jobs there, and more are not allowed to a user "
        "(max_jobs_per_user)");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("queue");
    TCase *all = tcase_create("all");
    suite_add_tcase(suite, all);
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, first_come_first_served_and_nobody_overtakes);
    tcase_add_test(all, a_higher_priority_comes_first_and_among_equals_who_came_first);
    tcase_add_test(all, who_waits_for_his_own_stands_in_nobodys_way);
    tcase_add_test(all, what_the_node_has_not_any_more_is_not_waited_for);
    tcase_add_test(all, so_many_may_wait);
    tcase_add_test(all, news_are_told_once_and_not_too_often);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
