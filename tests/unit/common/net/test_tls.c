/* TLS under a link: two ends on a socket pair, with the test in the middle where it wants to be.
 *
 * needs: tls */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/tls.h"

extern const struct tls_ops hvd_tls_ops;

static const struct tls_ops *const ops = &hvd_tls_ops;
static const uint8_t secret[TLS_SECRET_SIZE] = "thirty-two bytes that both know";
static const uint8_t other_secret[TLS_SECRET_SIZE] = "thirty-two bytes of a stranger.";

/* The client's socket is connected to the middle, which carries bytes to and from the server's. */
struct wire {
    struct tls *client, *server;
    int client_fd, server_fd, to_client, to_server;
    size_t carried; /* towards the server */
    size_t flip_at; /* of those, this byte is changed; 0: none */
    bool seen;      /* the needle went by in the clear */
    const char *needle;
};

static void wire_new(struct wire *w, const uint8_t *client_secret, const char *first)
{
    int a[2], b[2];
    memset(w, 0, sizeof *w);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b), 0);
    *w = (struct wire){.client_fd = a[0], .to_client = a[1], .server_fd = b[0], .to_server = b[1]};
    w->client = ops->open(w->client_fd, client_secret, true, first, strlen(first), NULL);
    w->server = ops->open(w->server_fd, secret, false, "", 0, NULL);
    ck_assert(w->client && w->server);
}

static void wire_free(struct wire *w)
{
    ops->close(w->client);
    ops->close(w->server);
    close(w->client_fd);
    close(w->server_fd);
    close(w->to_client);
    close(w->to_server);
}

static void carry(struct wire *w, int from, int to, bool towards_server)
{
    static uint8_t bytes[64 << 10];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0)
        return;
    if (towards_server) {
        if (w->flip_at > w->carried && w->flip_at <= w->carried + (size_t)n)
            bytes[w->flip_at - w->carried - 1] ^= 1;
        w->carried += (size_t)n;
    }
    w->seen |= w->needle && memmem(bytes, (size_t)n, w->needle, strlen(w->needle));
    for (ssize_t sent = 0; sent < n;) {
        ssize_t m = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
        ck_assert_int_gt(m, 0);
        sent += m;
    }
}

/* Both ends do what they can without data of their own, until the first error. */
static int settle(struct wire *w, struct err *e)
{
    for (int i = 0; i < 20; i++) {
        if (ops->send(w->client, NULL, 0, e) < 0)
            return -1;
        carry(w, w->to_client, w->to_server, true);
        if (ops->receive(w->server, &(struct iovec){&(char){0}, 1}, 1, e) != 0)
            return -1;
        carry(w, w->to_server, w->to_client, false);
        if (ops->receive(w->client, &(struct iovec){&(char){0}, 1}, 1, e) != 0)
            return -1;
    }
    return 0;
}

/* `size` bytes in uneven parts from the client, through the middle, into uneven parts of the server. */
START_TEST(bytes_arrive_as_they_were)
{
    static const size_t sizes[] = {1, 24, 262144, 262145, 524312, 3000000};
    struct wire w;
    struct err e = ERR_INIT;
    size_t size = sizes[_i], sent = 0, got = 0;
    uint8_t *in = malloc(size), *out = calloc(1, size);
    for (size_t i = 0; i < size; i++)
        in[i] = (uint8_t)(i * 31 + i / 251);
    wire_new(&w, secret, "");
    for (int idle = 0; got < size && idle < 100; idle++) {
        size_t head = size - sent < 24 ? size - sent : 24;
        struct iovec give[] = {{in + sent, head}, {in + sent + head, size - sent - head}};
        ssize_t n = ops->send(w.client, give, 2, &e);
        ck_assert_msg(n >= 0, "%s", e.text);
        sent += (size_t)n;
        carry(&w, w.to_client, w.to_server, true);
        size_t piece = size - got < 1000 ? size - got : 1000;
        struct iovec room[] = {{out + got, piece}, {out + got + piece, size - got - piece}};
        ssize_t m = ops->receive(w.server, room, 2, &e);
        ck_assert_msg(m >= 0, "%s", e.text);
        got += (size_t)m;
        carry(&w, w.to_server, w.to_client, false);
        ck_assert_msg(ops->receive(w.client, &(struct iovec){&(char){0}, 1}, 1, &e) == 0, "%s", e.text);
        idle = n + m > 0 ? 0 : idle;
    }
    ck_assert_uint_eq(got, size);
    ck_assert_int_eq(memcmp(in, out, size), 0);
    ck_assert(!ops->unsent(w.client) && !ops->unread(w.server));
    wire_free(&w);
    free(in);
    free(out);
}
END_TEST

START_TEST(nothing_is_readable_on_the_wire)
{
    struct wire w;
    struct err e = ERR_INIT;
    char text[] = "a gradient that nobody else shall see", got[sizeof text] = "";
    wire_new(&w, secret, "");
    w.needle = "nobody else";
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    ck_assert_int_eq(ops->send(w.client, &(struct iovec){text, sizeof text}, 1, &e), sizeof text);
    carry(&w, w.to_client, w.to_server, true);
    ck_assert_int_eq(ops->receive(w.server, &(struct iovec){got, sizeof got}, 1, &e), sizeof got);
    ck_assert_str_eq(got, text);
    ck_assert(!w.seen);
    wire_free(&w);
}
END_TEST

START_TEST(the_first_bytes_go_before_it)
{
    struct wire w;
    char bytes[6] = "";
    wire_new(&w, secret, "proof");
    ck_assert_int_eq(ops->send(w.client, NULL, 0, NULL), 0);
    ck_assert_int_eq(recv(w.to_client, bytes, 5, 0), 5);
    ck_assert_str_eq(bytes, "proof");
    struct err e = ERR_INIT;
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    wire_free(&w);
}
END_TEST

START_TEST(another_secret_is_refused)
{
    struct wire w;
    struct err e = ERR_INIT;
    wire_new(&w, other_secret, "");
    ck_assert_int_eq(settle(&w, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "TLS handshake failed"));
    wire_free(&w);
}
END_TEST

/* One bit of the ciphertext changed on its way: after the handshake, so inside of the data. */
START_TEST(a_changed_byte_ends_the_link)
{
    struct wire w;
    struct err e = ERR_INIT;
    static uint8_t data[5000], got[5000];
    wire_new(&w, secret, "");
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    w.flip_at = w.carried + 1 + (size_t)_i * 1000;
    ck_assert_int_eq(ops->send(w.client, &(struct iovec){data, sizeof data}, 1, &e), sizeof data);
    carry(&w, w.to_client, w.to_server, true);
    ck_assert_int_eq(ops->receive(w.server, &(struct iovec){got, sizeof got}, 1, &e), -1);
    wire_free(&w);
}
END_TEST

static ssize_t take_record(struct wire *w, char *record, size_t size)
{
    char text[] = "a step of the training";
    struct err e = ERR_INIT;
    ck_assert_int_eq(ops->send(w->client, &(struct iovec){text, sizeof text}, 1, &e), sizeof text);
    return recv(w->to_client, record, size, MSG_DONTWAIT);
}

/* The middle leaves a record out, or gives one twice. */
START_TEST(records_come_once_and_in_order)
{
    struct wire w;
    struct err e = ERR_INIT;
    char first[200], second[200], got[100];
    wire_new(&w, secret, "");
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    ssize_t n = take_record(&w, first, sizeof first), m = take_record(&w, second, sizeof second);
    ck_assert(n > 0 && m > 0);
    if (_i == 1) {
        ck_assert_int_eq(send(w.to_server, first, (size_t)n, 0), n);
        ck_assert_int_gt(ops->receive(w.server, &(struct iovec){got, sizeof got}, 1, &e), 0);
        memcpy(second, first, (size_t)n);
    }
    ck_assert_int_eq(send(w.to_server, second, (size_t)m, 0), m);
    ck_assert_int_eq(ops->receive(w.server, &(struct iovec){got, sizeof got}, 1, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
    wire_free(&w);
}
END_TEST

/* More records than one key is good for, and then some. */
START_TEST(keys_are_renewed)
{
    struct wire w;
    struct err e = ERR_INIT;
    int pair[2];
    wire_new(&w, secret, "");
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    ck_assert(dup2(pair[0], w.client_fd) >= 0 && dup2(pair[1], w.server_fd) >= 0);
    for (uint32_t i = 0; i < (1u << 17) + 100; i++) {
        uint32_t got = 0;
        ck_assert_int_eq(ops->send(w.client, &(struct iovec){&i, sizeof i}, 1, &e), sizeof i);
        ssize_t n = ops->receive(w.server, &(struct iovec){&got, sizeof got}, 1, &e);
        ck_assert_msg(n == sizeof got && got == i, "%u: %s", i, e.text);
    }
    close(pair[0]);
    close(pair[1]);
    wire_free(&w);
}
END_TEST

/* Both directions have keys of their own: a record does not pass as the other end's. */
START_TEST(a_record_that_comes_back_is_refused)
{
    struct wire w;
    struct err e = ERR_INIT;
    char record[200], got[100];
    wire_new(&w, secret, "");
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    ssize_t n = take_record(&w, record, sizeof record);
    ck_assert_int_eq(send(w.to_client, record, (size_t)n, 0), n);
    ck_assert_int_eq(ops->receive(w.client, &(struct iovec){got, sizeof got}, 1, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
    wire_free(&w);
}
END_TEST

START_TEST(plain_text_is_refused)
{
    struct wire w;
    struct err e = ERR_INIT;
    static char text[200];
    memset(text, 'x', sizeof text);
    wire_new(&w, secret, "");
    ck_assert_int_eq(send(w.to_server, text, sizeof text, 0), sizeof text);
    ck_assert_int_eq(ops->receive(w.server, &(struct iovec){text, 1}, 1, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
    wire_free(&w);
}
END_TEST

START_TEST(the_end_is_seen)
{
    struct wire w;
    struct err e = ERR_INIT;
    wire_new(&w, secret, "");
    ck_assert_msg(settle(&w, &e) == 0, "%s", e.text);
    shutdown(w.to_server, SHUT_WR);
    ck_assert_int_eq(ops->receive(w.server, &(struct iovec){&(char){0}, 1}, 1, &e), -1);
    ck_assert_int_eq(e.code, ERR_CLOSED);
    wire_free(&w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tls");
    TCase *c = tcase_create("tls");
    tcase_set_timeout(c, 20);
    tcase_add_loop_test(c, bytes_arrive_as_they_were, 0, 6);
    tcase_add_test(c, nothing_is_readable_on_the_wire);
    tcase_add_test(c, the_first_bytes_go_before_it);
    tcase_add_test(c, another_secret_is_refused);
    tcase_add_loop_test(c, a_changed_byte_ends_the_link, 1, 5);
    tcase_add_loop_test(c, records_come_once_and_in_order, 0, 2);
    tcase_add_test(c, keys_are_renewed);
    tcase_add_test(c, a_record_that_comes_back_is_refused);
    tcase_add_test(c, plain_text_is_refused);
    tcase_add_test(c, the_end_is_seen);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
