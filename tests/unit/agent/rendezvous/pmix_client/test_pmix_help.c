/* The words of OpenMPI 4 about an error, and bytes that are none. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_client/pmix_help.h"

static const char message[] = "\0\0\0\1\0\0\0\3a.\0\0\0\0\1\0\0\0\2b\0\0\0\0\1\1\0\0\0\1\0\0\0\5help\0";
#define SIZE (sizeof message - 1)

/* In memory of its own, so that a sanitizer sees who reads beyond it. */
static const char *read_copy(const char *bytes, size_t size, size_t *len)
{
    static char *copy;
    free(copy);
    copy = malloc(size ? size : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, size);
    return pmix_help_read(copy, size, len);
}

START_TEST(a_text_is_found)
{
    size_t len = 0;
    ck_assert_str_eq(read_copy(message, SIZE, &len), "help");
    ck_assert_uint_eq(len, 4);
}
END_TEST

START_TEST(anything_else_is_none)
{
    char changed[SIZE + 1];
    size_t len;
    for (size_t size = 0; size < SIZE; size++)
        ck_assert_ptr_null(read_copy(message, size, &len));
    memcpy(changed, message, sizeof changed);
    ck_assert_ptr_null(read_copy(changed, SIZE + 1, &len)); /* something follows */
    for (size_t i = 0; i < SIZE; i++) {                     /* each byte that is no letter of a text */
        memcpy(changed, message, SIZE);
        changed[i] = (char)0xff;
        const char *text = read_copy(changed, SIZE, &len);
        ck_assert(!text || strlen(text) == len);
        ck_assert(!text || message[i] >= '.' || i == 10 || i == 20);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pmix_help");
    TCase *t = tcase_create("pmix_help");
    tcase_add_test(t, a_text_is_found);
    tcase_add_test(t, anything_else_is_none);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
