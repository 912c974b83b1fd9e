/* Messages of PMIx clients, whole and in pieces, and messages that no client sends. */
#include <check.h>
#include <string.h>

#include "agent/rendezvous/pmix_client/pmix_wire.h"

/* A message with a body of `len` bytes; returns its length. */
static size_t message(uint8_t *m, uint8_t who, uint8_t tag, uint8_t len)
{
    memset(m, 0xff, PMIX_STREAM_HEAD + (size_t)len);
    memset(m, 0, PMIX_STREAM_HEAD);
    m[3] = who;
    m[7] = tag;
    m[11] = len;
    return PMIX_STREAM_HEAD + (size_t)len;
}

START_TEST(test_messages_are_followed_in_any_pieces)
{
    uint8_t bytes[3 * (PMIX_STREAM_HEAD + 200)];
    size_t len = message(bytes, 1, 102, 200);
    len += message(bytes + len, 1, 1, 0); /* a heartbeat */
    len += message(bytes + len, 1, 103, 17);
    for (size_t piece = 1; piece <= len; piece++) {
        struct pmix_stream s = {0};
        for (size_t at = 0; at < len; at += piece)
            ck_assert_ptr_null(pmix_stream_follow(&s, bytes + at, at + piece < len ? piece : len - at));
        ck_assert_uint_eq(s.left, 0);
        ck_assert_uint_eq(s.have, 0);
    }
}
END_TEST

static const char *after_a_good_one(const uint8_t *bad)
{
    uint8_t good[PMIX_STREAM_HEAD + 5];
    struct pmix_stream s = {0};
    ck_assert_ptr_null(pmix_stream_follow(&s, good, message(good, 1, 102, 5)));
    return pmix_stream_follow(&s, bad, PMIX_STREAM_HEAD);
}

START_TEST(test_impossible_heads_are_refused)
{
    static const struct {
        uint8_t at, value;
        const char *what;
    } bad[] = {{8, 0x10, "length"},
               {8, 0xff, "length"},
               {15, 1, "length"},
               {4, 0x80, "tag"},
               {7, 0, "tag"},
               {7, 3, "tag"},
               {7, 99, "tag"},
               {3, 2, "another client's name"},
               {0, 1, "another client's name"}};
    uint8_t m[PMIX_STREAM_HEAD + 1];
    message(m, 1, 102, 0);
    ck_assert_ptr_null(after_a_good_one(m));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        message(m, 1, 102, 1);
        m[bad[i].at] = bad[i].value;
        const char *wrong = after_a_good_one(m);
        ck_assert_msg(wrong && strstr(wrong, bad[i].what), "%zu: %s", i, wrong ? wrong : "good");
    }
}
END_TEST

/* The longest that is allowed. */
START_TEST(test_long_messages_pass)
{
    static uint8_t piece[1 << 20];
    struct pmix_stream s = {0};
    message(piece, 1, 102, 0);
    piece[8] = PMIX_STREAM_MAX >> 24;
    ck_assert_ptr_null(pmix_stream_follow(&s, piece, PMIX_STREAM_HEAD));
    for (size_t left = PMIX_STREAM_MAX; left > 0; left -= sizeof piece)
        ck_assert_ptr_null(pmix_stream_follow(&s, piece, sizeof piece));
    ck_assert_uint_eq(s.left, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pmix stream");
    TCase *c = tcase_create("pmix stream");
    tcase_add_test(c, test_messages_are_followed_in_any_pieces);
    tcase_add_test(c, test_impossible_heads_are_refused);
    tcase_add_test(c, test_long_messages_pass);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
