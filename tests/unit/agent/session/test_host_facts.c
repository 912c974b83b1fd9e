/* Facts that a session tells of its host: a port for the workers, and the interfaces of its addresses. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/session/host_facts.h"

/* Free, each another one, and none of those that the kernel gives away by itself. */
START_TEST(free_ports)
{
    static uint32_t port[500];
    static bool seen[UINT16_MAX + 1];
    unsigned first = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    ck_assert(f && fscanf(f, "%u", &first) == 1);
    fclose(f);
    ck_assert_uint_eq(host_free_ports(port, 500), 500);
    for (int i = 0; i < 500; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port[i])};
        ck_assert_uint_gt(port[i], 0);
        ck_assert(!seen[port[i]]);
        seen[port[i]] = true;
        if (first > 20000)
            ck_assert_uint_lt(port[i], first);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
        close(fd);
    }
}
END_TEST

START_TEST(interfaces)
{
    char *loopback[] = {(char *)"127.0.0.1", (char *)"127.0.0.1", (char *)"::1"};
    char *stranger[] = {(char *)"192.0.2.77", (char *)"no address", (char *)"127.0.0.1"};
    char names[64], narrow[2];
    host_interfaces(NULL, 0, names, sizeof names);
    ck_assert_str_eq(names, "lo");
    host_interfaces(loopback, 3, names, sizeof names);
    ck_assert_str_eq(names, "lo");
    host_interfaces(stranger, 3, names, sizeof names);
    ck_assert_str_eq(names, "lo");
    host_interfaces(stranger, 2, names, sizeof names);
    ck_assert_str_eq(names, "");
    host_interfaces(loopback, 1, narrow, sizeof narrow);
    ck_assert_str_eq(narrow, "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host_facts");
    TCase *t = tcase_create("host_facts");
    tcase_add_test(t, free_ports);
    tcase_add_test(t, interfaces);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
