/* Linked to every unit test: CK_RUN_TEST="name name" keeps the test functions of these names, as CK_RUN_CASE
 * keeps a test case of Check. tests/often.sh asks for them. */
#include "tests/unit/run_test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void __real__tcase_add_test(TCase *tc, const TTest *test, int signal, int status, int start, int end);
void __wrap__tcase_add_test(TCase *tc, const TTest *test, int signal, int status, int start, int end);

static bool is_wanted(const char *name)
{
    const char *words = getenv("CK_RUN_TEST");
    size_t length = strlen(name);

    if (!words)
        return true;
    for (const char *at = words; (at = strstr(at, name)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

void __wrap__tcase_add_test(TCase *tc, const TTest *test, int signal, int status, int start, int end)
{
    if (is_wanted(test->name))
        __real__tcase_add_test(tc, test, signal, status, start, end);
}

bool is_emulated(void)
{
    return getenv("HVD_TEST_EMULATED") != NULL;
}

int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
