/* Clients that a listener admits, and a listener without free descriptors: real connections on loopback.
 * Other users are played by children that become `nobody`, which needs root. */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/rendezvous/lazy_listener.h"
#include "common/net/net.h"

#define NOBODY 65534

enum after { STAYS, CLOSES }; /* the child after its first bytes */

static uv_loop_t loop;
static struct lazy_listener door;
static int came;

static void on_client(void *ctx, int fd)
{
    (void)ctx;
    came++;
    close(fd);
}

static void set_up(void)
{
    struct err e = ERR_INIT;
    came = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_msg(lazy_listener_open(&door, &loop, on_client, NULL, &e) == 0, "%s", e.text);
}

static void tear_down(void)
{
    lazy_listener_close(&door);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void on_time(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

/* Until somebody has come in, or so long; returns how often the loop has turned. */
static unsigned turn(unsigned ms, int until)
{
    bool over = false;
    unsigned turns = 0;
    uv_timer_t timer = {.data = &over};
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_time, ms, 0);
    for (; !over && came < until; turns++)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return turns;
}

static int dial(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A child that says a byte as `uid`; it has when this returns. */
static pid_t speaker(uint16_t port, uid_t uid, enum after after)
{
    int said[2];
    char byte = 0;
    ck_assert_int_eq(pipe(said), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(said[0]);
        if (uid != geteuid() && setuid(uid) < 0)
            _exit(1);
        int fd = dial(port);
        if (write(fd, "x", 1) != 1)
            _exit(1);
        if (after == CLOSES)
            close(fd);
        if (write(said[1], "x", 1) != 1)
            _exit(1);
        _exit(after == STAYS && read(fd, &byte, 1) > 0); /* until it is closed */
    }
    close(said[1]);
    ck_assert_int_eq(read(said[0], &byte, 1), 1);
    close(said[0]);
    return pid;
}

static void gone(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

START_TEST(ours_comes_in_when_it_has_said_something)
{
    int fd = dial(door.port);
    turn(50, 1);
    ck_assert_int_eq(came, 0);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    turn(5000, 1);
    ck_assert_int_eq(came, 1);
    close(fd);
    for (int i = 0; i < 200; i++) {
        pid_t pid = speaker(door.port, geteuid(), STAYS);
        turn(5000, i + 2);
        gone(pid);
    }
    ck_assert_int_eq(came, 201);
}
END_TEST

START_TEST(another_user_does_not)
{
    pid_t pid = speaker(door.port, NOBODY, STAYS);
    turn(300, 1);
    gone(pid); /* it is closed */
    ck_assert_int_eq(came, 0);
}
END_TEST

/* For a socket that no process has open the kernel names root as the owner. */
START_TEST(who_has_left_is_not_taken_for_root)
{
    gone(speaker(door.port, geteuid() == 0 ? NOBODY : geteuid(), CLOSES));
    poll(NULL, 0, 300); /* by then its end is acknowledged, and the kernel keeps no user of it */
    turn(300, 1);
    ck_assert_int_eq(came, 0);
}
END_TEST

/* The owner by the kernel's answer, and by its table where it does not answer. */
START_TEST(owners)
{
    union net_address at, from;
    struct err e = ERR_INIT;
    uid_t other = geteuid() == 0 ? NOBODY : geteuid();
    for (int table = 0; table < 2; table++) {
        ck_assert_int_eq(net_parse("127.0.0.1", 0, &at, &e), 0);
        int listener = net_listen(&at, 10, &e);
        pid_t stays = speaker(net_port(&at), other, STAYS);
        int first = net_accept(listener, &from);
        gone(speaker(net_port(&at), other, CLOSES));
        int second = net_accept(listener, &from);
        ck_assert(first >= 0 && second >= 0);
        struct peer_owner p = {0};
        for (int i = 0; i < 3; i++) { /* also after the one that fails */
            uid_t uid = 12345;
            if (table) { /* a netlink that takes no question */
                p.netlink = open("/dev/null", O_RDWR | O_CLOEXEC);
                p.open = true;
            }
            e = (struct err)ERR_INIT;
            ck_assert_msg(peer_owner(&p, first, &uid, &e) == 0, "%s", e.text);
            ck_assert_uint_eq(uid, other);
            if (table) {
                p.netlink = open("/dev/null", O_RDWR | O_CLOEXEC);
                p.open = true;
            }
            ck_assert_int_eq(peer_owner(&p, second, &uid, &e), -1);
            ck_assert_int_eq(e.code, ERR_CLOSED);
        }
        peer_owner_close(&p);
        close(first);
        close(second);
        close(listener);
        gone(stays);
    }
}
END_TEST

/* A connection is closed then, the loop does not spin, and the next connection is admitted. */
START_TEST(no_descriptor_is_left)
{
    int taken[256], n = 0;
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    pid_t pid = speaker(door.port, geteuid(), STAYS);
    while ((taken[n] = dup(2)) >= 0)
        n++;
    unsigned turns = turn(300, 1);
    ck_assert_msg(turns < 20, "the loop has turned %u times", turns);
    ck_assert_int_eq(came, 0);
    gone(pid);
    while (n > 0)
        close(taken[--n]);
    pid = speaker(door.port, geteuid(), STAYS);
    turn(5000, 1);
    ck_assert_int_eq(came, 1);
    gone(pid);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listener");
    TCase *c = tcase_create("listener");
    tcase_set_timeout(c, 30);
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, ours_comes_in_when_it_has_said_something);
    if (geteuid() == 0)
        tcase_add_test(c, another_user_does_not);
    tcase_add_test(c, who_has_left_is_not_taken_for_root);
    tcase_add_test(c, owners);
    tcase_add_test(c, no_descriptor_is_left);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
