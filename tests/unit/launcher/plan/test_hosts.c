/* Hosts: what people write is read, and everything else is refused with the entry, and for files path and
 * line, in the message. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/plan/hosts.h"
#include "tests/unit/scratch.h"

#define X16  "xxxxxxxxxxxxxxxx"
#define X256 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16

/* "user@name slots max;" of every host. */
static void show(const struct host_list *list, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < list->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s%s %u %u;",
                                 list->host[i].user ? list->host[i].user : "", list->host[i].user ? "@" : "",
                                 list->host[i].name, list->host[i].slots, list->host[i].max_slots);
}

static const struct {
    const char *text, *shown;
} good[] = {
    {"a", "a 0 0;"},
    {"a:4,b:2", "a 4 0;b 2 0;"},
    {"a:1,b:2,a:3", "a 4 0;b 2 0;"},
    {"Node1:1,node1:3", "Node1 4 0;"},
    {"a,b,a,a", "a 3 0;b 0 0;"},
    {"me@a:4", "me@a 4 0;"},
    {"me@realm.org@a:4", "me@realm.org@a 4 0;"},
    {"10.0.0.1:2", "10.0.0.1 2 0;"},
    {"[::1]:2", "::1 2 0;"},
    {"[::1]", "::1 0 0;"},
    {"user@[fe80::1%eth0]:2,[fe80::1]:3", "user@fe80::1%eth0 2 0;fe80::1 3 0;"},
    {"a:1000000", "a 1000000 0;"},
    {"a:0004", "a 4 0;"},
};

START_TEST(good_lists)
{
    struct host_list list;
    struct err e = ERR_INIT;
    char shown[512];
    ck_assert_msg(hosts_parse(&list, good[_i].text, "-H/--hosts", &e) == 0, "%s: %s", good[_i].text, e.text);
    show(&list, shown, sizeof shown);
    ck_assert_str_eq(shown, good[_i].shown);
    hosts_free(&list);
    ck_assert_uint_eq(list.count, 0);
}
END_TEST

static const struct {
    const char *text, *said, *why;
} bad[] = {
    {"", "-H", "empty"},
    {",", "-H", "entry 1 is empty"},
    {"a,,b", "'a,,b'", "entry 2 is empty"},
    {"a:2,", "'a:2,'", "entry 2 is empty"},
    {"host:", "'host:'", "missing after ':'"},
    {"a:2,host:", "'host:'", "from 1 to 1000000"},
    {"host:-1", "'host:-1'", "from 1 to 1000000"},
    {"host:0", "'host:0'", "from 1 to 1000000"},
    {"host:x", "'host:x'", "from 1 to 1000000"},
    {"host:4x", "'host:4x'", "from 1 to 1000000"},
    {"host: 4", "'host: 4'", "from 1 to 1000000"},
    {"host:1000001", "'host:1000001'", "from 1 to 1000000"},
    {"host:18446744073709551617", "'host:18446744073709551617'", "from 1 to 1000000"},
    {":4", "':4'", "name of the host is empty"},
    {"@a:4", "'@a:4'", "user"},
    {"me@:4", "'me@:4'", "name of the host is empty"},
    {"[::1:2", "'[::1:2'", "']' is missing"},
    {"[::1]2", "'[::1]2'", "after ']'"},
    {"[]:2", "'[]:2'", "IPv6"},
    {"[a]:2", "'[a]:2'", "IPv6"},
    {"[::1%]:2", "'[::1%]:2'", "IPv6"},
    {"[::1%;rm]:2", "'[::1%;rm]:2'", "IPv6"},
    {"[::1]:", "'[::1]:'", "missing after ':'"},
    {"::1", "'::1'", "brackets"},
    {"fe80::1:2", "'fe80::1:2'", "brackets"},
    {"a b", "'a b'", "name of a host"},
    {"-oProxyCommand=x:2", "'-oProxyCommand=x:2'", "name of a host"},
    {"-a", "'-a'", "not begin with '-'"},
    {"-me@a", "'-me@a'", "user"},
    {"m;e@a", "'m;e@a'", "user"},
    {"a$(id):2", "'a$(id):2'", "name of a host"},
    {"a/b", "'a/b'", "name of a host"},
    {"a:2,a", "'a'", "slots every time or never"},
    {"a,a:2", "'a:2'", "slots every time or never"},
    {"a:2,me@a:2", "'me@a:2'", "another user"},
    {"me@a:2,you@a:2", "'you@a:2'", "another user"},
    {"a:600000,a:600000", "'a:600000'", "more than 1000000"},
    {X256, "'xxx", "longer than 255"},
    {X16 X16 X16 X16 "x@a", "'xxx", "longer than 64"},
};

START_TEST(bad_lists)
{
    struct host_list list = {(void *)1, 1};
    struct err e = ERR_INIT;
    ck_assert_msg(hosts_parse(&list, bad[_i].text, "-H/--hosts", &e) == -1, "accepted: %s", bad[_i].text);
    ck_assert_int_eq(err_exit_status(&e), 2);
    ck_assert_msg(strstr(e.text, bad[_i].said) && strstr(e.text, bad[_i].why), "%s: %s", bad[_i].text,
                  e.text);
    ck_assert_msg(strlen(e.text) < 300, "%s", e.text);
    ck_assert(list.count == 0 && !list.host);
}
END_TEST

static int parse_file(struct host_list *list, const char *text, struct err *e)
{
    return hosts_parse_file(list, text, strlen(text), "hosts.txt", e);
}

static const struct {
    const char *text, *shown;
} good_file[] = {
    {"a\n", "a 0 0;"},
    {"a", "a 0 0;"},
    {"# all\n\n  a slots=4   # fast\r\n\tb:2\r\n\r\n#c\n", "a 4 0;b 2 0;"},
    {"a slots=4 max_slots=8\nb max-slots=2\n", "a 4 8;b 0 2;"},
    {"a slots = 4 max_slots= 8\nb slots =2 # c\n", "a 4 8;b 2 0;"},
    {"a MAX_SLOTS=8 Slots=4", "a 4 8;"},
    {"me@a slots=4\nme@a:2", "me@a 6 0;"},
    {"[::1] slots=2\nu@[::2]:3", "::1 2 0;u@::2 3 0;"},
    {"n1\nn1\nn2\nn2\n", "n1 2 0;n2 2 0;"},
    {"a slots=2 max_slots=9\na slots=2 max_slots=4", "a 4 4;"},
};

START_TEST(good_files)
{
    struct host_list list;
    struct err e = ERR_INIT;
    char shown[512];
    ck_assert_msg(parse_file(&list, good_file[_i].text, &e) == 0, "%s", e.text);
    show(&list, shown, sizeof shown);
    ck_assert_str_eq(shown, good_file[_i].shown);
    hosts_free(&list);
}
END_TEST

static const struct {
    const char *text, *where, *why;
} bad_file[] = {
    {"", "hosts.txt", "no host"},
    {"# nothing\n\n", "hosts.txt", "no host"},
    {"a\nb:\n", "hosts.txt:2: 'b:'", "from 1 to 1000000"},
    {"a\n\n# c\nb slots=\n", "hosts.txt:4: 'slots='", "from 1 to 1000000"},
    {"a slots=0\n", "hosts.txt:1: 'slots=0'", "from 1 to 1000000"},
    {"a slots=-1\n", "hosts.txt:1: 'slots=-1'", "from 1 to 1000000"},
    {"a slots=4x\n", "hosts.txt:1: 'slots=4x'", "from 1 to 1000000"},
    {"a slots=99999999999999999999\n", "hosts.txt:1: 'slots=999", "from 1 to 1000000"},
    {"a slots =\n", "hosts.txt:1: 'slots ='", "from 1 to 1000000"},
    {"a = 4\n", "hosts.txt:1: '= 4'", "slots=N"},
    {"a slots = 4 slots = 5\n", "hosts.txt:1: 'slots = 5'", "twice"},
    {"a 4\n", "hosts.txt:1: '4'", "slots=N"},
    {"a:4 slots=4\n", "hosts.txt:1: 'slots=4'", "twice"},
    {"a max_slots=2 max-slots=2\n", "hosts.txt:1: 'max-slots=2'", "twice"},
    {"a slots=4 max_slots=2\n", "hosts.txt:1: 'a'", "max_slots"},
    {"a slots=2 max_slots=3\na slots=2\n", "hosts.txt:2: 'a'", "max_slots"},
    {"a cores=4\n", "hosts.txt:1: 'cores=4'", "slots=N"},
    {"a,b\n", "hosts.txt:1: 'a,b'", "name of a host"},
    {"::1\n", "hosts.txt:1: '::1'", "brackets"},
    {"[::1 slots=2\n", "hosts.txt:1: '[::1'", "']' is missing"},
    {"slots=4\n", "hosts.txt:1: 'slots=4'", "name of a host"},
    {"a\n\x7f"
     "ELF\n",
     "hosts.txt:2:", "name of a host"},
};

START_TEST(bad_files)
{
    struct host_list list;
    struct err e = ERR_INIT;
    ck_assert_msg(parse_file(&list, bad_file[_i].text, &e) == -1, "accepted: %s", bad_file[_i].text);
    ck_assert_int_eq(err_exit_status(&e), 2);
    ck_assert_msg(strstr(e.text, bad_file[_i].where) && strstr(e.text, bad_file[_i].why), "%s: %s",
                  bad_file[_i].text, e.text);
    ck_assert_ptr_null(list.host);
}
END_TEST

START_TEST(a_nul_byte_and_a_long_line_are_named)
{
    static char long_line[6000];
    struct host_list list;
    struct err e = ERR_INIT;
    ck_assert_int_eq(hosts_parse_file(&list, "a\nb\0c\n", 6, "hosts.txt", &e), -1);
    ck_assert_msg(strstr(e.text, "hosts.txt:2: a NUL byte"), "%s", e.text);
    err_clear(&e);
    memset(long_line, ' ', sizeof long_line);
    ck_assert_int_eq(hosts_parse_file(&list, long_line, sizeof long_line, "hosts.txt", &e), -1);
    ck_assert_msg(strstr(e.text, "hosts.txt:1: the line is longer"), "%s", e.text);
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
    struct host_list list;
    struct err e = ERR_INIT;
    ck_assert_int_eq(hosts_read_file(&list, "/nonexistent/hosts", &e), -1);
    ck_assert_msg(strstr(e.text, "/nonexistent/hosts: No such file"), "%s", e.text);
    ck_assert_int_eq(err_exit_status(&e), 2);
    err_clear(&e);
    ck_assert_int_eq(hosts_read_file(&list, "/tmp", &e), -1);
    ck_assert_msg(strstr(e.text, "/tmp: Is a directory"), "%s", e.text);
    err_clear(&e);
    ck_assert_int_eq(hosts_read_file(&list, "/dev/null", &e), -1);
    ck_assert_msg(strstr(e.text, "/dev/null: no host"), "%s", e.text);
    err_clear(&e);
    ck_assert_int_eq(hosts_read_file(&list, "/dev/zero", &e), -1); /* endless: it ends at the limit */
    ck_assert_msg(strstr(e.text, "/dev/zero"), "%s", e.text);
}
END_TEST

START_TEST(a_file_is_read)
{
    char path[SCRATCH_MAX], shown[64];
    struct host_list list;
    struct err e = ERR_INIT;
    int fd = scratch_file(path, "hosts");
    ck_assert(fd >= 0 && write(fd, "a:2\n", 4) == 4);
    close(fd);
    ck_assert_int_eq(hosts_read_file(&list, path, &e), 0);
    unlink(path);
    show(&list, shown, sizeof shown);
    ck_assert_str_eq(shown, "a 2 0;");
    hosts_free(&list);
}
END_TEST

/* Quadratic work would take minutes here; the loop over names is what the hash is for. */
START_TEST(many_hosts)
{
    static char text[HOSTS_MAX * 12 + 64];
    struct host_list list;
    struct err e = ERR_INIT;
    size_t used = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < HOSTS_MAX / 2; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "n%d:1\n", i);
    ck_assert_msg(hosts_parse_file(&list, text, used, "hosts.txt", &e) == 0, "%s", e.text);
    ck_assert_uint_eq(list.count, HOSTS_MAX / 2);
    ck_assert_uint_eq(list.host[HOSTS_MAX / 2 - 1].slots, 2);
    ck_assert_uint_eq(list.host[1].line, 2);
    hosts_free(&list);
    used = 0;
    for (int i = 0; i <= HOSTS_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "n%d\n", i);
    ck_assert_int_eq(hosts_parse_file(&list, text, used, "hosts.txt", &e), -1);
    ck_assert_msg(strstr(e.text, "hosts.txt:65537: more than 65536 hosts"), "%s", e.text);
}
END_TEST

START_TEST(auto_is_resolved_once_and_capped)
{
    struct host_list list;
    struct err e = ERR_INIT;
    ck_assert_int_eq(parse_file(&list, "a\nb max_slots=2\nc:3\nd", &e), 0);
    for (size_t i = 0; i < 3; i++)
        hosts_resolve(&list.host[i], 8);
    hosts_resolve(&list.host[3], 0);
    ck_assert_uint_eq(list.host[0].slots, 8);
    ck_assert_uint_eq(list.host[1].slots, 2);
    ck_assert_uint_eq(list.host[2].slots, 3);
    ck_assert_uint_eq(list.host[3].slots, 1);
    hosts_resolve(&list.host[0], 4);
    ck_assert_uint_eq(list.host[0].slots, 8);
    hosts_free(&list);
}
END_TEST

START_TEST(which_hosts_are_this_one)
{
    static const struct {
        const char *text, *hostname;
        bool local;
    } cases[] = {{"localhost", NULL, true},
                 {"LocalHost:2", "n1", true},
                 {"127.0.0.1", "n1", true},
                 {"127.0.0.2", "n1", false},
                 {"[::1]:2", "n1", true},
                 {"[::2]:2", "n1", false},
                 {"n1", "n1", true},
                 {"n1", "n1.site", true},
                 {"n1.site", "n1.site", true},
                 {"n1.other", "n1.site", false},
                 {"n1.site", "n1", false},
                 {"n11", "n1", false},
                 {"n", "n1", false},
                 {"me@localhost", "n1", false},
                 {"n1", "", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host_list list;
        struct err e = ERR_INIT;
        ck_assert_int_eq(hosts_parse(&list, cases[i].text, "-H/--hosts", &e), 0);
        ck_assert_msg(hosts_is_local(&list.host[0], cases[i].hostname) == cases[i].local, "%s",
                      cases[i].text);
        hosts_free(&list);
    }
}
END_TEST

static int asked;

static void name_a_pod(const char *hostname, char *full, size_t size)
{
    asked++;
    snprintf(full, size, "%s.train.default.svc.cluster.local", hostname);
}

START_TEST(names_that_begin_the_full_one)
{
    static const struct {
        const char *text;
        bool local, asks;
    } cases[] = {{"pod-0.train", true, true},
                 {"POD-0.train.default", true, true},
                 {"pod-0.train.default.svc.cluster.local", true, true},
                 {"pod-0.trai", false, true},
                 {"pod-0.other", false, true},
                 {"pod-0.train.default.svc.cluster.local.x", false, true},
                 {"pod-1.train", false, false},
                 {"pod-0", true, false},
                 {"pod-01.train", false, false},
                 {"me@pod-0.train", false, true},
                 {"10.0.0.1", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host_list list;
        struct err e = ERR_INIT;
        asked = 0;
        ck_assert_int_eq(hosts_parse(&list, cases[i].text, "-H/--hosts", &e), 0);
        hosts_mark_own(&list, "pod-0", name_a_pod);
        ck_assert_msg(hosts_is_local(&list.host[0], "pod-0") == cases[i].local, "%s", cases[i].text);
        ck_assert_msg(asked == cases[i].asks, "%s", cases[i].text);
        hosts_free(&list);
    }
}
END_TEST

START_TEST(localhost_alone)
{
    struct host_list list;
    struct err e = ERR_INIT;
    ck_assert_int_eq(hosts_localhost(&list, 4, &e), 0);
    ck_assert_uint_eq(list.count, 1);
    ck_assert_uint_eq(list.host[0].slots, 4);
    ck_assert(hosts_is_local(&list.host[0], NULL));
    hosts_free(&list);
}
END_TEST

#define LENGTH(a) (int)(sizeof(a) / sizeof *(a))

int main(void)
{
    Suite *suite = suite_create("hosts");
    TCase *t = tcase_create("hosts");
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 30);
    tcase_add_loop_test(t, good_lists, 0, LENGTH(good));
    tcase_add_loop_test(t, bad_lists, 0, LENGTH(bad));
    tcase_add_loop_test(t, good_files, 0, LENGTH(good_file));
    tcase_add_loop_test(t, bad_files, 0, LENGTH(bad_file));
    tcase_add_test(t, a_nul_byte_and_a_long_line_are_named);
    tcase_add_test(t, files_that_cannot_be_read);
    tcase_add_test(t, a_file_is_read);
    tcase_add_test(t, many_hosts);
    tcase_add_test(t, auto_is_resolved_once_and_capped);
    tcase_add_test(t, which_hosts_are_this_one);
    tcase_add_test(t, names_that_begin_the_full_one);
    tcase_add_test(t, localhost_alone);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
