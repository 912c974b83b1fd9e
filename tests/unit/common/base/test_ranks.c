/* Lists of ranks: as a user writes them, and as they are shown. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/ranks.h"

START_TEST(what_users_write)
{
    static const struct {
        const char *list;
        uint32_t highest;
        const char *in; /* of ranks 0 to 9 */
    } cases[] = {{"0", 0, "1000000000"},
                 {"0,2-5", 5, "1011110000"},
                 {"7-9,1", 9, "0100000111"},
                 {"3-3", 3, "0001000000"},
                 {"2-4,3-6", 6, "0011111000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        uint32_t highest;
        ck_assert_int_eq(ranks_check(cases[i].list, &highest, &e), 0);
        ck_assert_uint_eq(highest, cases[i].highest);
        for (uint32_t rank = 0; rank < 10; rank++)
            ck_assert_msg(ranks_listed(cases[i].list, rank) == (cases[i].in[rank] == '1'), "%s: rank %u",
                          cases[i].list, rank);
    }
}
END_TEST

START_TEST(what_is_no_list)
{
    static const char *const wrong[] = {"",   ",",   "1,",  ",1",  "1,,2",  "a",  "1-",
                                        "-1", "5-2", "1 2", "0x1", "1-2-3", "+1", "4294967295"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err e = ERR_INIT;
        uint32_t highest;
        ck_assert_msg(ranks_check(wrong[i], &highest, &e) < 0, "'%s'", wrong[i]);
        ck_assert_int_eq(e.code, ERR_USAGE);
        ck_assert_ptr_nonnull(strstr(e.text, wrong[i]));
    }
}
END_TEST

START_TEST(what_is_shown)
{
    static const uint32_t list[] = {0, 1, 2, 5, 7, 8};
    char text[64];
    ck_assert_str_eq(ranks_text_short(list, 6, text, sizeof text), "0-2,5,7-8");
    ck_assert_str_eq(ranks_text(list, 6, text, sizeof text), "0 to 2, 5, 7 to 8");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tc = tcase_create("ranks");
    tcase_add_test(tc, what_users_write);
    tcase_add_test(tc, what_is_no_list);
    tcase_add_test(tc, what_is_shown);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
