/* The outcome of a job: its first fault, the sentence for the user, and the exit status. */
#include <check.h>
#include <string.h>

#include "launcher/job/outcome.h"

#define SECOND 1000000000ULL

START_TEST(no_fault_is_success)
{
    struct outcome o = {0};
    struct rank_end end = {.rank = 0, .pid = 10};
    outcome_rank_ended(&o, &end, "a", NULL, SECOND, 2 * SECOND);
    ck_assert(!o.failed);
    ck_assert_int_eq(o.exit_status, 0);
}
END_TEST

START_TEST(the_status_of_an_end)
{
    static const struct {
        struct rank_end end;
        int status;
        const char *says;
    } cases[] = {
        {{.status = 3}, 3, "exit status 3"},
        {{.signal = 9}, 137, "killed by signal 9 (Killed)"},
        {{.signal = 11, .core_dumped = true}, 139, "core dumped"},
        {{.not_shut_down = true}, 1, "without hvd_shutdown"},
        {{.status = 255}, 255, "exit status 255"},
        {{.status = 256}, 255, "exit status 256"}, /* no process has such a status */
        {{.signal = 128}, 255, "killed by signal 128"},
    };
    struct outcome o = {0};
    outcome_rank_ended(&o, &cases[_i].end, "node7", NULL, SECOND, 2 * SECOND);
    ck_assert(o.failed);
    ck_assert_int_eq(o.exit_status, cases[_i].status);
    ck_assert_ptr_nonnull(strstr(o.text, cases[_i].says));
    ck_assert_ptr_nonnull(strstr(o.text, "node7"));
}
END_TEST

/* A file may be called what it likes: the terminal is not to obey it. */
START_TEST(a_command_says_nothing_to_the_terminal)
{
    struct outcome o = {0};
    struct rank_end end = {.status = 3};
    outcome_rank_ended(&o, &end, "a", "\033[31mf", SECOND, 2 * SECOND);
    ck_assert_ptr_nonnull(strstr(o.text, "[31mf"));
    ck_assert_ptr_null(strchr(o.text, '\033'));
}
END_TEST

START_TEST(the_earliest_fault_is_the_cause_whenever_it_arrives)
{
    struct outcome o = {0};
    struct rank_end second = {.rank = 2, .status = 1}, first = {.rank = 5, .status = 42};
    outcome_rank_ended(&o, &second, "b", NULL, SECOND, 3 * SECOND);
    outcome_rank_ended(&o, &first, "a", NULL, SECOND, 2 * SECOND);
    outcome_fault(&o, 4 * SECOND, 125, "host c was lost", "look at c");
    ck_assert_int_eq(o.exit_status, 42);
    ck_assert_ptr_nonnull(strstr(o.text, "rank 5 on a"));
    ck_assert_str_eq(o.hint, "");
    ck_assert_uint_eq(o.faults, 2);
}
END_TEST

/* A host's words are shown, and do nothing to the terminal. */
START_TEST(a_fault_is_printable)
{
    struct outcome o = {0};
    outcome_fault(&o, SECOND, 125, "node7: \033]0;title\a\rgone \303\244", "one\ntwo");
    ck_assert_str_eq(o.text, "node7: ?]0;title??gone \303\244");
    ck_assert_str_eq(o.hint, "one?two");
}
END_TEST

START_TEST(what_we_ended_is_never_the_cause)
{
    struct outcome o = {0};
    struct rank_end ours = {.rank = 1, .signal = 15, .by_us = true}, fault = {.rank = 0, .status = 9};
    outcome_rank_ended(&o, &ours, "a", NULL, SECOND, 2 * SECOND);
    ck_assert(!o.failed);
    outcome_rank_ended(&o, &fault, "a", NULL, SECOND, 3 * SECOND);
    ck_assert_int_eq(o.exit_status, 9);
    ck_assert_uint_eq(o.ended, 1);
}
END_TEST

START_TEST(an_end_before_word_of_the_start)
{
    struct outcome o = {0};
    struct rank_end end = {.rank = 2, .status = 1};
    outcome_rank_ended(&o, &end, "a", NULL, 0, 50000 * SECOND);
    ck_assert_ptr_nonnull(strstr(o.text, "exit status 1, 0.0 s after its start"));
}
END_TEST

START_TEST(lack_of_memory_is_named)
{
    struct outcome o = {0};
    struct rank_end end = {.rank = 2, .signal = 9, .oom = true};
    outcome_rank_ended(&o, &end, "a", NULL, SECOND, 2 * SECOND);
    ck_assert_int_eq(o.exit_status, 137);
    ck_assert_ptr_nonnull(
        strstr(o.text, "failed first: killed by the kernel for lack of memory (OOM), 1.0 s"));
}
END_TEST

START_TEST(an_abort_is_named)
{
    struct outcome o = {0};
    struct rank_end end = {.rank = 2, .status = 255, .aborted = true, .abort_code = (uint32_t)-1};
    outcome_rank_ended(&o, &end, "a", NULL, SECOND, 2 * SECOND);
    ck_assert_int_eq(o.exit_status, 255);
    ck_assert_ptr_nonnull(strstr(o.text, "failed first: MPI_Abort with -1, exit status 255, 1.0 s"));
}
END_TEST

/* The rank and its sentence are the cause, however the rank ends. */
START_TEST(a_rank_that_gave_up_is_the_cause)
{
    static const struct {
        struct rank_end end;
        int exit_status;
        const char *how;
    } cases[] = {
        {{.rank = 2, .pid = 9, .status = 3, .gave_up = "bad batch"},
         3,
         "gave up: bad batch; exit status 3, 1"},
        {{.rank = 2, .pid = 9, .gave_up = "bad batch"}, 1, "gave up: bad batch; exit status 0, 1"},
        {{.rank = 2, .pid = 9, .signal = 6, .gave_up = "bad batch"},
         134,
         "gave up: bad batch; killed by sig"},
        {{.rank = 2, .pid = 9, .signal = 15, .by_us = true, .gave_up = "bad batch"},
         1,
         "gave up: bad batch; kil"},
    };
    struct outcome o = {0};
    struct rank_end told = {.rank = 0, .status = 1, .told_peer = true};

    outcome_rank_ended(&o, &told, "a", NULL, SECOND, SECOND + 1);
    outcome_rank_ended(&o, &cases[_i].end, "b", NULL, SECOND, 2 * SECOND);
    ck_assert_int_eq(o.exit_status, cases[_i].exit_status);
    ck_assert_ptr_nonnull(strstr(o.text, "rank 2 on b (pid 9) failed first: "));
    ck_assert_ptr_nonnull(strstr(o.text, cases[_i].how));
}
END_TEST

START_TEST(a_rank_that_was_told_is_no_cause)
{
    struct outcome o = {0};
    struct rank_end told = {.rank = 0, .status = 1, .told_peer = true}, cause = {.rank = 1, .signal = 9};
    outcome_rank_ended(&o, &told, "a", NULL, SECOND, 2 * SECOND);
    ck_assert(o.failed);
    ck_assert_int_eq(o.exit_status, 1);
    if (_i)
        outcome_rank_ended(&o, &cause, "b", NULL, SECOND, 3 * SECOND);
    else
        outcome_fault(&o, 3 * SECOND, 137, "rank 1 on b", NULL);
    told.rank = 2;
    outcome_rank_ended(&o, &told, "a", NULL, SECOND, SECOND);
    ck_assert_int_eq(o.exit_status, 137);
    ck_assert_ptr_nonnull(strstr(o.text, "rank 1 on b"));
}
END_TEST

/* A limit ends a job that goes on after faults: it decides the exit status, whenever the first fault comes.
 */
START_TEST(what_ended_a_job_that_went_on)
{
    struct outcome o = {0};
    struct rank_end fault = {.rank = 1, .status = 9};
    if (_i == 0)
        outcome_rank_ended(&o, &fault, "a", NULL, SECOND, 2 * SECOND);
    ck_assert_ptr_null(outcome_ended_by(&o));
    outcome_stop(&o, 3 * SECOND, 124, "the time limit is over", true, true);
    outcome_stop(&o, 4 * SECOND, 130, "ended by signal 2", true, false);
    if (_i == 1)
        outcome_rank_ended(&o, &fault, "a", NULL, SECOND, 2 * SECOND);
    ck_assert_int_eq(o.exit_status, 124);
    ck_assert_ptr_nonnull(strstr(o.text, "rank 1 on a"));
    ck_assert_str_eq(outcome_ended_by(&o), "the time limit is over");
}
END_TEST

/* A signal is named; the first failing rank keeps the exit status. */
START_TEST(a_signal_does_not_decide)
{
    struct outcome o = {0};
    struct rank_end fault = {.rank = 1, .status = 9};
    outcome_rank_ended(&o, &fault, "a", NULL, SECOND, 2 * SECOND);
    outcome_stop(&o, 3 * SECOND, 143, "ended by signal 15", true, false);
    ck_assert_int_eq(o.exit_status, 9);
    ck_assert_str_eq(outcome_ended_by(&o), "ended by signal 15");
}
END_TEST

START_TEST(a_limit_alone_is_the_cause)
{
    struct outcome o = {0};
    struct rank_end fault = {.rank = 1, .status = 9};
    outcome_stop(&o, 3 * SECOND, 124, "the time limit is over", _i == 0, true);
    outcome_rank_ended(&o, &fault, "a", NULL, SECOND, 4 * SECOND);
    ck_assert_int_eq(o.exit_status, 124);
    ck_assert_str_eq(o.text, "the time limit is over");
    ck_assert_ptr_null(outcome_ended_by(&o));
    if (_i == 1) { /* any fault ends this job, so the first one decides */
        outcome_rank_ended(&o, &fault, "a", NULL, SECOND, 2 * SECOND);
        ck_assert_int_eq(o.exit_status, 9);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outcome");
    TCase *t = tcase_create("outcome");
    tcase_add_test(t, no_fault_is_success);
    tcase_add_test(t, a_command_says_nothing_to_the_terminal);
    tcase_add_test(t, an_end_before_word_of_the_start);
    tcase_add_loop_test(t, the_status_of_an_end, 0, 7);
    tcase_add_test(t, the_earliest_fault_is_the_cause_whenever_it_arrives);
    tcase_add_test(t, a_fault_is_printable);
    tcase_add_test(t, what_we_ended_is_never_the_cause);
    tcase_add_test(t, lack_of_memory_is_named);
    tcase_add_test(t, an_abort_is_named);
    tcase_add_loop_test(t, a_rank_that_gave_up_is_the_cause, 0, 4);
    tcase_add_loop_test(t, a_rank_that_was_told_is_no_cause, 0, 2);
    tcase_add_loop_test(t, what_ended_a_job_that_went_on, 0, 2);
    tcase_add_test(t, a_signal_does_not_decide);
    tcase_add_loop_test(t, a_limit_alone_is_the_cause, 0, 2);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
