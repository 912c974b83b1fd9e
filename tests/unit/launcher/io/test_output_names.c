/* The names of --output-filename's files. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/io/output_names.h"

static const struct output_owner owner = {
    .rank = 7, .size = 101, .host_index = 2, .host = "nodeC", .job = "4711", .stream = STREAM_STDERR};

START_TEST(a_name_becomes_a_path)
{
    static const char *const cases[][2] = {
        {"logs", "logs/rank.007/stderr"},
        {"%r", "007.err"},
        {"out/%h/%j-%n.%r", "out/nodeC/4711-2.007.err"},
        {"%r/%s.log", "007/stderr.log"},
        {"100%%-%r", "100%-007.err"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        char path[64];
        ck_assert_int_eq(output_names_check(cases[i][0], &e), 0);
        ck_assert_int_eq(output_name(cases[i][0], &owner, path, sizeof path, &e), 0);
        ck_assert_str_eq(path, cases[i][1]);
    }
}
END_TEST

START_TEST(what_is_refused)
{
    static const char *const cases[][2] = {{"%x.%r", "%x stands for nothing"},
                                           {"%r.%", "% stands for nothing"},
                                           {"%h", "the same file"},
                                           {"%%r", "the same file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        ck_assert_int_lt(output_names_check(cases[i][0], &e), 0);
        ck_assert_int_eq(e.code, ERR_USAGE);
        ck_assert_msg(strstr(e.text, cases[i][1]), "%s", e.text);
    }
}
END_TEST

/* At each length, nothing is written behind the end. */
START_TEST(a_path_that_is_too_long)
{
    static const char *const names[] = {"logs", "%r", "a%h%s%r"};
    char path[32];
    for (size_t i = 0; i < 3; i++) {
        struct err none = ERR_INIT;
        ck_assert_int_eq(output_name(names[i], &owner, path, sizeof path, &none), 0);
        size_t needed = strlen(path) + 1;
        for (size_t size = 1; size < sizeof path; size++) {
            struct err e = ERR_INIT;
            memset(path, '#', sizeof path);
            int rc = output_name(names[i], &owner, path, size, &e);
            ck_assert_int_eq(path[size], '#');
            ck_assert_uint_lt(strlen(path), size);
            ck_assert_int_eq(rc, size < needed ? -1 : 0);
            ck_assert(rc == 0 || strstr(e.text, "too long"));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("output_names");
    TCase *tc = tcase_create("output_names");
    tcase_add_test(tc, a_name_becomes_a_path);
    tcase_add_test(tc, what_is_refused);
    tcase_add_test(tc, a_path_that_is_too_long);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
