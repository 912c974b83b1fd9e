/* hvdctl's words, and what a session keeps for it.
 *
 * needs: ctl agent */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ctl/config.h"
#include "agent/ctl/jobs.h"
#include "agent/inquiry/recent.h"

static int parse(struct ctl_config *c, struct err *e, const char *line)
{
    static char text[256];
    char *argv[34], *at = text;
    int argc = 0;
    snprintf(text, sizeof text, "hvdctl %s", line);
    for (char *word; argc < 33 && (word = strsep(&at, " "));)
        argv[argc++] = word;
    argv[argc] = NULL;
    return ctl_config_parse(c, argc, argv, e);
}

static const char *const orders[] = {"logs abc -f --rank 0,2", "logs -f abc --rank=0,2",
                                     "-f --rank 0,2 logs abc", "--rank 0,2 logs -f abc"};

START_TEST(words_come_in_any_order)
{
    struct ctl_config c;
    struct err e = ERR_INIT;
    ck_assert_msg(parse(&c, &e, orders[_i]) == 0, "%s", e.text);
    ck_assert_str_eq(c.command, "logs");
    ck_assert_str_eq(c.job, "abc");
    ck_assert_str_eq(c.rank, "0,2");
    ck_assert(c.follow && !c.json);
    ck_assert_int_eq(c.interval_ms, 2000);
}
END_TEST

static const struct {
    const char *line, *text;
} bad[] = {{"ps a b", "unexpected argument: b"},
           {"logs --rank", "--rank needs a value"},
           {"top -n 0", "-n"},
           {"top --interval x", "--interval"},
           {"--jso ps", "unknown option --jso"},
           {"a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7 8", "more than 32 words"}};

START_TEST(bad_words_are_named)
{
    struct ctl_config c;
    struct err e = ERR_INIT;
    ck_assert_int_eq(parse(&c, &e, bad[_i].line), -1);
    ck_assert_int_eq(e.code, ERR_USAGE);
    ck_assert_msg(strstr(e.text, bad[_i].text), "%s", e.text);
}
END_TEST

START_TEST(a_job_is_found_by_the_beginning_of_its_name)
{
    struct ctl_job job = {.name = "123-abc-0"};
    ck_assert(ctl_job_is(&job, "1") && ctl_job_is(&job, "123-abc") && ctl_job_is(&job, "123-abc-0"));
    ck_assert(!ctl_job_is(&job, "") && !ctl_job_is(&job, "23") && !ctl_job_is(&job, "123-abc-00"));
}
END_TEST

/* ---- what ranks wrote last -------------------------------------------------------------------------------
 */

struct seen {
    size_t pieces, bytes;
    uint32_t first, last; /* numbers in the pieces */
};

static void see(void *ctx, const struct recent_piece *p)
{
    struct seen *s = ctx;
    uint32_t number;
    memcpy(&number, p->bytes, sizeof number);
    if (s->pieces == 0)
        s->first = number;
    else
        ck_assert_uint_eq(number, s->last + 1);
    s->last = number;
    s->pieces++;
    s->bytes += p->size;
    ck_assert_uint_eq(p->rank, number % 5);
    ck_assert_int_eq(p->stream, number % 2 ? STREAM_STDERR : STREAM_STDOUT);
    for (size_t i = sizeof number; i < p->size; i++)
        ck_assert_uint_eq(p->bytes[i], (uint8_t)(number + i));
}

/* Pieces of all sizes, many times around the ring: what is left is the last ones, whole and in order. */
START_TEST(the_last_pieces_stay)
{
    struct recent r = {.ring = NULL};
    static uint8_t bytes[FRAME_DATA_MAX];
    for (uint32_t number = 0; number < 400; number++) {
        size_t size = _i ? (size_t)_i : 4 + (size_t)number * 7919 % (FRAME_DATA_MAX - 4);
        memcpy(bytes, &number, sizeof number);
        for (size_t i = sizeof number; i < size; i++)
            bytes[i] = (uint8_t)(number + i);
        recent_add(&r, number % 5, number % 2 ? STREAM_STDERR : STREAM_STDOUT, bytes, size);
        if (number % 97 == 0 || number == 399) {
            struct seen s = {0};
            recent_each(&r, see, &s);
            ck_assert_uint_eq(s.last, number);
            ck_assert(s.first == 0 || s.bytes + s.pieces * 12 > RECENT_SIZE - FRAME_DATA_MAX - 12);
        }
    }
    recent_free(&r);
}
END_TEST

START_TEST(what_does_not_fit_is_not_kept)
{
    struct recent r = {.ring = NULL};
    static uint8_t bytes[FRAME_DATA_MAX + 1];
    struct seen s = {0};
    recent_each(&r, see, &s);
    recent_add(&r, 0, STREAM_STDOUT, bytes, 0);
    recent_add(&r, 0, STREAM_STDOUT, bytes, sizeof bytes);
    recent_each(&r, see, &s);
    ck_assert_uint_eq(s.pieces, 0);
    recent_free(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctl");
    TCase *words = tcase_create("words"), *recent = tcase_create("recent");
    suite_add_tcase(suite, words);
    suite_add_tcase(suite, recent);
    tcase_add_loop_test(words, words_come_in_any_order, 0, sizeof orders / sizeof *orders);
    tcase_add_loop_test(words, bad_words_are_named, 0, sizeof bad / sizeof *bad);
    tcase_add_test(words, a_job_is_found_by_the_beginning_of_its_name);
    tcase_add_loop_test(recent, the_last_pieces_stay, 0, 1);
    tcase_add_loop_test(recent, the_last_pieces_stay, 4, 6);
    tcase_add_test(recent, what_does_not_fit_is_not_kept);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
