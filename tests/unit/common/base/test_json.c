/* The output of json.c, byte for byte. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"

static char *text;
static size_t size;
static struct json w;

static void begin(void)
{
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    json_begin(&w, out);
}

static void ck_written(const char *wanted)
{
    fclose(w.out);
    ck_assert_str_eq(text, wanted);
    free(text);
}

START_TEST(shapes)
{
    begin();
    json_object(&w, NULL);
    json_array(&w, "empty");
    json_end(&w);
    json_array(&w, "mixed");
    json_unsigned(&w, NULL, UINT64_MAX);
    json_integer(&w, NULL, INT64_MIN);
    json_object(&w, NULL);
    json_end(&w);
    json_object(&w, NULL);
    json_null(&w, "nothing");
    json_end(&w);
    json_end(&w);
    json_bool(&w, "yes", true);
    json_bool(&w, "no", false);
    json_end(&w);
    ck_written("{\n"
               "  \"empty\": [],\n"
               "  \"mixed\": [\n"
               "    18446744073709551615,\n"
               "    -9223372036854775808,\n"
               "    {},\n"
               "    {\n"
               "      \"nothing\": null\n"
               "    }\n"
               "  ],\n"
               "  \"yes\": true,\n"
               "  \"no\": false\n"
               "}\n");
}
END_TEST

START_TEST(null_for_nothing)
{
    begin();
    json_object(&w, NULL);
    json_filled_text(&w, "empty", "");
    json_filled_text(&w, "filled", "x");
    json_known_unsigned(&w, "unknown", false, 7);
    json_known_unsigned(&w, "known", true, 0);
    json_known_integer(&w, "unknown", false, 7);
    json_known_integer(&w, "known", true, -7);
    json_end(&w);
    ck_written("{\n"
               "  \"empty\": null,\n"
               "  \"filled\": \"x\",\n"
               "  \"unknown\": null,\n"
               "  \"known\": 0,\n"
               "  \"unknown\": null,\n"
               "  \"known\": -7\n"
               "}\n");
}
END_TEST

START_TEST(reals)
{
    begin();
    json_array(&w, NULL);
    json_real(&w, NULL, 0.5);
    json_real(&w, NULL, -12345678.25);
    json_real(&w, NULL, (double)INFINITY);
    json_real(&w, NULL, (double)NAN);
    json_end(&w);
    ck_written("[\n  0.500000,\n  -12345678.250000,\n  null,\n  null\n]\n");
}
END_TEST

#define BAD "\xef\xbf\xbd" /* U+FFFD */

static const struct {
    const char *text, *written;
} texts[] = {
    {"", "\"\""},
    {NULL, "null"},
    {"plain / text", "\"plain / text\""},
    {"\"\\\n\t\x01\x7f", "\"\\\"\\\\\\n\\u0009\\u0001\\u007f\""},
    {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
     "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\""},
    {"\xff"
     "a",
     "\"" BAD "a\""},
    {"\xc0\xaf", "\"" BAD BAD "\""},                 /* overlong */
    {"\xe0\x9f\xbf", "\"" BAD BAD BAD "\""},         /* overlong */
    {"\xf0\x8f\xbf\xbf", "\"" BAD BAD BAD BAD "\""}, /* overlong */
    {"\xed\xa0\x80", "\"" BAD BAD BAD "\""},         /* a surrogate */
    {"\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""}, /* above U+10FFFF */
    {"\xe2\x82", "\"" BAD BAD "\""},                 /* cut off */
    {"\xe2\"\x82", "\"" BAD "\\\"" BAD "\""},        /* the quote is not swallowed */
    {"\x80", "\"" BAD "\""},
};

START_TEST(strings)
{
    begin();
    json_text(&w, NULL, texts[_i].text);
    ck_written(texts[_i].written);
}
END_TEST

/* Names are escaped as values are. */
START_TEST(names)
{
    begin();
    json_object(&w, NULL);
    json_text(&w, "a\"b", "c");
    json_end(&w);
    ck_written("{\n  \"a\\\"b\": \"c\"\n}\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json");
    TCase *c = tcase_create("json");
    tcase_add_test(c, shapes);
    tcase_add_test(c, null_for_nothing);
    tcase_add_test(c, reals);
    tcase_add_loop_test(c, strings, 0, (int)(sizeof texts / sizeof *texts));
    tcase_add_test(c, names);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
