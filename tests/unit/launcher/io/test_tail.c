/* The tail of a rank's stderr: the last few lines, whole if they fit, without control characters. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/io/tail.h"

static void ck_lines(const struct tail *t, const char *wanted)
{
    char out[TAIL_MAX + 1];
    ck_assert_uint_eq(tail_lines(t, out), strlen(wanted));
    ck_assert_str_eq(out, wanted);
}

static void put(struct tail *t, const char *text)
{
    tail_put(t, text, strlen(text));
}

START_TEST(test_nothing_takes_no_memory)
{
    struct tail t = {0};
    put(&t, "");
    ck_assert_ptr_null(t.ring);
    ck_lines(&t, "");
}
END_TEST

START_TEST(test_the_last_lines)
{
    struct tail t = {0};
    put(&t, "one\ntwo");
    ck_lines(&t, "one\ntwo");
    put(&t, " and a half\nthree\n\n\nfour\r\nfive\n");
    ck_lines(&t, "one\ntwo and a half\nthree\nfour\nfive");
    put(&t, "six");
    ck_lines(&t, "two and a half\nthree\nfour\nfive\nsix");
    put(&t, "\n\n\n");
    ck_lines(&t, "two and a half\nthree\nfour\nfive\nsix");
    tail_free(&t);
}
END_TEST

START_TEST(test_control_characters_and_zeros)
{
    struct tail t = {0};
    tail_put(&t, "a\033[2Jb\0c\n\x07", 10);
    ck_lines(&t, "a?[2Jb?c\n?");
    tail_free(&t);
}
END_TEST

/* Pieces of every length, against the same bytes kept as a whole. */
START_TEST(test_the_ring_wraps)
{
    static char all[16 * TAIL_MAX];
    char line[64], wanted[TAIL_MAX];
    struct tail t = {0};
    size_t used = 0, put_so_far = 0;
    for (int n = 0; used < sizeof all - sizeof line; n++)
        used += (size_t)snprintf(all + used, sizeof line, "line %d %.*s\n", n, n % 40,
                                 "........................................");
    for (size_t piece = 1; put_so_far < used; piece = piece * 3 % 1531 + 1) {
        size_t len = piece < used - put_so_far ? piece : used - put_so_far;
        tail_put(&t, all + put_so_far, len);
        put_so_far += len;
    }
    const char *p = all + used - 1;
    for (int lines = 0; lines < TAIL_LINES; lines++)
        while (*--p != '\n')
            ;
    snprintf(wanted, sizeof wanted, "%.*s", (int)(all + used - 1 - (p + 1)), p + 1);
    ck_lines(&t, wanted);
    tail_free(&t);
}
END_TEST

START_TEST(test_long_lines)
{
    static char text[3 * TAIL_MAX];
    char out[TAIL_MAX + 1];
    struct tail t = {0};
    memset(text, 'x', sizeof text);
    tail_put(&t, text, sizeof text);
    ck_assert_uint_eq(tail_lines(&t, out), TAIL_MAX); /* all there is, though its beginning is lost */
    put(&t, "\nwhole\n");
    ck_lines(&t, "whole");
    tail_free(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tail");
    TCase *c = tcase_create("tail");
    tcase_add_test(c, test_nothing_takes_no_memory);
    tcase_add_test(c, test_the_last_lines);
    tcase_add_test(c, test_control_characters_and_zeros);
    tcase_add_test(c, test_the_ring_wraps);
    tcase_add_test(c, test_long_lines);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
