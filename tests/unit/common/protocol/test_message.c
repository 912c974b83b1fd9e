/* Protocols that fit together, and fields that a reader does not know. */
#include <check.h>
#include <string.h>

#include "common/protocol/message.h"
#include "tests/unit/run_test.h"

START_TEST(protocols_that_fit)
{
    static const struct {
        uint32_t newest, oldest;
        bool fits;
    } cases[] = {
        {PROTOCOL_VERSION, 0, true},
        {PROTOCOL_VERSION, PROTOCOL_VERSION, true},
        {PROTOCOL_VERSION + 3, PROTOCOL_VERSION, true},      /* a later release that still speaks ours */
        {PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 1, false}, /* and one that does not */
        {PROTOCOL_VERSION + 1, 0, false},
        {PROTOCOL_OLDEST - 1, 0, false},
        {PROTOCOL_OLDEST, PROTOCOL_VERSION + 1, false}, /* nonsense */
        {UINT32_MAX, UINT32_MAX, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(protocol_fits(cases[i].newest, cases[i].oldest) == cases[i].fits, "case %zu", i);
}
END_TEST

START_TEST(fields_of_later_releases_are_ignored)
{
    static const uint8_t later[] = {0x0a, 0x02, 0x78, 0x79, 0xc0, 0xb8, 0x02, 0x05}; /* field 5000: 5 */
    struct err e = ERR_INIT;
    Hvd__Hello *hello = message_unpack(&hvd__hello__descriptor, later, sizeof later, &e);
    ck_assert_ptr_nonnull(hello);
    ck_assert_str_eq(hello->version, "xy");
    message_free(hello);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message");
    TCase *t = tcase_create("versions");
    tcase_add_test(t, protocols_that_fit);
    tcase_add_test(t, fields_of_later_releases_are_ignored);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
