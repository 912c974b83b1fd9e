/* Equal lines of several ranks: which become one, when they leave, and that no stream's order changes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/io/collapse.h"

#define RANKS 5
#define LINES 400

static struct collapse c;
static uint64_t place[RANKS];

static void set_up(void)
{
    collapse_init(&c);
    memset(place, 0, sizeof place);
}

static void tear_down(void)
{
    collapse_free(&c);
    ck_assert_uint_eq(c.bytes, 0);
    ck_assert_uint_eq(c.groups, 0);
}

static void put(uint32_t rank, const char *line, uint64_t now)
{
    ck_assert_int_eq(
        collapse_put(&c, STREAM_STDOUT, rank, &place[rank], (const uint8_t *)line, strlen(line), now), 0);
}

/* The first group is this line, of these ranks. */
static void expect(const char *line, const char *ranks)
{
    ck_assert_ptr_nonnull(c.first);
    collapse_sort(c.first);
    ck_assert_uint_eq(c.first->len, strlen(line));
    ck_assert_mem_eq(c.first->bytes, line, c.first->len);
    ck_assert_uint_eq(c.first->count, strlen(ranks));
    for (uint32_t i = 0; i < c.first->count; i++)
        ck_assert_uint_eq(c.first->rank[i], (uint32_t)(ranks[i] - '0'));
    collapse_drop(&c);
}

START_TEST(equal_lines_become_one)
{
    put(2, "a\n", 0);
    put(0, "a\n", 0);
    put(1, "b\n", 0);
    put(1, "a\n", 0);
    put(0, "b\n", 0);
    put(0, "a\n", 0);
    expect("a\n", "02");
    expect("b\n", "01");
    expect("a\n", "01");
    ck_assert_ptr_null(c.first);
}
END_TEST

START_TEST(a_line_of_its_own_does_not_part_the_others)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        put(rank, "a\n", 0);
        put(rank, (const char *[]){"own 0\n", "own 1\n", "own 2\n"}[rank], 0);
        put(rank, "b\n", 0);
    }
    expect("a\n", "012");
    expect("own 0\n", "0");
    expect("own 1\n", "1");
    expect("own 2\n", "2");
    expect("b\n", "012");
}
END_TEST

/* A young one before it does not make an old one wait. */
START_TEST(the_oldest_decides)
{
    put(0, "a\n", 0);
    put(0, "b\n", 10);
    put(1, "a\n", 0);
    put(1, "c\n", 100);
    expect("a\n", "01");
    ck_assert_uint_eq(collapse_due(&c), 10 + COLLAPSE_PATIENCE);
    expect("b\n", "0");
    ck_assert_uint_eq(collapse_due(&c), 100 + COLLAPSE_PATIENCE);
    expect("c\n", "1");
    ck_assert_uint_eq(collapse_due(&c), UINT64_MAX);
}
END_TEST

START_TEST(a_rank_that_repeats_itself_is_not_one_line)
{
    for (int i = 0; i < 2; i++)
        put(1, "a\n", 0);
    put(0, "a\n", 0);
    expect("a\n", "01");
    expect("a\n", "1");
}
END_TEST

START_TEST(streams_stay_apart)
{
    put(0, "a\n", 0);
    uint64_t other = 0;
    ck_assert_int_eq(collapse_put(&c, STREAM_STDERR, 1, &other, (const uint8_t *)"a\n", 2, 0), 0);
    expect("a\n", "0");
    expect("a\n", "1");
}
END_TEST

START_TEST(when_the_first_leaves)
{
    ck_assert(!collapse_is_ready(&c, 2, UINT64_MAX));
    put(0, "a\n", 1000);
    ck_assert(!collapse_is_ready(&c, 2, 1000 + COLLAPSE_PATIENCE - 1));
    ck_assert(collapse_is_ready(&c, 2, 1000 + COLLAPSE_PATIENCE));
    put(1, "a\n", 1001);
    ck_assert(collapse_is_ready(&c, 2, 1001));
}
END_TEST

START_TEST(what_waits_is_bounded)
{
    char line[4096];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    for (uint32_t i = 0; i < 10000; i++) {
        char number[16];
        int n = snprintf(number, sizeof number, "%u", i);
        memcpy(line, number, (size_t)n);
        line[_i ? sizeof line - 2 : 10] = '\0';
        put(0, line, 0);
        while (collapse_is_full(&c))
            collapse_drop(&c);
        ck_assert_uint_le(c.groups, COLLAPSE_GROUPS_MAX);
        ck_assert_uint_le(c.bytes, COLLAPSE_BYTES_MAX);
        line[10] = 'x';
    }
    ck_assert_uint_gt(c.groups, _i ? 50 : COLLAPSE_GROUPS_MAX - 1);
}
END_TEST

/* Ranks print random lines of few kinds in random turns: what leaves has each rank's lines in its order. */
START_TEST(order_is_kept)
{
    static char said[RANKS][LINES + 1], shown[RANKS][LINES + 1];
    size_t count[RANKS] = {0}, merged = 0;
    srand((unsigned)_i + 1);
    memset(said, 0, sizeof said);
    memset(shown, 0, sizeof shown);
    for (int i = 0; i < LINES; i++) {
        uint32_t rank = (uint32_t)rand() % RANKS;
        char line[3] = {(char)('a' + rand() % 4), '\n', '\0'};
        said[rank][strlen(said[rank])] = line[0];
        put(rank, line, (uint64_t)i);
        while (c.first && (i == LINES - 1 || collapse_is_ready(&c, RANKS, (uint64_t)i) || rand() % 8 == 0)) {
            merged += c.first->count > 1;
            for (uint32_t k = 0; k < c.first->count; k++) {
                uint32_t whose = c.first->rank[k];
                shown[whose][count[whose]++] = (char)c.first->bytes[0];
            }
            collapse_drop(&c);
        }
    }
    for (int rank = 0; rank < RANKS; rank++)
        ck_assert_str_eq(said[rank], shown[rank]);
    ck_assert_uint_gt(merged, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collapse");
    TCase *tc = tcase_create("collapse");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, equal_lines_become_one);
    tcase_add_test(tc, a_rank_that_repeats_itself_is_not_one_line);
    tcase_add_test(tc, a_line_of_its_own_does_not_part_the_others);
    tcase_add_test(tc, the_oldest_decides);
    tcase_add_test(tc, streams_stay_apart);
    tcase_add_test(tc, when_the_first_leaves);
    tcase_add_loop_test(tc, what_waits_is_bounded, 0, 2);
    tcase_add_loop_test(tc, order_is_kept, 0, 20);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
