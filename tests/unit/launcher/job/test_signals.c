/* The list of --forward-signals, and what the loop then gets. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/job/signals.h"

START_TEST(lists)
{
    static const struct {
        const char *list;
        uint64_t set;
    } cases[] = {{"none", 0},
                 {"USR1", SIGNAL_BIT(SIGUSR1)},
                 {"sigusr2,12,Alrm", SIGNAL_BIT(SIGUSR2) | SIGNAL_BIT(12) | SIGNAL_BIT(SIGALRM)},
                 {"64,34", SIGNAL_BIT(64) | SIGNAL_BIT(34)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        uint64_t set;
        ck_assert_int_eq(signals_parse(&set, cases[i].list, &e), 0);
        ck_assert_uint_eq(set, cases[i].set);
    }
}
END_TEST

START_TEST(refused)
{
    static const char *const cases[][2] = {{"", "no signal"},
                                           {"USR1,", "no signal"},
                                           {"65", "no signal"},
                                           {"0", "no signal"},
                                           {"33", "no signal"},
                                           {"USR", "no signal"},
                                           {"none,USR1", "no signal"},
                                           {"INT", "hvdrun itself"},
                                           {"15", "hvdrun itself"},
                                           {"KILL", "cannot be passed on"},
                                           {"USR1,SEGV", "cannot be passed on"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        uint64_t set;
        ck_assert_msg(signals_parse(&set, cases[i][0], &e) < 0, "'%s'", cases[i][0]);
        ck_assert_int_eq(e.code, ERR_USAGE);
        ck_assert_msg(strstr(e.text, cases[i][1]), "%s", e.text);
    }
}
END_TEST

static uint64_t arrived;

static void on_signal(void *ctx, int number)
{
    (void)ctx;
    arrived |= SIGNAL_BIT(number);
}

/* Those of the list come, and those that would end us although they are not in it. */
START_TEST(the_loop_gets_them)
{
    uv_loop_t loop;
    struct signals s;
    sigset_t before, after;
    uv_loop_init(&loop);
    sigprocmask(SIG_SETMASK, NULL, &before);
    ck_assert_int_eq(signals_init(&s, &loop, SIGNAL_BIT(SIGALRM) | SIGNAL_BIT(64)), 0);
    signals_take(&s, on_signal, NULL);
    kill(getpid(), SIGALRM);
    kill(getpid(), SIGUSR1);
    kill(getpid(), 64);
    uv_ref((uv_handle_t *)&s.poll);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(arrived, SIGNAL_BIT(SIGALRM) | SIGNAL_BIT(SIGUSR1) | SIGNAL_BIT(64));
    signals_close(&s);
    uv_run(&loop, UV_RUN_DEFAULT);
    sigprocmask(SIG_SETMASK, NULL, &after);
    ck_assert_mem_eq(&before, &after, NSIG / 8);
    uv_loop_close(&loop);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("signals");
    TCase *tc = tcase_create("signals");
    tcase_add_test(tc, lists);
    tcase_add_test(tc, refused);
    tcase_add_test(tc, the_loop_gets_them);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
