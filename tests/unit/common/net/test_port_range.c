/* --port-range: what it may say; ports that are promised, listened on, taken by strangers, and forbidden.
 */
#include <check.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/net/port_range.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct {
    const char *text;
    uint16_t low, high; /* 0: refused */
} words[] = {
    {"29500", 29500, 29500},
    {"29500-29501", 29500, 29501},
    {"1-65535", 1, 65535},
    {"7-7", 7, 7},
    {"", 0, 0},
    {"-", 0, 0},
    {"0", 0, 0},
    {"0-5", 0, 0},
    {"5-0", 0, 0},
    {"6-5", 0, 0},
    {"65536", 0, 0},
    {"1-65536", 0, 0},
    {"1-2-3", 0, 0},
    {"1-2x", 0, 0},
    {" 1-2", 0, 0},
    {"1 - 2", 0, 0},
    {"+1", 0, 0},
    {"1-", 0, 0},
    {"-1", 0, 0},
    {"000001", 0, 0},
    {"http", 0, 0},
    {"99999999999999999999", 0, 0},
};

START_TEST(ranges_are_parsed)
{
    struct port_range r;
    struct err e = ERR_INIT;
    ck_assert_int_eq(port_range_parse(words[_i].text, &r, &e), words[_i].low ? 0 : -1);
    ck_assert_uint_eq(r.low, words[_i].low);
    ck_assert_uint_eq(r.high, words[_i].high);
    if (!words[_i].low) {
        ck_assert_int_eq(e.code, ERR_USAGE);
        ck_assert_ptr_nonnull(strstr(e.text, "--port-range"));
    }
}
END_TEST

START_TEST(ranges_of_messages_are_checked)
{
    static const uint32_t bad[][2] = {{0, 5}, {5, 0}, {6, 5}, {1, 65536}, {70000, 70001}};
    struct port_range r;
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_assert_int_eq(port_range_set(&r, bad[i][0], bad[i][1], NULL), -1);
    ck_assert_int_eq(port_range_set(&r, 0, 0, NULL), 0);
    ck_assert_int_eq(port_range_set(&r, 1, 65535, NULL), 0);
}
END_TEST

/* So many ports in a row that nobody has. */
static struct port_range find_range(unsigned ports)
{
    int ignored;
    for (unsigned low = 21000 + (unsigned)getpid() % 5000, n = 0; low < 32000; low++) {
        n = port_try((uint16_t)low, &ignored) ? n + 1 : 0;
        if (n == ports)
            return (struct port_range){.low = (uint16_t)(low - ports + 1), .high = (uint16_t)low};
    }
    ck_abort_msg("no %u free ports in a row", ports);
}

static int listen_in(const struct port_range *r, uint16_t *port, struct err *e)
{
    union net_address a[2];
    int fds[2];
    ck_assert_int_eq(net_parse("127.0.0.1", 0, &a[0], NULL), 0);
    ck_assert_int_eq(net_parse("127.0.0.2", 0, &a[1], NULL), 0);
    if (port_range_listen(r, a, 2, port, fds, e) < 0)
        return -1;
    close(fds[1]);
    return fds[0];
}

START_TEST(promised_ports_are_nobody_elses)
{
    struct port_range r = find_range(3);
    uint32_t one[2], other[2];
    uint16_t port;
    int claim[2], again[2];
    struct err e = ERR_INIT;
    ck_assert_int_eq(port_range_promise(&r, one, claim, 2, &e), 0);
    ck_assert_uint_eq(one[0], r.low);
    ck_assert_uint_eq(one[1], r.low + 1u);
    ck_assert_int_eq(port_range_promise(&r, other, again, 2, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "2 ports wanted on this host, 1 of 3 free (2 taken)"));
    int fd = listen_in(&r, &port, NULL);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_eq(port, r.high);
    err_clear(&e);
    ck_assert_int_eq(listen_in(&r, &port, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "1 port wanted on this host, 0 of 3 free (3 taken)"));
    close(claim[0]);
    close(claim[1]);
    ck_assert_int_eq(port_range_promise(&r, other, again, 2, NULL), 0);
    close(again[0]);
    close(again[1]);
    close(fd);
}
END_TEST

START_TEST(a_failed_promise_keeps_nothing)
{
    struct port_range r = find_range(2);
    uint32_t port[3];
    int claim[3];
    ck_assert_int_eq(port_range_promise(&r, port, claim, 3, NULL), -1);
    ck_assert_int_eq(port_range_promise(&r, port, claim, 2, NULL), 0);
    close(claim[0]);
    close(claim[1]);
}
END_TEST

START_TEST(ports_of_strangers_are_passed_over)
{
    struct port_range r = find_range(3);
    union net_address stranger;
    uint32_t promised[2];
    uint16_t port;
    int claim[2];
    ck_assert_int_eq(net_parse("127.0.0.2", r.low, &stranger, NULL), 0); /* not the first of ours */
    int fd = net_listen(&stranger, 1, NULL);
    int own = listen_in(&r, &port, NULL);
    ck_assert_int_ge(own, 0);
    ck_assert_uint_eq(port, r.low + 1u);
    ck_assert_int_eq(port_range_promise(&r, promised, claim, 1, NULL), 0);
    ck_assert_uint_eq(promised[0], r.high);
    close(claim[0]);
    close(own);
    close(fd);
}
END_TEST

/* A job whose workers use no MASTER_PORT does with one port. */
START_TEST(links_get_a_promised_port_last)
{
    struct port_range r = find_range(2);
    uint32_t promised;
    uint16_t port;
    int claim;
    ck_assert_int_eq(port_range_promise(&r, &promised, &claim, 1, NULL), 0);
    r.promised = (uint16_t)promised;
    int first = listen_in(&r, &port, NULL);
    ck_assert_uint_eq(port, r.high);
    int second = listen_in(&r, &port, NULL);
    ck_assert_int_ge(second, 0);
    ck_assert_uint_eq(port, r.low);
    ck_assert_int_eq(listen_in(&r, &port, NULL), -1);
    close(first);
    close(second);
    close(claim);
}
END_TEST

/* In a network of its own, where ports below 1024 are for root. */
START_TEST(ports_that_only_root_may_have)
{
    struct port_range r = {.low = 1022, .high = 1024}, low = {.low = 22, .high = 23};
    uint32_t port[2];
    int claim[2];
    struct err e = ERR_INIT;
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(77);
        if (port_range_promise(&r, port, claim, 1, NULL) != 0 || port[0] != 1024)
            _exit(1);
        if (port_range_promise(&low, port, claim, 1, &e) == 0)
            _exit(2);
        _exit(strstr(e.text, "0 of 2 free (2 only for root)") ? 0 : 3);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    if (WEXITSTATUS(status) != 77)
        ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("port_range");
    TCase *t = tcase_create("port_range");
    tcase_add_loop_test(t, ranges_are_parsed, 0, COUNT(words));
    tcase_add_test(t, ranges_of_messages_are_checked);
    tcase_add_test(t, promised_ports_are_nobody_elses);
    tcase_add_test(t, a_failed_promise_keeps_nothing);
    tcase_add_test(t, ports_of_strangers_are_passed_over);
    tcase_add_test(t, links_get_a_promised_port_last);
    tcase_add_test(t, ports_that_only_root_may_have);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
