/* Splices: a client and a server with blocking sockets in a thread of their own, the splice between them. */
#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/rendezvous/splice.h"

#define ROUNDS 100

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

/* Two messages without an answer between them, as PMIx_Finalize sends them; then one back. */
static void *talk(void *arg)
{
    struct ends *e = arg;
    char got[2] = "";
    int server = -1;
    e->good = write(e->client, "hello", 5) == 5 && (server = accept(e->listener, NULL, NULL)) >= 0;
    char hello[5];
    e->good = e->good && read_all(server, hello, 5) && memcmp(hello, "hello", 5) == 0;
    double begin = now_ms();
    for (int i = 0; e->good && i < ROUNDS; i++)
        e->good = write(e->client, "a", 1) == 1 && write(e->client, "b", 1) == 1 &&
                  read_all(server, got, 2) && got[0] == 'a' && got[1] == 'b' && write(server, "c", 1) == 1 &&
                  read_all(e->client, got, 1);
    e->ms = now_ms() - begin;
    close(server);
    uv_async_send(&e->over);
    return NULL;
}

static enum splice_greeting check_hello(void *ctx, const uint8_t *bytes, size_t len, uint32_t *rank)
{
    (void)ctx;
    *rank = 0;
    if (len < 5)
        return SPLICE_MORE;
    return memcmp(bytes, "hello", 5) == 0 ? SPLICE_GOOD : SPLICE_BAD;
}

static void on_over(uv_async_t *async)
{
    splice_close_all(async->data);
    uv_close((uv_handle_t *)async, NULL);
}

/* Where nothing is acknowledged at once, each round takes 40 ms. */
START_TEST(test_small_messages_do_not_wait)
{
    uv_loop_t loop;
    struct sockaddr_in doorway, server;
    struct ends e = {.good = false};
    pthread_t thread;
    uv_loop_init(&loop);
    struct splices all = {.loop = &loop, .check = check_hello};
    int door = listen_on_loopback(&doorway);
    e.listener = listen_on_loopback(&server);
    e.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(e.client, (struct sockaddr *)&doorway, sizeof doorway), 0);
    uv_async_init(&loop, &e.over, on_over);
    e.over.data = &all;
    splice_add(&all, accept(door, NULL, NULL));
    splice_serve(&all, ntohs(server.sin_port));
    ck_assert_int_eq(pthread_create(&thread, NULL, talk, &e), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_join(thread, NULL);
    splice_free(&all);
    ck_assert(e.good);
    ck_assert_msg(e.ms < ROUNDS * 20, "%d rounds took %.0f ms", ROUNDS, e.ms);
    close(door);
    close(e.listener);
    close(e.client);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("splice");
    TCase *c = tcase_create("splice");
    tcase_set_timeout(c, 30);
    tcase_add_test(c, test_small_messages_do_not_wait);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
