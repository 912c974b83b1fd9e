/* The handshake of data links: what is let in, and everything that is not.
 *
 * needs: auth */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/auth.h"
#include "common/net/link_handshake.h"

extern const struct auth_ops hvd_auth_ops;

static const uint8_t key[AUTH_KEY_SIZE] = "a key of thirty-two bytes, sure";
static const uint8_t nonce_a[AUTH_KEY_SIZE] = "connector", nonce_b[AUTH_KEY_SIZE] = "acceptor";

static struct link_identity identity(uint32_t self)
{
    return (struct link_identity){.auth = &hvd_auth_ops,
                                  .key = key,
                                  .job = "job-1",
                                  .epoch = 7,
                                  .kind = LINK_ENGINE,
                                  .self = self,
                                  .hosts = 4};
}

/* Moves what `from` has to say to `to`, at most `piece` bytes at a time. -1 when `to` refuses. */
static int move(struct link_handshake *from, struct link_handshake *to, size_t piece, struct err *e)
{
    size_t size;
    const void *out;
    while ((out = link_handshake_output(from, &size), size > 0)) {
        size_t wants = link_handshake_wants(to);
        size_t n = size < piece ? size : piece;
        if (n > wants)
            n = wants;
        if (n == 0)
            return -1;
        if (link_handshake_receive(to, out, n, e) < 0)
            return -1;
        link_handshake_sent(from, n);
    }
    return 0;
}

struct pair {
    struct link_identity ia, ib;
    struct link_handshake a, b; /* a connects to b */
};

static void pair_new(struct pair *p)
{
    p->ia = identity(2);
    p->ib = identity(1);
    ck_assert_int_eq(link_handshake_connect(&p->a, &p->ia, 1, nonce_a, NULL), 0);
    ck_assert_int_eq(link_handshake_accept(&p->b, &p->ib, nonce_b, NULL), 0);
}

/* HELLO, CHALLENGE, PROOF; -1 at the first refusal. */
static int run(struct pair *p, struct err *e)
{
    if (move(&p->a, &p->b, 1000, e) < 0 || move(&p->b, &p->a, 1000, e) < 0)
        return -1;
    if (link_handshake_choose(&p->a, e) < 0)
        return -1;
    return move(&p->a, &p->b, 1000, e);
}

START_TEST(the_right_peer_is_let_in)
{
    struct pair p;
    struct err e = ERR_INIT;
    size_t piece = _i ? (size_t)_i : 1000;
    pair_new(&p);
    ck_assert_int_eq(move(&p.a, &p.b, piece, &e), 0);
    ck_assert_int_eq(p.b.state, LINK_HANDSHAKE_PROOF);
    ck_assert_uint_eq(p.b.peer, 2);
    ck_assert_int_eq(move(&p.b, &p.a, piece, &e), 0);
    ck_assert_int_eq(p.a.state, LINK_HANDSHAKE_AUTHENTICATED);
    ck_assert_uint_eq(link_handshake_wants(&p.a), 0);
    ck_assert_int_eq(link_handshake_choose(&p.a, &e), 0);
    ck_assert_int_eq(move(&p.a, &p.b, piece, &e), 0);
    ck_assert_int_eq(p.a.state, LINK_HANDSHAKE_READY);
    ck_assert_int_eq(p.b.state, LINK_HANDSHAKE_READY);
    ck_assert_uint_eq(link_handshake_wants(&p.b), 0);
}
END_TEST

static const char *const strangers[] = {
    "key", "job", "epoch", "kind", "wrong host", "itself", "host out of range", "flags"};

START_TEST(strangers_are_refused)
{
    static const uint8_t other[AUTH_KEY_SIZE] = {0};
    struct pair p;
    struct err e = ERR_INIT;
    pair_new(&p);
    switch (_i) {
    case 0:
        p.ia.key = other;
        break;
    case 1:
        p.ia.job = "job-2";
        break;
    case 2:
        p.ia.epoch = 8;
        break;
    case 3:
        p.ia.kind = LINK_SESSION;
        break;
    case 4:
        p.ib.self = 3;
        break;
    case 5:
        p.ib.self = 2;
        break;
    case 6:
        p.ib.hosts = 2;
        break;
    case 7:
        p.ia.encrypt = true;
        break;
    }
    ck_assert_int_eq(link_handshake_connect(&p.a, &p.ia, 1, nonce_a, NULL), 0);
    ck_assert_msg(run(&p, &e) == -1, "a stranger came in: %s", strangers[_i]);
    ck_assert(p.a.state == LINK_HANDSHAKE_FAILED || p.b.state == LINK_HANDSHAKE_FAILED);
    ck_assert(p.b.state != LINK_HANDSHAKE_READY);
    ck_assert(e.text[0] != '\0');
}
END_TEST

/* The acceptor must not believe a connector that merely stays silent about a wrong key. */
START_TEST(a_connector_without_the_key_has_no_proof)
{
    static const uint8_t other[AUTH_KEY_SIZE] = {0};
    struct pair p;
    struct err e = ERR_INIT;
    pair_new(&p);
    ck_assert_int_eq(move(&p.a, &p.b, 1000, &e), 0);
    ck_assert_int_eq(move(&p.b, &p.a, 1000, &e), 0);
    p.ia.key = other;
    ck_assert_int_eq(link_handshake_choose(&p.a, &e), 0);
    ck_assert_int_eq(move(&p.a, &p.b, 1000, &e), -1);
    ck_assert_int_eq(p.b.state, LINK_HANDSHAKE_FAILED);
}
END_TEST

/* Everything the connector said once, said again to an acceptor with a new nonce. */
START_TEST(a_replay_is_refused)
{
    static const uint8_t fresh[AUTH_KEY_SIZE] = "another nonce";
    struct pair p;
    struct link_handshake again;
    struct err e = ERR_INIT;
    pair_new(&p);
    ck_assert_int_eq(run(&p, &e), 0);
    ck_assert_int_eq(link_handshake_accept(&again, &p.ib, fresh, &e), 0);
    ck_assert_int_eq(link_handshake_receive(&again, p.a.hello, LINK_HELLO_SIZE, &e), 0);
    ck_assert_int_eq(link_handshake_receive(&again, p.a.proof, LINK_PROOF_SIZE, &e), -1);
    /* And the acceptor's words, played to a connector with a new nonce. */
    ck_assert_int_eq(link_handshake_connect(&again, &p.ia, 1, fresh, &e), 0);
    ck_assert_int_eq(link_handshake_receive(&again, p.b.challenge, LINK_CHALLENGE_SIZE, &e), -1);
}
END_TEST

/* A host's own bytes, thrown back at it: as HELLO, as CHALLENGE's MAC, as PROOF. */
START_TEST(a_reflection_is_refused)
{
    struct pair p;
    struct link_handshake own;
    struct err e = ERR_INIT;
    pair_new(&p);
    ck_assert_int_eq(link_handshake_accept(&own, &p.ia, nonce_b, &e), 0);
    ck_assert_int_eq(move(&p.a, &own, 1000, &e), -1);
    /* The acceptor's MAC is no proof, even over the same words. */
    pair_new(&p);
    ck_assert_int_eq(move(&p.a, &p.b, 1000, &e), 0);
    ck_assert_int_eq(
        link_handshake_receive(&p.b, p.b.challenge + LINK_CHALLENGE_SIZE - AUTH_MAC_SIZE, AUTH_MAC_SIZE, &e),
        -1);
}
END_TEST

/* Every single bit of every message matters. */
START_TEST(bit_flips_are_refused)
{
    static const size_t size[] = {LINK_HELLO_SIZE, LINK_CHALLENGE_SIZE, LINK_PROOF_SIZE};
    size_t accepted = 0;
    for (size_t bit = 0; bit < size[_i] * 8; bit++) {
        struct pair p;
        pair_new(&p);
        int rc = 0;
        for (int message = 0; rc == 0 && message < 3; message++) {
            struct link_handshake *from = message == 1 ? &p.b : &p.a, *to = message == 1 ? &p.a : &p.b;
            if (message == 2)
                rc = link_handshake_choose(&p.a, NULL);
            /* In transit, not in the sender's memory: a HELLO that the connector remembers as sent is what
             * its MAC covers. */
            uint8_t copy[LINK_HELLO_SIZE + LINK_CHALLENGE_SIZE];
            size_t n;
            const void *out = link_handshake_output(from, &n);
            memcpy(copy, out, n);
            if (message == _i)
                copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            if (rc == 0)
                rc = link_handshake_receive(to, copy, n, NULL);
        }
        accepted += rc == 0;
    }
    ck_assert_uint_eq(accepted, 0);
}
END_TEST

START_TEST(more_than_asked_for_is_refused)
{
    struct pair p;
    uint8_t bytes[LINK_HELLO_SIZE + 1] = {0};
    struct err e = ERR_INIT;
    pair_new(&p);
    ck_assert_uint_eq(link_handshake_wants(&p.b), LINK_HELLO_SIZE);
    ck_assert_int_eq(link_handshake_receive(&p.b, bytes, sizeof bytes, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "more than the handshake allows"));
    pair_new(&p);
    ck_assert_int_eq(run(&p, &e), 0);
    ck_assert_int_eq(link_handshake_receive(&p.b, bytes, 1, NULL), -1);
}
END_TEST

START_TEST(a_truncated_message_waits)
{
    struct pair p;
    pair_new(&p);
    ck_assert_int_eq(link_handshake_receive(&p.b, p.a.hello, LINK_HELLO_SIZE - 1, NULL), 0);
    ck_assert_int_eq(p.b.state, LINK_HANDSHAKE_HELLO);
    ck_assert_uint_eq(link_handshake_wants(&p.b), 1);
    size_t n;
    link_handshake_output(&p.b, &n);
    ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(unchosen_links_cannot_be_used)
{
    struct pair p;
    struct err e = ERR_INIT;
    pair_new(&p);
    ck_assert_int_eq(link_handshake_choose(&p.a, &e), -1);
    ck_assert_int_eq(link_handshake_connect(&p.a, &p.ia, 2, nonce_a, &e), -1); /* to itself */
    ck_assert_int_eq(link_handshake_connect(&p.a, &p.ia, 4, nonce_a, &e), -1); /* beyond the job */
    p.ia.job = "a-job-name-that-is-longer-than-sixty-four-bytes-is-refused-before-it-is-copied";
    ck_assert_int_eq(link_handshake_connect(&p.a, &p.ia, 1, nonce_a, &e), -1);
}
END_TEST

/* The standard's own example for a short key and message, padded as our fixed-size keys are. */
START_TEST(hmac_is_hmac_sha256)
{
    static const uint8_t want[AUTH_MAC_SIZE] = {
        0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
        0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    static const uint8_t jefe[AUTH_KEY_SIZE] = "Jefe";
    const struct auth_part part[] = {{"what do ya want ", 16}, {"for nothing?", 12}};
    uint8_t mac[AUTH_MAC_SIZE];
    ck_assert_int_eq(hvd_auth_ops.hmac(jefe, part, 2, mac), 0);
    ck_assert_mem_eq(mac, want, sizeof mac);
    ck_assert(hvd_auth_ops.equal(mac, want, sizeof mac));
    mac[31] ^= 1;
    ck_assert(!hvd_auth_ops.equal(mac, want, sizeof mac));
}
END_TEST

/* Both ends have one, and it is this connection's own. */
START_TEST(the_key_for_tls_is_of_both_ends)
{
    struct pair p, q;
    uint8_t a[AUTH_MAC_SIZE], b[AUTH_MAC_SIZE], other[AUTH_MAC_SIZE];
    static const uint8_t nonce[AUTH_KEY_SIZE] = "another";
    pair_new(&p);
    pair_new(&q);
    ck_assert_int_eq(link_handshake_secret(&p.a, a, NULL), -1);
    p.ia.encrypt = p.ib.encrypt = true;
    ck_assert_int_eq(link_handshake_connect(&p.a, &p.ia, 1, nonce_a, NULL), 0);
    ck_assert_int_eq(link_handshake_accept(&p.b, &p.ib, nonce_b, NULL), 0);
    ck_assert_int_eq(link_handshake_accept(&q.b, &q.ib, nonce, NULL), 0);
    ck_assert_int_eq(run(&p, NULL), 0);
    ck_assert_int_eq(run(&q, NULL), 0);
    ck_assert_int_eq(link_handshake_secret(&p.a, a, NULL), 0);
    ck_assert_int_eq(link_handshake_secret(&p.b, b, NULL), 0);
    ck_assert_int_eq(link_handshake_secret(&q.a, other, NULL), 0);
    ck_assert_mem_eq(a, b, sizeof a);
    ck_assert_mem_ne(a, other, sizeof a);
}
END_TEST

START_TEST(random_bytes_differ)
{
    uint8_t a[AUTH_KEY_SIZE] = {0}, b[AUTH_KEY_SIZE] = {0}, zero[AUTH_KEY_SIZE] = {0};
    ck_assert_int_eq(auth_random(a, sizeof a, NULL), 0);
    ck_assert_int_eq(auth_random(b, sizeof b, NULL), 0);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_mem_ne(a, zero, sizeof a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link_handshake");
    TCase *c = tcase_create("link_handshake");
    tcase_add_loop_test(c, the_right_peer_is_let_in, 0, 3);
    tcase_add_loop_test(c, strangers_are_refused, 0, sizeof strangers / sizeof *strangers);
    tcase_add_test(c, a_connector_without_the_key_has_no_proof);
    tcase_add_test(c, a_replay_is_refused);
    tcase_add_test(c, a_reflection_is_refused);
    tcase_add_loop_test(c, bit_flips_are_refused, 0, 3);
    tcase_add_test(c, more_than_asked_for_is_refused);
    tcase_add_test(c, a_truncated_message_waits);
    tcase_add_test(c, unchosen_links_cannot_be_used);
    tcase_add_test(c, hmac_is_hmac_sha256);
    tcase_add_test(c, the_key_for_tls_is_of_both_ends);
    tcase_add_test(c, random_bytes_differ);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
