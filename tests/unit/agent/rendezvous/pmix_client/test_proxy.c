/* Splices: a client and a server with blocking sockets in a thread of their own, the proxy between them. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/rendezvous/pmix_client/proxy.h"

#define ROUNDS     100
#define PATIENCE_S 4

#define BULK (8u << 20)

struct ends {
    int client, listener;
    bool good;
    double ms;
    uv_async_t over;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int listen_on_loopback(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)at, len), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

static bool read_all(int fd, char *to, size_t len)
{
    while (len > 0) {
        ssize_t n = read(fd, to, len);
        if (n <= 0)
            return false;
        to += n;
        len -= (size_t)n;
    }
    return true;
}

static bool writes_all(int fd, const char *from, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, from, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        from += n;
        len -= (size_t)n;
    }
    return true;
}

static bool is_at_end(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) == 0;
}

static int accept_hello(struct ends *e)
{
    char hello[5];
    int server = accept(e->listener, NULL, NULL);
    e->good = e->good && server >= 0 && read_all(server, hello, 5) && memcmp(hello, "hello", 5) == 0;
    return server;
}

static int greet(struct ends *e)
{
    e->good = writes_all(e->client, "hello", 5);
    return accept_hello(e);
}

static void over(struct ends *e, int server)
{
    if (server >= 0)
        close(server);
    uv_async_send(&e->over);
}

static enum handshake_verdict check_hello(void *ctx, const uint8_t *bytes, size_t len,
                                          struct proxy_client *who)
{
    (void)ctx;
    if (len < 5)
        return memcmp(bytes, "hello", len) == 0 ? HANDSHAKE_MORE : HANDSHAKE_BAD;
    who->rank = 7;
    who->handshake = 5;
    return memcmp(bytes, "hello", 5) == 0 ? HANDSHAKE_GOOD : HANDSHAKE_BAD;
}

static bool without_an_x(void *ctx, struct proxy_client *who, const uint8_t *bytes, size_t len)
{
    (void)ctx;
    return who->rank == 7 && !memchr(bytes, 'x', len);
}

static void on_over(uv_async_t *async)
{
    proxies_close(async->data);
    uv_close((uv_handle_t *)async, NULL);
}

/* The loop turns while `talk` is at both ends. Returns who sent last. */
static struct proxies join_between(struct ends *e, void *(*talk)(void *arg))
{
    uv_loop_t loop;
    struct sockaddr_in listener, server;
    pthread_t thread;
    uv_loop_init(&loop);
    struct proxies all = {.loop = &loop, .check = check_hello, .follow = without_an_x};
    int door = listen_on_loopback(&listener);
    *e = (struct ends){.listener = listen_on_loopback(&server)};
    e->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(e->client, (struct sockaddr *)&listener, sizeof listener), 0);
    uv_async_init(&loop, &e->over, on_over);
    e->over.data = &all;
    proxies_add(&all, accept(door, NULL, NULL));
    proxies_serve(&all, ntohs(server.sin_port));
    ck_assert_int_eq(pthread_create(&thread, NULL, talk, e), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_join(thread, NULL);
    proxies_free(&all);
    close(door);
    close(e->listener);
    close(e->client);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert(e->good);
    return all;
}

/* Two messages without an answer between them, as PMIx_Finalize sends them; then one back. */
static void *talk_in_rounds(void *arg)
{
    struct ends *e = arg;
    char got[2] = "";
    int server = greet(e);
    double begin = now_ms();
    for (int i = 0; e->good && i < ROUNDS; i++)
        e->good = write(e->client, "a", 1) == 1 && write(e->client, "b", 1) == 1 &&
                  read_all(server, got, 2) && got[0] == 'a' && got[1] == 'b' && write(server, "c", 1) == 1 &&
                  read_all(e->client, got, 1);
    e->ms = now_ms() - begin;
    over(e, server);
    return NULL;
}

/* Without quick acknowledgements each round takes 40 ms. */
START_TEST(test_small_messages_do_not_wait)
{
    struct ends e;
    struct proxies all = join_between(&e, talk_in_rounds);
    ck_assert_msg(e.ms < ROUNDS * 20, "%d rounds took %.0f ms", ROUNDS, e.ms);
    ck_assert(all.spoke);
    ck_assert_uint_eq(all.last, 7);
}
END_TEST

static void *send_in_pieces(void *arg)
{
    struct ends *e = arg;
    e->good = true;
    for (size_t i = 0; i < 5; i++) {
        e->good = e->good && writes_all(e->client, &"hello"[i], 1);
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    int server = accept_hello(e);
    over(e, server);
    return NULL;
}

START_TEST(test_a_greeting_may_come_in_pieces)
{
    struct ends e;
    join_between(&e, send_in_pieces);
}
END_TEST

static void *greet_badly(void *arg)
{
    struct ends *e = arg;
    struct timeval patience = {.tv_sec = PATIENCE_S};
    fcntl(e->listener, F_SETFL, O_NONBLOCK);
    setsockopt(e->client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    e->good = writes_all(e->client, "help!", 5) && is_at_end(e->client) &&
              accept4(e->listener, NULL, NULL, SOCK_CLOEXEC) < 0 && errno == EAGAIN;
    over(e, -1);
    return NULL;
}

/* The process that reaps a dead server has that long to report the death before the clients fail. */
static void *end_as_server(void *arg)
{
    struct ends *e = arg;
    int server = greet(e);
    double begin = now_ms();
    e->good = e->good && close(server) == 0 && is_at_end(e->client);
    e->ms = now_ms() - begin;
    over(e, -1);
    return NULL;
}

START_TEST(test_a_client_learns_late_that_its_server_is_gone)
{
    struct ends e;
    join_between(&e, end_as_server);
    ck_assert_msg(e.ms >= 20, "it was told after %.1f ms", e.ms);
}
END_TEST

/* The proxy closes the client's connection, long before it would for one that says nothing. */
START_TEST(test_a_bad_greeting_reaches_no_server)
{
    struct ends e;
    struct proxies all = join_between(&e, greet_badly);
    ck_assert(!all.spoke);
}
END_TEST

static struct {
    char sent[BULK], got[BULK];
} bulk;

/* As much as no socket holds, before the other side reads the first byte. */
static void *send_much(void *arg)
{
    struct ends *e = arg;
    struct timeval patience = {.tv_usec = 200000};
    size_t sent = 0;
    int server = greet(e);
    setsockopt(e->client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    for (ssize_t n; sent < BULK && (n = send(e->client, bulk.sent + sent, BULK - sent, 0)) > 0;)
        sent += (size_t)n;
    e->good = e->good && sent > 0 && shutdown(e->client, SHUT_WR) == 0 && read_all(server, bulk.got, sent) &&
              is_at_end(server) && memcmp(bulk.sent, bulk.got, sent) == 0;
    over(e, server);
    return NULL;
}

START_TEST(test_what_is_not_read_is_held)
{
    struct ends e;
    for (size_t i = 0; i < BULK; i++)
        bulk.sent[i] = (char)('a' + i * 7919 % 23);
    join_between(&e, send_much);
}
END_TEST

static void *end_one_way(void *arg)
{
    struct ends *e = arg;
    char got[4];
    int server = greet(e);
    e->good = e->good && shutdown(e->client, SHUT_WR) == 0 && is_at_end(server) &&
              writes_all(server, "late", 4) && read_all(e->client, got, 4) && memcmp(got, "late", 4) == 0 &&
              shutdown(server, SHUT_WR) == 0 && is_at_end(e->client);
    over(e, server);
    return NULL;
}

START_TEST(test_one_way_may_end_before_the_other)
{
    struct ends e;
    join_between(&e, end_one_way);
}
END_TEST

static void *send_an_x(void *arg)
{
    struct ends *e = arg;
    char got[3];
    int server = greet(e);
    e->good = e->good && writes_all(e->client, "abc", 3) && read_all(server, got, 3) &&
              writes_all(e->client, "wxyz", 4) && is_at_end(e->client) && is_at_end(server);
    over(e, server);
    return NULL;
}

START_TEST(test_what_must_not_pass_ends_the_connection)
{
    struct ends e;
    join_between(&e, send_an_x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proxy");
    TCase *c = tcase_create("proxy");
    tcase_set_timeout(c, 30);
    tcase_add_test(c, test_small_messages_do_not_wait);
    tcase_add_test(c, test_a_greeting_may_come_in_pieces);
    tcase_add_test(c, test_a_bad_greeting_reaches_no_server);
    tcase_add_test(c, test_a_client_learns_late_that_its_server_is_gone);
    tcase_add_test(c, test_what_is_not_read_is_held);
    tcase_add_test(c, test_one_way_may_end_before_the_other);
    tcase_add_test(c, test_what_must_not_pass_ends_the_connection);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
