/* Rankfiles: what they mean, and which line is wrong. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plan/plan.h"
#include "launcher/plan/rankfile.h"

static struct rankfile *parse(const char *text, struct err *e)
{
    return rankfile_parse(text, strlen(text), "ranks.txt", e);
}

START_TEST(ranks_have_hosts_and_cores)
{
    struct err e = ERR_INIT;
    struct rankfile *f =
        parse("# two hosts\n\nrank 1=b slot=1:0,2-3 # of socket 1\r\n rank  0 = +n1 slots=0:*\n"
              "rank 2=a.example slot=4,0:1\nrank 3=a",
              &e);
    ck_assert_msg(f != NULL, "%s", e.text);
    ck_assert_uint_eq(f->count, 4);
    ck_assert(!f->rank[0].host && f->rank[0].number == 1 && f->rank[0].line == 4 && f->rank[0].count == 1);
    ck_assert(f->rank[0].cores[0].in_socket && f->rank[0].cores[0].last == RANKFILE_LAST);
    ck_assert_str_eq(f->rank[1].host, "b");
    ck_assert_uint_eq(f->rank[1].count, 2);
    ck_assert(f->rank[1].cores[1].in_socket && f->rank[1].cores[1].socket == 1);
    ck_assert(f->rank[1].cores[1].first == 2 && f->rank[1].cores[1].last == 3);
    ck_assert_str_eq(f->rank[2].host, "a.example");
    ck_assert(!f->rank[2].cores[0].in_socket && f->rank[2].cores[0].first == 4 &&
              f->rank[2].cores[1].in_socket);
    ck_assert_uint_eq(f->rank[3].count, 0);
    rankfile_free(f);
}
END_TEST

START_TEST(bad_lines_are_named)
{
    static const char *const cases[][2] = {
        {"rank 0=a\nrnk 1=b\n", "ranks.txt, line 2: expected rank N=HOST"},
        {"rank x=a", "line 1: after rank there must be a number"},
        {"rank 0 a", "line 1: expected rank N=HOST"},
        {"rank 0=", "line 1: after = a host is missing"},
        {"rank 0=+nx", "line 1: after +n the number"},
        {"rank 0=a slot=", "line 1: the list of cores must be like"},
        {"rank 0=a slot=3-1", "line 1: the list of cores must be like"},
        {"rank 0=a slot=0-1:2", "line 1: before ':' there must be the number of one socket"},
        {"rank 0=a slot=0 more", "line 1: expected slot=CORES or the end"},
        {"\nrank 0=a\n\nrank 0=b", "line 4: rank 0 has its place in line 2 already"},
        {"rank 0=a\nrank 2=a", "ranks.txt: rank 1 has no line, and rank 2 has one"},
        {"# nothing\n", "ranks.txt: there is no rank in it"},
        {"rank 1000000=a", "line 1: after rank there must be a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        ck_assert_ptr_null(parse(cases[i][0], &e));
        ck_assert_msg(strstr(e.text, cases[i][1]) != NULL, "%s", e.text);
        ck_assert_int_eq(err_exit_status(&e), 2);
    }
}
END_TEST

START_TEST(the_plan_follows_it)
{
    struct err e = ERR_INIT;
    struct host_list hosts;
    struct plan plan;
    struct rankfile *f = parse("rank 0=b\nrank 1=a\nrank 2=+n0\nrank 3=b", &e);
    struct plan_want want = {.rankfile = f};
    ck_assert_int_eq(hosts_parse(&hosts, "a:2,c,b:2", "-H", &e), 0);
    ck_assert_int_eq(plan_check(&hosts, &want, &e), 0);
    ck_assert_uint_eq(plan_hosts(&hosts, &want), 3);
    ck_assert_int_eq(plan_make(&plan, &hosts, 3, &want, &e), 0); /* auto hosts do not matter */
    ck_assert_uint_eq(plan.host_count, 2);
    ck_assert(plan.host[0].index == 0 && plan.host[0].rank[0] == 1 && plan.host[0].rank[1] == 2);
    ck_assert(plan.host[1].index == 2 && plan.host[1].rank[0] == 0 && plan.host[1].rank[1] == 3);
    ck_assert(!plan_is_block(&plan.host[1]) && plan.rank[3].local_rank == 1 && plan.rank[0].cross_rank == 1);
    plan_free(&plan);
    want.np = 1;
    ck_assert_int_eq(plan_make(&plan, &hosts, 3, &want, &e), 0);
    ck_assert_uint_eq(plan.size, 1);
    plan_free(&plan);
    want.np = 5;
    ck_assert_int_eq(plan_check(&hosts, &want, &e), -1);
    ck_assert_msg(strstr(e.text, "-np 5 asks for more ranks than ranks.txt has: 4") != NULL, "%s", e.text);
    hosts_free(&hosts);
    ck_assert_int_eq(hosts_parse(&hosts, "a:1,b:2", "-H", &e), 0);
    want.np = 0;
    err_clear(&e);
    ck_assert_int_eq(plan_check(&hosts, &want, &e), -1);
    ck_assert_msg(strstr(e.text, "line 3: rank 2 is one more on host a than its 1 slots") != NULL, "%s",
                  e.text);
    want.oversubscribe = true;
    ck_assert_int_eq(plan_check(&hosts, &want, &e), 0);
    hosts_free(&hosts);
    ck_assert_int_eq(hosts_parse(&hosts, "a:4", "-H", &e), 0);
    err_clear(&e);
    ck_assert_int_eq(plan_check(&hosts, &want, &e), -1);
    ck_assert_msg(strstr(e.text, "line 1: rank 0 is to run on a host that is none of the job's") != NULL,
                  "%s", e.text);
    hosts_free(&hosts);
    rankfile_free(f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rankfile");
    TCase *c = tcase_create("rankfile");
    tcase_add_test(c, ranks_have_hosts_and_cores);
    tcase_add_test(c, bad_lines_are_named);
    tcase_add_test(c, the_plan_follows_it);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
