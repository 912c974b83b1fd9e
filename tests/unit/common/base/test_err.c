/* The error type: the first error wins, wrapping reads outside-in, text from outside stays one line. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

START_TEST(first_error_wins)
{
    struct err e = ERR_INIT;
    ck_assert_int_eq(err_set(&e, ERR_USAGE, "bad %s", "option"), -1);
    err_set(&e, ERR_SYSTEM, "something later");
    err_sys(&e, EPERM, "something later still");
    ck_assert_int_eq(e.code, ERR_USAGE);
    ck_assert_str_eq(e.text, "bad option");
}
END_TEST

START_TEST(wrapping_names_the_attempt_first)
{
    struct err e = ERR_INIT;
    err_sys(&e, ENOENT, "cannot open %s", "x");
    err_wrap(&e, "host %s", "node1");
    ck_assert_str_eq(e.text, "host node1: cannot open x: No such file or directory");
    err_clear(&e);
    err_wrap(&e, "nothing to wrap");
    ck_assert_str_eq(e.text, "");
}
END_TEST

START_TEST(one_line_whatever_came_in)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_PROTOCOL, "peer said \"%s\"", "a\nb\x1b[31mc\r");
    ck_assert_ptr_null(strpbrk(e.text, "\n\r\x1b"));
    ck_assert_str_eq(e.text, "peer said \"a b [31mc \"");
    err_clear(&e);
    err_set(&e, ERR_PROTOCOL, "%s",
            "a\xc2\x9b"
            "2J, \xc3\xa9");
    ck_assert_str_eq(e.text, "a  2J, \xc3\xa9");
}
END_TEST

START_TEST(long_text_is_cut_not_overrun)
{
    struct err e = ERR_INIT;
    char big[4 * ERR_TEXT_MAX];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    err_set(&e, ERR_SYSTEM, "%s", big);
    ck_assert_uint_eq(strlen(e.text), ERR_TEXT_MAX - 1);
    err_wrap(&e, "%s", big);
    ck_assert_uint_eq(strlen(e.text), ERR_TEXT_MAX - 1);
    err_hint(&e, "%s", big);
    ck_assert_uint_eq(strlen(e.hint), ERR_HINT_MAX - 1);
}
END_TEST

START_TEST(first_hint_wins_and_needs_an_error)
{
    struct err e = ERR_INIT;
    err_hint(&e, "no error yet");
    ck_assert_str_eq(e.hint, "");
    err_set(&e, ERR_HOST, "x");
    err_hint(&e, "first");
    err_hint(&e, "second");
    ck_assert_str_eq(e.hint, "first");
}
END_TEST

START_TEST(exit_status_of_each_code)
{
    static const struct {
        enum err_code code;
        int status;
    } table[] = {{ERR_NONE, 0},      {ERR_USAGE, 2},     {ERR_SYSTEM, 125},    {ERR_HOST, 125},
                 {ERR_VERSION, 125}, {ERR_TIMEOUT, 124}, {ERR_NOT_FOUND, 127}, {ERR_NOT_EXECUTABLE, 126}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e = ERR_INIT;
        if (table[i].code)
            err_set(&e, table[i].code, "x");
        ck_assert_int_eq(err_exit_status(&e), table[i].status);
    }
}
END_TEST

START_TEST(null_error_is_allowed)
{
    ck_assert_int_eq(err_set(NULL, ERR_USAGE, "x"), -1);
    ck_assert_int_eq(err_wrap(NULL, "x"), -1);
    ck_assert_int_eq(err_hint(NULL, "x"), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("err");
    TCase *tc = tcase_create("err");
    tcase_add_test(tc, first_error_wins);
    tcase_add_test(tc, wrapping_names_the_attempt_first);
    tcase_add_test(tc, one_line_whatever_came_in);
    tcase_add_test(tc, long_text_is_cut_not_overrun);
    tcase_add_test(tc, first_hint_wins_and_needs_an_error);
    tcase_add_test(tc, exit_status_of_each_code);
    tcase_add_test(tc, null_error_is_allowed);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
