/* The stack dump of a job as text: ranks in the same place share their lines, and a large job fits a
 * screen. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/status/where_text.h"

#define RANKS 200

static char text[20000];
static size_t lines;
static struct where_rank ranks[RANKS];
static Hvd__Where where[RANKS];
static Hvd__WhereProcess process[RANKS], *list[RANKS];

static void on_line(void *ctx, const char *line)
{
    lines++;
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", line);
}

/* All of them on one host, in f. */
static void begin(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hvd__where__init(&where[i]);
        hvd__where_process__init(&process[i]);
        list[i] = &process[i];
        where[i].n_process = 1;
        where[i].process = &list[i];
        process[i].pid = (uint32_t)(100 + i);
        process[i].name = (char *)"train";
        process[i].state = (char *)"sleeping";
        process[i].waits = (char *)"futex";
        process[i].stack = (char *)"f < main";
        ranks[i] = (struct where_rank){(uint32_t)i, "node1", &where[i]};
    }
}

START_TEST(ranges)
{
    static const uint32_t some[] = {0, 1, 2, 5, 7, 8, 10};
    uint32_t odd[100];
    char out[60], small[64];
    where_ranges(some, 7, out, sizeof out);
    ck_assert_str_eq(out, "0-2,5,7,8,10");
    where_ranges(some, 0, out, sizeof out);
    ck_assert_str_eq(out, "");
    for (uint32_t i = 0; i < 100; i++)
        odd[i] = 2 * i;
    where_ranges(odd, 100, small, sizeof small);
    ck_assert_ptr_nonnull(strstr(small, " others"));
}
END_TEST

START_TEST(ranks_in_one_place)
{
    begin(5);
    process[3].stack = (char *)"g < main\na thread: h";
    process[2].cpu_ms = 1250;
    ranks[4].host = "node2";
    where_text(ranks, 5, 40, on_line, NULL);
    ck_assert_str_eq(text,
                     "ranks 0-2,4 on node1, node2: train is sleeping in futex, CPU time 0.00 to 1.25 s\n"
                     "    f < main\n"
                     "rank 3 on node1: train (pid 103) is sleeping in futex, CPU time 0.00 s\n"
                     "    g < main\n"
                     "    a thread: h\n");
}
END_TEST

START_TEST(who_has_not_answered)
{
    begin(3);
    ranks[1].where = ranks[2].where = NULL;
    process[0].stack = (char *)"";
    process[0].no_stack = (char *)"not permitted";
    where_text(ranks, 3, 40, on_line, NULL);
    ck_assert_ptr_nonnull(strstr(text, "ranks 1,2 on node1: no answer\n"));
    ck_assert_ptr_nonnull(strstr(text, "    no stack: not permitted\n"));
}
END_TEST

START_TEST(several_processes_of_a_rank)
{
    Hvd__WhereProcess second, *both[2];
    begin(2);
    second = process[1];
    second.name = (char *)"gzip";
    both[0] = &process[0];
    both[1] = &second;
    where[0].n_process = 2;
    where[0].process = both;
    where_text(ranks, 2, 40, on_line, NULL);
    ck_assert_ptr_nonnull(strstr(text, "rank 0 on node1: train (pid 100)"));
    ck_assert_ptr_nonnull(strstr(text, "  also gzip (pid 101) is sleeping"));
    ck_assert_ptr_nonnull(strstr(text, "rank 1 on node1: train (pid 101)"));
}
END_TEST

/* Every rank in a place of its own. */
START_TEST(no_more_than_a_screen)
{
    char names[RANKS][8];
    begin(RANKS);
    for (int i = 0; i < RANKS; i++) {
        snprintf(names[i], sizeof names[i], "f%d", i);
        process[i].stack = names[i];
    }
    where_text(ranks, RANKS, 20, on_line, NULL);
    ck_assert_uint_eq(lines, 21);
    ck_assert_ptr_nonnull(strstr(text, "\nand 190 ranks in 190 other places\n"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("where_text");
    TCase *t = tcase_create("where_text");
    tcase_add_test(t, ranges);
    tcase_add_test(t, ranks_in_one_place);
    tcase_add_test(t, who_has_not_answered);
    tcase_add_test(t, several_processes_of_a_rank);
    tcase_add_test(t, no_more_than_a_screen);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
