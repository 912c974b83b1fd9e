/* The script that names the hosts: what it prints, and how it fails. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/elastic/discovery.h"

struct answer {
    struct host_list hosts;
    struct err e;
    int times;
};

static void on_found(void *ctx, struct host_list *hosts, const struct err *e)
{
    struct answer *a = ctx;
    a->times++;
    a->e = *e;
    if (hosts)
        a->hosts = *hosts;
}

static struct answer ask_script(const char *script)
{
    struct answer a = {.times = 0};
    struct discovery d;
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    discovery_init(&d, &loop, script, 3, on_found, &a);
    discovery_start(&d);
    discovery_start(&d); /* one at a time */
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(a.times, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return a;
}

START_TEST(it_prints_hosts)
{
    struct answer a = ask_script("printf 'node1:4\\nnode2\\n'");
    ck_assert_str_eq(a.e.text, "");
    ck_assert_uint_eq(a.hosts.count, 2);
    ck_assert_str_eq(a.hosts.host[0].name, "node1");
    ck_assert_uint_eq(a.hosts.host[0].slots, 4);
    ck_assert_uint_eq(a.hosts.host[1].slots, 3); /* as given for hosts without a number */
    hosts_free(&a.hosts);
}
END_TEST

START_TEST(no_host_is_an_answer)
{
    struct answer a = ask_script("echo; echo ' '");
    ck_assert_str_eq(a.e.text, "");
    ck_assert_uint_eq(a.hosts.count, 0);
}
END_TEST

static const struct {
    const char *script, *text;
} failures[] = {
    {"exit 3", "--host-discovery-script: exit 3 ended with exit status 3"},
    {"kill -9 $$", "was killed by signal 9"},
    {"echo 'a b c:d:e'", "--host-discovery-script"},
    {"/no/such/script", "ended with exit status 127"},
};

START_TEST(failures_name_the_script)
{
    struct answer a = ask_script(failures[_i].script);
    ck_assert_int_ne(a.e.code, 0);
    ck_assert_msg(strstr(a.e.text, failures[_i].text) != NULL, "%s", a.e.text);
}
END_TEST

/* The job ends while the script runs: nothing is left of it. */
START_TEST(a_run_is_stopped)
{
    struct answer a = {.times = 0};
    struct discovery d;
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    discovery_init(&d, &loop, "sleep 60", 0, on_found, &a);
    discovery_start(&d);
    uv_run(&loop, UV_RUN_NOWAIT);
    discovery_stop(&d);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(a.times, 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(the_first_answer_has_slots_enough)
{
    char path[] = "/tmp/test-discovery-XXXXXX", script[200];
    struct host_list hosts;
    struct err e = ERR_INIT;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    /* One slot, and two at the second time. */
    snprintf(script, sizeof script, "echo x >> %s; echo a:$(wc -l < %s)", path, path);
    ck_assert_msg(discovery_first(script, 0, 2, 10000, &hosts, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(hosts.host[0].slots, 2);
    hosts_free(&hosts);
    ck_assert_int_eq(discovery_first("echo a:1", 0, 2, 500, &hosts, &e), -1);
    ck_assert_msg(strstr(e.text, "have 1 slots for 2 ranks") != NULL, "%s", e.text);
    e = (struct err)ERR_INIT;
    ck_assert_int_eq(discovery_first("exit 1", 0, 2, 10000, &hosts, &e), -1);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("discovery");
    TCase *c = tcase_create("discovery");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, it_prints_hosts);
    tcase_add_test(c, no_host_is_an_answer);
    tcase_add_loop_test(c, failures_name_the_script, 0, (int)(sizeof failures / sizeof *failures));
    tcase_add_test(c, a_run_is_stopped);
    tcase_add_test(c, the_first_answer_has_slots_enough);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
