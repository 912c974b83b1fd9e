/* Placement: blocks in the order of hosts, the six numbers as Horovod defines them, and a clear word when
 * slots are too few. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cli/config.h"
#include "launcher/job/dry_run.h"
#include "launcher/plan/plan.h"

static void hosts_from(struct host_list *hosts, const char *text)
{
    struct err e = ERR_INIT;
    ck_assert_msg(hosts_parse(hosts, text, "-H/--hosts", &e) == 0, "%s", e.text);
}

/* Every rank as "host.local/cross-of-cross_size". */
static void show(const struct plan *plan, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < plan->size && used < size; r++)
        used +=
            (size_t)snprintf(text + used, size - used, "%u.%u/%u-%u ", plan->rank[r].host,
                             plan->rank[r].local_rank, plan->rank[r].cross_rank, plan->rank[r].cross_size);
}

static const struct {
    const char *hosts;
    uint32_t np, host_count;
    const char *shown;
} good[] = {
    {"a:1", 1, 1, "0.0/0-1 "},
    {"a:2,b:2", 0, 2, "0.0/0-2 0.1/0-2 1.0/1-2 1.1/1-2 "},
    {"a:2,b:2", 4, 2, "0.0/0-2 0.1/0-2 1.0/1-2 1.1/1-2 "},
    {"a:2,b:2", 3, 2, "0.0/0-2 0.1/0-1 1.0/1-2 "},
    {"a:2,b:2", 2, 1, "0.0/0-1 0.1/0-1 "},
    {"a:1,b:3,c:2", 0, 3, "0.0/0-3 1.0/1-3 1.1/0-2 1.2/0-1 2.0/2-3 2.1/1-2 "},
    {"a:3,b:1,c:2", 5, 3, "0.0/0-3 0.1/0-1 0.2/0-1 1.0/1-3 2.0/2-3 "},
};

START_TEST(ranks_in_blocks)
{
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    char shown[512];
    hosts_from(&hosts, good[_i].hosts);
    ck_assert_int_eq(plan_check(&hosts, &(struct plan_want){.np = good[_i].np}, &e), 0);
    ck_assert_msg(plan_make(&plan, &hosts, hosts.count, &(struct plan_want){.np = good[_i].np}, &e) == 0,
                  "%s", e.text);
    ck_assert_uint_eq(plan.host_count, good[_i].host_count);
    show(&plan, shown, sizeof shown);
    ck_assert_str_eq(shown, good[_i].shown);
    for (uint32_t h = 0, first = 0; h < plan.host_count; first += plan.host[h++].ranks) {
        ck_assert_uint_eq(plan.host[h].index, h);
        ck_assert_uint_eq(plan.host[h].rank[0], first);
        ck_assert(plan_is_block(&plan.host[h]));
        ck_assert_uint_gt(plan.host[h].ranks, 0);
    }
    plan_free(&plan);
    hosts_free(&hosts);
}
END_TEST

static const struct {
    const char *hosts;
    struct plan_want want;
    const char *shown;
} placed[] = {
    {"a:2,b:2", {.by_node = true}, "0.0/0-2 1.0/1-2 0.1/0-2 1.1/1-2 "},
    {"a:2,b:2", {.np = 3, .by_node = true}, "0.0/0-2 1.0/1-2 0.1/0-1 "},
    {"a:1,b:3,c:2", {.by_node = true}, "0.0/0-3 1.0/1-3 2.0/2-3 1.1/0-2 2.1/1-2 1.2/0-1 "},
    {"a:4,b:4", {.ppr = 1}, "0.0/0-2 1.0/1-2 "},
    {"a:4,b:4", {.np = 3, .ppr = 2}, "0.0/0-2 0.1/0-1 1.0/1-2 "},
    {"a,b", {.ppr = 2}, "0.0/0-2 0.1/0-2 1.0/1-2 1.1/1-2 "}, /* auto: it says how many */
    {"a:4,b:4", {.ppr = 2, .by_node = true}, "0.0/0-2 1.0/1-2 0.1/0-2 1.1/1-2 "},
    {"a:1,b:1", {.ppr = 2, .oversubscribe = true}, "0.0/0-2 0.1/0-2 1.0/1-2 1.1/1-2 "},
    {"a:1,b:1", {.np = 5, .oversubscribe = true}, "0.0/0-2 0.1/0-2 0.2/0-1 1.0/1-2 1.1/1-2 "},
    {"a:3,b:1", {.np = 6, .oversubscribe = true}, "0.0/0-2 0.1/0-2 0.2/0-1 0.3/0-1 1.0/1-2 1.1/1-2 "},
    {"a:3,b:1",
     {.np = 6, .by_node = true, .oversubscribe = true},
     "0.0/0-2 1.0/1-2 0.1/0-2 0.2/0-1 0.3/0-1 1.1/1-2 "},
    {"a:2,b:2", {.oversubscribe = true}, "0.0/0-2 0.1/0-2 1.0/1-2 1.1/1-2 "},
};

START_TEST(ranks_where_they_are_wanted)
{
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    char shown[512];
    hosts_from(&hosts, placed[_i].hosts);
    ck_assert_msg(plan_check(&hosts, &placed[_i].want, &e) == 0, "%s", e.text);
    ck_assert_msg(plan_make(&plan, &hosts, hosts.count, &placed[_i].want, &e) == 0, "%s", e.text);
    show(&plan, shown, sizeof shown);
    ck_assert_str_eq(shown, placed[_i].shown);
    for (uint32_t r = 0; r < plan.size; r++)
        ck_assert_uint_eq(plan.host[plan.rank[r].host].rank[plan.rank[r].local_rank], r);
    plan_free(&plan);
    hosts_free(&hosts);
}
END_TEST

/* --ppr N:WHAT: what a host takes is known when it has said how many of these it has. */
START_TEST(ranks_on_each_socket)
{
    struct plan_want want = {.ppr = 2, .per_part = "socket"};
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    char shown[512];
    hosts_from(&hosts, "a,b,c:4");
    ck_assert_int_eq(plan_check(&hosts, &want, &e), 0);
    ck_assert_int_eq(plan_make(&plan, &hosts, 3, &want, &e), -1); /* too early */
    err_clear(&e);
    for (uint32_t i = 0; i < 3; i++)
        hosts.host[i].parts = i ? i : 2;
    ck_assert_msg(plan_make(&plan, &hosts, 3, &want, &e) == 0, "%s", e.text);
    show(&plan, shown, sizeof shown);
    ck_assert_str_eq(shown,
                     "0.0/0-3 0.1/0-3 0.2/0-2 0.3/0-2 1.0/1-3 1.1/1-3 2.0/2-3 2.1/2-3 2.2/1-2 2.3/1-2 ");
    plan_free(&plan);
    want.np = 11;
    ck_assert_int_eq(plan_make(&plan, &hosts, 3, &want, &e), -1);
    ck_assert_msg(strstr(e.text, "--ppr 2:socket allows: 10 (a 4, b 2, c 4)"), "%s", e.text);
    err_clear(&e);
    want.np = 0;
    hosts.host[2].parts = 3;
    ck_assert_int_eq(plan_make(&plan, &hosts, 3, &want, &e), -1);
    ck_assert_msg(strstr(e.text, "--ppr 2:socket asks for 6 ranks on host c, more than its 4 slots"), "%s",
                  e.text);
    err_clear(&e);
    hosts.host[0].parts = UINT32_MAX; /* no host makes the sum wrap */
    hosts.host[2].parts = 2;
    ck_assert_int_eq(plan_make(&plan, &hosts, 3, &want, &e), -1);
    hosts_free(&hosts);
}
END_TEST

/* -H of programs. */
START_TEST(programs_on_hosts_of_their_own)
{
    static struct plan_place a1 = {0, 1}, b = {1, 0}, b1 = {1, 1}, b2 = {1, 2}, b1_a2[] = {{1, 1}, {0, 2}};
    static const struct {
        const char *hosts;
        struct plan_part part[2];
        bool by_node, oversubscribe;
        const char *shown;
    } cases[] = {
        {"a:1,b:2", {{1, 1, &a1}, {2, 1, &b2}}, false, false, "0.0/0-2 1.0/1-2 1.1/0-1 "},
        /* the order of -H, and its slots */
        {"a:4,b:4", {{3, 2, b1_a2}, {2, 0, NULL}}, false, false, "1.0/1-2 0.0/0-2 0.1/0-1 0.2/0-1 0.3/0-1 "},
        {"a:2,b:2", {{1, 1, &b}, {3, 0, NULL}}, true, false, "1.0/1-2 0.0/0-2 1.1/1-2 0.1/0-2 "},
        {"a:2,b:1", {{2, 1, &b1}, {1, 0, NULL}}, false, true, "1.0/1-2 1.1/0-1 0.0/0-2 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_want want = {.by_node = cases[i].by_node, .oversubscribe = cases[i].oversubscribe};
        struct host_list hosts;
        struct plan plan;
        struct err e = ERR_INIT;
        char shown[512];
        want.part = cases[i].part;
        for (want.parts = 0; want.parts < 2; want.parts++)
            want.np += cases[i].part[want.parts].ranks;
        hosts_from(&hosts, cases[i].hosts);
        ck_assert_msg(plan_check(&hosts, &want, &e) == 0, "%s", e.text);
        ck_assert_msg(plan_make(&plan, &hosts, hosts.count, &want, &e) == 0, "%s", e.text);
        show(&plan, shown, sizeof shown);
        ck_assert_str_eq(shown, cases[i].shown);
        plan_free(&plan);
        hosts_free(&hosts);
    }
}
END_TEST

START_TEST(too_little_room_for_a_program)
{
    struct plan_place on_b[] = {{1, 1}};
    struct plan_part part[] = {{2, 0, NULL}, {2, 1, on_b}};
    struct plan_want want = {.np = 4, .part = part, .parts = 2};
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    hosts_from(&hosts, "a:2,b:4");
    ck_assert_int_eq(plan_check(&hosts, &want, &e), -1);
    ck_assert_str_eq(e.text, "-np 2 of program 2 asks for more ranks than its hosts have slots left: 1");
    ck_assert_int_eq(err_exit_status(&e), 2);
    err_clear(&e);
    hosts_free(&hosts);
    hosts_from(&hosts, "a:2,b"); /* judged when known */
    ck_assert_int_eq(plan_check(&hosts, &want, &e), 0);
    hosts_resolve(&hosts.host[1], 8);
    on_b[0].slots = 0;
    ck_assert_msg(plan_make(&plan, &hosts, 2, &want, &e) == 0, "%s", e.text);
    plan_free(&plan);
    hosts_free(&hosts);
}
END_TEST

START_TEST(too_little_room)
{
    static const struct {
        const char *hosts;
        struct plan_want want;
        const char *text, *hint;
    } cases[] = {
        {"a:2,b:1", {.ppr = 2}, "--ppr 2 asks for more ranks on host b than its 1 slots", "--oversubscribe"},
        {"a:2,b:3", {.np = 5, .ppr = 2}, "--ppr 2 allows: 4 (a 2, b 2)", "at most 4"},
        {"a:2,b:1", {.np = 4, .by_node = true}, "slots: 3 (a 2, b 1)", "--oversubscribe"},
    };
    struct plan_want want = {.np = 6, .oversubscribe = true};
    struct host_list hosts;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hosts_from(&hosts, cases[i].hosts);
        ck_assert_int_eq(plan_check(&hosts, &cases[i].want, &e), -1);
        ck_assert_msg(strstr(e.text, cases[i].text) && strstr(e.hint, cases[i].hint), "%s (%s)", e.text,
                      e.hint);
        ck_assert_int_eq(err_exit_status(&e), 2);
        err_clear(&e);
        hosts_free(&hosts);
    }
    hosts_from(&hosts, "a:2,b:2");
    hosts.host[0].max_slots = hosts.host[1].max_slots = 3;
    ck_assert_int_eq(plan_check(&hosts, &want, &e), 0);
    want.np = 7;
    ck_assert_int_eq(plan_check(&hosts, &want, &e), -1);
    ck_assert_msg(strstr(e.text, "max_slots allows: 6 (a 3, b 3)"), "%s", e.text);
    hosts_free(&hosts);
}
END_TEST

START_TEST(more_ranks_than_slots)
{
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    hosts_from(&hosts, "node1:2,node2:3");
    ck_assert_int_eq(plan_check(&hosts, &(struct plan_want){.np = 6}, &e), -1);
    ck_assert_int_eq(err_exit_status(&e), 2);
    ck_assert_msg(strstr(e.text, "-np 6") && strstr(e.text, "slots: 5 (node1 2, node2 3)"), "%s", e.text);
    ck_assert_msg(strstr(e.hint, "at most 5 ranks"), "%s", e.hint);
    err_clear(&e);
    ck_assert_int_eq(plan_make(&plan, &hosts, hosts.count, &(struct plan_want){.np = 6}, &e), -1);
    ck_assert_msg(strstr(e.text, "5 (node1 2, node2 3)"), "%s", e.text);
    hosts_free(&hosts);
    hosts_from(&hosts, "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1");
    err_clear(&e);
    ck_assert_int_eq(plan_check(&hosts, &(struct plan_want){.np = 11}, &e), -1);
    ck_assert_msg(strstr(e.text, "10 (a 1,") && strstr(e.text, "h 1 and 2 more hosts)"), "%s", e.text);
    hosts_free(&hosts);
}
END_TEST

START_TEST(auto_slots_are_judged_when_known)
{
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    hosts_from(&hosts, "a,b:2");
    ck_assert_int_eq(plan_check(&hosts, &(struct plan_want){.np = 6}, &e), 0);
    ck_assert_int_eq(plan_make(&plan, &hosts, 2, &(struct plan_want){.np = 6}, &e), -1); /* too early */
    ck_assert_msg(strstr(e.text, "not known yet"), "%s", e.text);
    err_clear(&e);
    hosts_resolve(&hosts.host[0], 3);
    ck_assert_int_eq(plan_make(&plan, &hosts, 2, &(struct plan_want){.np = 6}, &e), -1);
    ck_assert_msg(strstr(e.text, "5 (a 3, b 2)"), "%s", e.text);
    err_clear(&e);
    ck_assert_int_eq(plan_make(&plan, &hosts, 2, &(struct plan_want){.np = 0}, &e), 0);
    ck_assert_uint_eq(plan.size, 5);
    plan_free(&plan);
    hosts_free(&hosts);
}
END_TEST

START_TEST(only_hosts_that_may_be_needed)
{
    static const struct {
        const char *hosts;
        uint32_t np;
        size_t count;
    } cases[] = {{"a:2,b:2,c:2", 0, 3}, {"a:2,b:2,c:2", 1, 1}, {"a:2,b:2,c:2", 2, 1}, {"a:2,b:2,c:2", 3, 2},
                 {"a,b,c:2", 1, 1},     {"a,b,c:2", 2, 2},     {"a,b,c:2", 3, 3},     {"a,b", 9, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host_list hosts;
        hosts_from(&hosts, cases[i].hosts);
        ck_assert_msg(plan_hosts(&hosts, &(struct plan_want){.np = cases[i].np}) == cases[i].count,
                      "%s for %u", cases[i].hosts, cases[i].np);
        hosts_free(&hosts);
    }
}
END_TEST

START_TEST(too_many_slots_without_np)
{
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    hosts_from(&hosts, "a:600000,b:600000");
    ck_assert_int_eq(plan_check(&hosts, &(struct plan_want){.np = 0}, &e), -1);
    ck_assert_msg(strstr(e.text, "1200000 slots") && strstr(e.text, "-np"), "%s", e.text);
    err_clear(&e);
    ck_assert_int_eq(plan_make(&plan, &hosts, 2, &(struct plan_want){.np = 0}, &e), -1);
    ck_assert_int_eq(plan_make(&plan, &hosts, 2, &(struct plan_want){.np = 700000}, &e), 0);
    plan_free(&plan);
    hosts_free(&hosts);
}
END_TEST

/* A million ranks; anything quadratic would not end within the time-out. */
START_TEST(a_million_ranks)
{
    static char text[20000 * 12];
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    size_t used = 0;
    for (int i = 0; i < 20000; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%sn%d:50", i ? "," : "", i);
    hosts_from(&hosts, text);
    ck_assert_int_eq(plan_make(&plan, &hosts, hosts.count, &(struct plan_want){.np = 0}, &e), 0);
    ck_assert_uint_eq(plan.size, 1000000);
    ck_assert_uint_eq(plan.rank[999999].cross_rank, 19999);
    ck_assert_uint_eq(plan.rank[999999].cross_size, 20000);
    ck_assert_uint_eq(plan.rank[999999].local_rank, 49);
    plan_free(&plan);
    hosts_free(&hosts);
}
END_TEST

/* ---- --dry-run ----------------------------------------------------------------------------------------- */

static char *dry_run(const char *hosts_text, int64_t np, bool by_node, const char *rsh)
{
    char *command[] = {"./train", "--name", "it's one", "", NULL}, *text = NULL;
    struct config config = {.num_proc = np, .rsh = rsh};
    config.programs = (struct programs){.item = &(struct program){.command = command}, .count = 1};
    config.placement.map_by = by_node ? HVD__BINDING__MAP__BY_NODE : HVD__BINDING__MAP__BY_SLOT;
    struct host_list hosts;
    struct err e = ERR_INIT;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    hosts_from(&hosts, hosts_text);
    ck_assert_msg(dry_run_print(&config, &hosts, "here", out, &e) == 0, "%s", e.text);
    fclose(out);
    hosts_free(&hosts);
    return text;
}

/* Cuts the end of the text: it is about the GPUs of the machine on which the test runs. */
static void without_gpus(char *text)
{
    char *gpus = strstr(text, "\nGPUs of this host"), *problem = strstr(text, "\nhere: ");
    if (gpus)
        *gpus = '\0';
    if (problem)
        *problem = '\0';
}

START_TEST(the_dry_run_says_what_would_run_where)
{
    char *text = dry_run("here:4,me@[::2]:4,c:2", 5, false, NULL);
    without_gpus(text);
    ck_assert_str_eq(text, "ranks: 5\n"
                           "command: ./train --name 'it'\\''s one' ''\n"
                           "\n"
                           "host      transport  slots  ranks\n"
                           "here      local          4  0-3\n"
                           "me@[::2]  ssh            4  4\n"
                           "\n"
                           "hosts not needed: 1\n");
    free(text);
    text = dry_run("a:2,b:1,c:1", 3, true, NULL);
    ck_assert_ptr_nonnull(
        strstr(text, "a     ssh            2  0\nb     ssh            1  1\nc     ssh            1  2\n"));
    free(text);
    text = dry_run("a:4,b:2", 5, true, NULL);
    ck_assert_ptr_nonnull(strstr(text, "a     ssh            4  0,2,4\nb     ssh            2  1,3\n"));
    free(text);
    text = dry_run("a:2,b,c:2", 0, false, "ssh -J gw");
    ck_assert_ptr_nonnull(strstr(text, "ranks: one for every slot\n"));
    ck_assert_ptr_nonnull(strstr(text, "a     exec           2  0-1\n"
                                       "b     exec        auto  from 2\n"
                                       "c     exec           2  after those\n"));
    free(text);
}
END_TEST

START_TEST(the_dry_run_of_too_many_ranks)
{
    char *command[] = {"x", NULL};
    struct config config = {.num_proc = 3,
                            .programs = {.item = &(struct program){.command = command}, .count = 1}};
    struct host_list hosts;
    struct err e = ERR_INIT;
    hosts_from(&hosts, "a:2");
    ck_assert_int_eq(dry_run_print(&config, &hosts, "here", stdout, &e), -1);
    ck_assert_int_eq(err_exit_status(&e), 2);
    hosts_free(&hosts);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *t = tcase_create("plan");
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 30);
    tcase_add_loop_test(t, ranks_in_blocks, 0, (int)(sizeof good / sizeof *good));
    tcase_add_loop_test(t, ranks_where_they_are_wanted, 0, (int)(sizeof placed / sizeof *placed));
    tcase_add_test(t, ranks_on_each_socket);
    tcase_add_test(t, programs_on_hosts_of_their_own);
    tcase_add_test(t, too_little_room_for_a_program);
    tcase_add_test(t, too_little_room);
    tcase_add_test(t, more_ranks_than_slots);
    tcase_add_test(t, auto_slots_are_judged_when_known);
    tcase_add_test(t, only_hosts_that_may_be_needed);
    tcase_add_test(t, too_many_slots_without_np);
    tcase_add_test(t, a_million_ranks);
    tcase_add_test(t, the_dry_run_says_what_would_run_where);
    tcase_add_test(t, the_dry_run_of_too_many_ranks);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
