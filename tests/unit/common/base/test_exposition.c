/* The text format of Prometheus, by its documentation: what may stand on a line, and in what order. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/exposition.h"

static char *text;
static size_t size;

static FILE *begin(void)
{
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    return out;
}

static void says(FILE *out, const char *what)
{
    fclose(out);
    ck_assert_str_eq(text, what);
    free(text);
}

START_TEST(a_family)
{
    FILE *out = begin();
    exposition_family(out, "hvd_jobs", "gauge", "Jobs.");
    exposition_sample(out, "hvd_jobs", 3, (const char *[]){"user", "alice", "kind", "x y", NULL});
    exposition_sample(out, "hvd_jobs", 0, NULL);
    says(out, "# HELP hvd_jobs Jobs.\n# TYPE hvd_jobs gauge\n"
              "hvd_jobs{user=\"alice\",kind=\"x y\"} 3\nhvd_jobs 0\n");
}
END_TEST

/* The label of a name that somebody chose must not end the line, or begin another sample. */
START_TEST(labels_are_escaped)
{
    FILE *out = begin();
    exposition_sample(out, "x", 1, (const char *[]){"a", "\"} 1\nfake 2", "b", "\\\033[2J\xff\t", NULL});
    says(out, "x{a=\"\\\"} 1?fake 2\",b=\"\\\\?[2J??\"} 1\n");
}
END_TEST

START_TEST(labels_have_a_length)
{
    char value[1000], line[EXPOSITION_VALUE_MAX + 32];
    FILE *out = begin();
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    exposition_sample(out, "x", 1, (const char *[]){"a", value, NULL});
    snprintf(line, sizeof line, "x{a=\"%.*s\"} 1\n", EXPOSITION_VALUE_MAX, value);
    says(out, line);
}
END_TEST

START_TEST(values_are_exact_where_they_can_be)
{
    FILE *out = begin();
    exposition_sample(out, "x", 9007199254740991.0, NULL);
    exposition_sample(out, "x", 0.25, NULL);
    exposition_sample(out, "x", -7, NULL);
    exposition_sample(out, "x", 1.8446744073709552e19, NULL);
    says(out, "x 9007199254740991\nx 0.25\nx -7\nx 1.84467441e+19\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exposition");
    TCase *c = tcase_create("exposition");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, c);
    tcase_add_test(c, a_family);
    tcase_add_test(c, labels_are_escaped);
    tcase_add_test(c, labels_have_a_length);
    tcase_add_test(c, values_are_exact_where_they_can_be);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
