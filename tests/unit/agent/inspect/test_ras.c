/* NCCL's RAS service: the socket at which it listens, and the lines of its answer. */
#include <arpa/inet.h>
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "agent/inspect/stacks_proc.h"
#include "tests/unit/run_test.h"

#define LINE(address, state, uid)                                                                            \
    "   1: " address ":6D7C 00000000:0000 " state " 00000000:00000000 00:00000000 00000000  " uid            \
    "        0 4711 1 0 100 0 0 10 0\n"

START_TEST(ports)
{
    ck_assert_uint_eq(ras_port(NULL), 28028);
    ck_assert_uint_eq(ras_port("localhost:4000"), 4000);
    ck_assert_uint_eq(ras_port("[::1]:4001"), 4001);
    ck_assert_uint_eq(ras_port("localhost"), 28028);
    ck_assert_uint_eq(ras_port("localhost:70000"), 28028);
}
END_TEST

START_TEST(sockets_of_a_user)
{
    static const struct {
        const char *line;
        bool good;
    } cases[] = {
        {LINE("0100007F", "0A", "1000"), true},
        {LINE("00000000", "0A", "1000"), true},
        {LINE("0100007F", "01", "1000"), false}, /* a connection */
        {LINE("0100007F", "0A", "1001"), false}, /* another user's */
        {LINE("0200000A", "0A", "1000"), false}, /* 10.0.0.2 */
        {LINE("00000000000000000000000001000000", "0A", "1000"), true},
        {LINE("00000000000000000000000000000000", "0A", "1000"), true},
        {LINE("000080FE000000000000000001000000", "0A", "1000"), false},
        {LINE("0100007F0", "0A", "1000"), false},
        {"  sl  local_address rem_address   st tx_queue\n", false},
        {"", false},
    };
    struct ras_listener at;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(ras_parse_tcp(cases[i].line, 28028, 1000, &at) == cases[i].good, "%zu", i);
        ck_assert(!ras_parse_tcp(cases[i].line, 28029, 1000, &at));
    }
    ck_assert(ras_parse_tcp(cases[1].line, 28028, 1000, &at));
    const struct sockaddr_in *a = (const struct sockaddr_in *)&at.address;
    ck_assert_uint_eq(ntohl(a->sin_addr.s_addr), INADDR_LOOPBACK);
    ck_assert_uint_eq(ntohs(a->sin_port), 28028);
    ck_assert_uint_eq(at.inode, 4711);
}
END_TEST

START_TEST(its_own_socket)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    struct ras_listener at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    ck_assert(!ras_find(ntohs(a.sin_port), &at));
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert(ras_find(ntohs(a.sin_port), &at));
    ck_assert_int_eq(ras_holder(getpid(), at.inode), getpid());
    ck_assert_int_eq(ras_holder(getpid(), at.inode + 1), 0);
    close(fd);
    ck_assert_int_eq(ras_holder(getpid(), at.inode), 0);
}
END_TEST

START_TEST(lines_of_an_answer)
{
    char text[] = "NCCL version 2.27\n\nJob summary\n===\n  4 8\nCommunicators... (0.00s)\n=====\n\n  "
                  "RUNNING \033[1mOK\nErrors\n";
    char many[3 * RAS_LINES_MAX + RAS_LINE_MAX + 10] = "", *line[RAS_LINES_MAX];
    ck_assert_uint_eq(ras_lines(text, line), 3);
    ck_assert_str_eq(line[0], "Communicators... (0.00s)");
    ck_assert_ptr_null(strchr(line[1], '\033'));
    ck_assert_str_eq(line[2], "Errors");
    memset(many, 'x', RAS_LINE_MAX + 9);
    for (int i = 0; i <= RAS_LINES_MAX; i++)
        memcpy(many + RAS_LINE_MAX + 9 + 2 * i, "\ny", 3);
    ck_assert_uint_eq(ras_lines(many, line), RAS_LINES_MAX);
    ck_assert_uint_eq(strlen(line[0]), RAS_LINE_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ras");
    TCase *c = tcase_create("ras");
    tcase_add_test(c, ports);
    tcase_add_test(c, sockets_of_a_user);
    tcase_add_test(c, its_own_socket);
    tcase_add_test(c, lines_of_an_answer);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
