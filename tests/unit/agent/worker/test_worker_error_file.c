/* The message in which a program of torch says why it fails. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/worker/error_file.h"
#include "tests/unit/run_test.h"

static const struct {
    const char *json, *text; /* NULL: there is no message */
} cases[] = {
    {"{\"message\": {\"message\": \"ValueError: bad\", \"extraInfo\": {\"py_callstack\": \"x\"}}}",
     "ValueError: bad"},
    {"{\"message\":\"plain\"}", "plain"},
    {"{\"other\": \"message\", \"message\": {\"extraInfo\": {\"a\": [\"b\", 1]}, \"message\": \"late\"}}",
     "late"},
    {"{\"message\": \"first line\\nsecond\"}", "first line"},
    {"{\"message\": \"a \\\"quoted\\\" \\u0041 \\u00e9 \\\\\"}", "a \"quoted\" A ? \\"},
    {"{\"message\": [\"no string\"], \"errorCode\": 3}", NULL},
    {"{\"message\": 17}", NULL},
    {"{\"message\": \"\"}", NULL},
    {"{\"message\": \"without an end", NULL},
    {"{\"message\"", NULL},
    {"\"message\": \"\\", NULL},
    {"\"message\":\"\\u00", NULL},
    {"", NULL},
    {"no JSON", NULL},
};

START_TEST(the_message_is_found)
{
    char text[ERROR_TEXT_MAX], *json = strdup(cases[_i].json); /* of its size: a reader beyond it is seen */
    int rc = error_file_message(json, strlen(json), text);
    ck_assert_int_eq(rc, cases[_i].text ? 0 : -1);
    if (cases[_i].text)
        ck_assert_str_eq(text, cases[_i].text);
    free(json);
}
END_TEST

START_TEST(a_long_message_is_cut)
{
    char json[2000], text[ERROR_TEXT_MAX];
    int head = snprintf(json, sizeof json, "{\"message\": \"");
    memset(json + head, 'x', 1000);
    snprintf(json + head + 1000, sizeof json - (size_t)head - 1000, "\"}");
    ck_assert_int_eq(error_file_message(json, strlen(json), text), 0);
    ck_assert_uint_eq(strlen(text), ERROR_TEXT_MAX - 1);
}
END_TEST

START_TEST(only_a_file_is_read)
{
    char dir[] = "/tmp/hvd-error.XXXXXX", path[ERROR_FILE_MAX], other[ERROR_FILE_MAX], text[ERROR_TEXT_MAX];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    error_file_path(dir, 3, path);
    ck_assert_int_eq(error_file_read(path, text), -1);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(error_file_read(path, text), -1);
    unlink(path);
    error_file_path(dir, 4, other);
    FILE *file = fopen(other, "w");
    fputs("{\"message\": \"it\"}", file);
    fclose(file);
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(error_file_read(path, text), -1);
    ck_assert_int_eq(error_file_read(other, text), 0);
    ck_assert_str_eq(text, "it");
    unlink(path);
    unlink(other);
    rmdir(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error_file");
    TCase *tc = tcase_create("error_file");

    tcase_add_loop_test(tc, the_message_is_found, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(tc, a_long_message_is_cut);
    tcase_add_test(tc, only_a_file_is_read);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
