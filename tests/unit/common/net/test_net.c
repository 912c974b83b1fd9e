/* Addresses: what --network-interfaces lets through and in which order; numeric forms; sockets on loopback.
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/net/net.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct net_candidate candidate(const char *interface, const char *address, bool up)
{
    struct net_candidate c = {.up = up};
    snprintf(c.interface, sizeof c.interface, "%s", interface);
    ck_assert_int_eq(net_parse(address, 0, &c.address, NULL), 0);
    return c;
}

/* The answer to `entries` on one busy host, as text. */
static const char *filtered(const char *const *entry, size_t entries)
{
    static char text[512];
    const struct net_candidate list[] = {
        candidate("lo", "127.0.0.1", true),  candidate("docker0", "172.17.0.1", true),
        candidate("eth0", "10.1.2.3", true), candidate("eth1", "192.168.7.9", true),
        candidate("ib0", "10.9.0.1", true),  candidate("eth2", "10.200.0.1", false),
        candidate("lo", "::1", true),        candidate("eth0", "fd00::12", true),
        candidate("eth0", "fe80::12", true),
    };
    union net_address out[16];
    char address[NET_TEXT_MAX];
    struct err e = ERR_INIT;
    int n = net_filter(list, COUNT(list), entry, entries, out, COUNT(out), &e);
    text[0] = '\0';
    if (n < 0)
        return "error";
    for (int i = 0; i < n; i++) {
        strncat(text, i ? " " : "", sizeof text - strlen(text) - 1);
        strncat(text, net_format(&out[i], address), sizeof text - strlen(text) - 1);
    }
    return text;
}

static const struct {
    const char *entry[3];
    const char *answer;
} filters[] = {
    {{NULL}, "10.1.2.3 192.168.7.9 10.9.0.1 fd00::12 172.17.0.1"},
    {{"eth0"}, "10.1.2.3 fd00::12"},
    {{"ib0", "eth1"}, "10.9.0.1 192.168.7.9"},
    {{"eth*"}, "10.1.2.3 192.168.7.9 fd00::12"},
    {{"10.0.0.0/8"}, "10.1.2.3 10.9.0.1"},
    {{"10.0.0.0/12"}, "10.1.2.3 10.9.0.1"},
    {{"10.0.0.0/13"}, "10.1.2.3"},
    {{"fd00::/8"}, "fd00::12"},
    {{"0.0.0.0/0"}, "127.0.0.1 172.17.0.1 10.1.2.3 192.168.7.9 10.9.0.1"},
    {{"::/0"}, "::1 fd00::12"},
    {{"192.168.7.9"}, "192.168.7.9"},
    {{"^ib0"}, "10.1.2.3 192.168.7.9 fd00::12 172.17.0.1"},
    {{"^10.0.0.0/8", "^docker*"}, "192.168.7.9 fd00::12"},
    {{"10.0.0.0/8", "^ib0"}, "10.1.2.3"},
    {{"^eth*", "^ib0", "^docker0"}, "127.0.0.1 ::1"},
    {{"lo"}, "127.0.0.1 ::1"},
    {{"eth2"}, ""},
    {{"eth9"}, ""},
    {{"10.0.0.0/33"}, "error"},
    {{"fd00::/129"}, "error"},
    {{"10.0.0.0/"}, "error"},
    {{"10.0.0.0/ 8"}, "error"},
    {{"10.0.0.0/-1"}, "error"},
    {{"eth0/8"}, "error"},
    {{"10.0.0.300"}, "error"},
    {{""}, "error"},
    {{"^"}, "error"},
    {{"e*h"}, "error"},
    {{"a-name-that-is-too-long"}, "error"},
    {{"eth0", "^"}, "error"},
};

START_TEST(interfaces_are_filtered)
{
    size_t n = 0;
    while (n < COUNT(filters[_i].entry) && filters[_i].entry[n])
        n++;
    ck_assert_str_eq(filtered(filters[_i].entry, n), filters[_i].answer);
    ck_assert_int_eq(net_filter_check(filters[_i].entry, n, NULL),
                     strcmp(filters[_i].answer, "error") ? 0 : -1);
}
END_TEST

static const struct {
    const char *text;
    const char *answer; /* with port 9 as the default; NULL: refused */
} parses[] = {
    {"10.0.0.1", "10.0.0.1:9"},
    {"10.0.0.1:22", "10.0.0.1:22"},
    {"::1", "[::1]:9"},
    {"[::1]", "[::1]:9"},
    {"[::1]:22", "[::1]:22"},
    {"fe80::1:2", "[fe80::1:2]:9"},
    {"[10.0.0.1]:22", NULL},
    {"[::1", NULL},
    {"[::1]22", NULL},
    {"[::1]:", NULL},
    {"10.0.0.1:65536", NULL},
    {"10.0.0.1:-1", NULL},
    {"10.0.0.1:x", NULL},
    {"10.0.0", NULL},
    {"localhost", NULL},
    {"", NULL},
    {"[]:22", NULL},
    {":22", NULL},
    {"10.0.0.1:00000000000000000000022", "10.0.0.1:22"},
    {"1111:2222:3333:4444:5555:6666:7777:8888:9999:1111:2222:3333:4444:5555", NULL},
};

START_TEST(addresses_are_parsed)
{
    union net_address a;
    char text[NET_TEXT_MAX];
    struct err e = ERR_INIT;
    int rc = net_parse(parses[_i].text, 9, &a, &e);
    ck_assert_int_eq(rc, parses[_i].answer ? 0 : -1);
    if (parses[_i].answer)
        ck_assert_str_eq(net_format_port(&a, text), parses[_i].answer);
    else
        ck_assert_ptr_nonnull(strstr(e.text, "is not a numeric address"));
}
END_TEST

START_TEST(this_host_has_addresses)
{
    union net_address a[NET_ADDRESSES_MAX];
    struct err e = ERR_INIT;
    const char *none[] = {"no-such-if"}, *loopback[] = {"127.0.0.0/8"};
    ck_assert_int_ge(net_local_addresses(NULL, 0, a, NET_ADDRESSES_MAX, &e), 1);
    ck_assert_int_eq(net_local_addresses(loopback, 1, a, NET_ADDRESSES_MAX, &e), 1);
    ck_assert_int_eq(net_local_addresses(none, 1, a, NET_ADDRESSES_MAX, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "no-such-if"));
}
END_TEST

START_TEST(one_port_on_all_addresses)
{
    union net_address a[2];
    struct err e = ERR_INIT;
    int fds[2], again[2];
    uint16_t port = 0, taken;
    ck_assert_int_eq(net_parse("127.0.0.1", 0, &a[0], NULL), 0);
    ck_assert_int_eq(net_parse("127.0.0.2", 0, &a[1], NULL), 0);
    ck_assert_msg(net_listen_all(a, 2, &port, fds, &e) == 0, "%s", e.text);
    ck_assert_uint_ne(port, 0);
    taken = port;
    ck_assert_int_eq(net_listen_all(a, 2, &taken, again, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "cannot listen at 127.0.0.1:"));
    net_set_port(&a[1], port);
    int fd = net_connect(&a[1], NULL);
    struct pollfd p[] = {{fd, POLLOUT, 0}, {fds[1], POLLIN, 0}};
    ck_assert_int_ge(poll(p, 2, 2000), 1);
    ck_assert_int_eq(poll(&p[1], 1, 2000), 1);
    ck_assert_int_eq(net_connected(fd, NULL), 0);
    int other = net_accept(fds[1], &a[0]);
    ck_assert_int_ge(other, 0);
    close(other);
    close(fd);
    close(fds[0]);
    close(fds[1]);
    fd = net_connect(&a[1], NULL); /* nobody listens now */
    struct pollfd q = {fd, POLLOUT, 0};
    ck_assert_int_eq(poll(&q, 1, 2000), 1);
    ck_assert_int_eq(net_connected(fd, &e), -1);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("net");
    TCase *c = tcase_create("net");
    tcase_add_loop_test(c, interfaces_are_filtered, 0, COUNT(filters));
    tcase_add_loop_test(c, addresses_are_parsed, 0, COUNT(parses));
    tcase_add_test(c, this_host_has_addresses);
    tcase_add_test(c, one_port_on_all_addresses);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
