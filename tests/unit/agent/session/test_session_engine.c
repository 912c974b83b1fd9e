/* Session, engine and workers that link libhvd: who is told what when one of them ends. The workers are
 * this program again. */
/* needs: hvdagent hvd-engine tests/unit/fake_launcher.c */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/fake_launcher.h"

/* ---- a worker ------------------------------------------------------------------------------------------ */

static int work(const char *how)
{
    float x = 1;
    if (hvd_init() != HVD_SUCCESS) {
        fprintf(stderr, "%s\n", hvd_last_error());
        return 40;
    }
    int status = hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL);
    if (status != HVD_SUCCESS || (int)x != hvd_size())
        return 41;
    printf("ready\n");
    fflush(stdout);
    if (strcmp(how, "stays") == 0) {
        status = hvd_shutdown();
        printf("shut down\n");
        fflush(stdout);
        sleep(1);
        return status == HVD_SUCCESS ? 0 : 42;
    }
    if (strcmp(how, "rude") == 0 && hvd_rank() == 1)
        return 0; /* without hvd_shutdown */
    if (strcmp(how, "dies") == 0 && hvd_rank() == 1) {
        usleep(100000);
        raise(SIGKILL);
    }
    if (strcmp(how, "waits") == 0 && hvd_rank() == 0)
        sleep(300);
    if (strcmp(how, "good") != 0) {
        status = hvd_allreduce("y", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL);
        printf("%d %s\n", status, hvd_last_error());
        if (strcmp(how, "dies") == 0 && hvd_rank() == 2)
            return 0; /* without hvd_shutdown */
        return status == HVD_ERR_PEER ? 50 : status == HVD_ERR_ENGINE ? 51 : 52;
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 42;
}

/* ---- the tests ----------------------------------------------------------------------------------------- */

static struct fake f;
static uint32_t heartbeat_ms = 10000;

static void begin(const char *how, unsigned workers)
{
    static char self[4096];
    static const char *argv[] = {self, "work", NULL, NULL};
    ck_assert_int_gt((int)readlink("/proc/self/exe", self, sizeof self - 1), 0);
    argv[2] = how;
    struct fake_job job = {.argv = argv, .workers = workers};
    fake_start(&f, NULL);
    fake_hello(&f, HVD_VERSION, heartbeat_ms, 1000);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
    fake_spawn(&f, &job);
}

static void finish(void)
{
    fake_teardown(&f, 0);
    ck_assert(fake_wait(&f, &f.ended, 8000));
    ck_assert_uint_eq(f.leftovers, 0);
    ck_assert_uint_eq(fake_traces(), 0);
    fake_bye(&f);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fake_free(&f);
}

/* The hvd-engine among the session's children. */
static pid_t engine_pid(void)
{
    char path[64];
    long pid, engine = 0;
    snprintf(path, sizeof path, "/proc/%u/task/%u/children", f.session_pid, f.session_pid);
    FILE *children = fopen(path, "r");
    while (children && fscanf(children, "%ld", &pid) == 1) {
        char name[64] = "";
        snprintf(path, sizeof path, "/proc/%ld/comm", pid);
        FILE *comm = fopen(path, "r");
        if (comm && fgets(name, sizeof name, comm) && strcmp(name, "hvd-engine\n") == 0)
            engine = pid;
        if (comm)
            fclose(comm);
    }
    if (children)
        fclose(children);
    return (pid_t)engine;
}

START_TEST(a_good_job)
{
    begin("good", 2);
    ck_assert(fake_wait_exits(&f, 2, 10000));
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(f.rank[i].status, 0);
        ck_assert(!f.rank[i].not_shut_down);
        ck_assert_str_eq(f.rank[i].text[1], "ready\n");
    }
    finish();
    ck_assert_str_eq(f.notice, "");
}
END_TEST

START_TEST(exit_without_shutdown)
{
    begin("rude", 2);
    ck_assert(fake_wait_exits(&f, 2, 10000));
    ck_assert_uint_eq(f.rank[1].status, 0);
    ck_assert(f.rank[1].not_shut_down);
    ck_assert_uint_eq(f.rank[0].status, 50);
    ck_assert_msg(strstr(f.rank[0].text[1], "without hvd_shutdown") != NULL, "%s", f.rank[0].text[1]);
    finish();
}
END_TEST

START_TEST(a_death_is_told_to_the_others)
{
    begin("dies", 3);
    ck_assert(fake_wait_exits(&f, 3, 10000));
    ck_assert_uint_eq(f.rank[1].signal, SIGKILL);
    ck_assert(!f.rank[1].by_us);
    for (int i = 0; i < 3; i += 2) {
        ck_assert_uint_eq(f.rank[i].status, i == 0 ? 50 : 0);
        ck_assert(f.rank[i].told_peer);
        ck_assert_msg(strstr(f.rank[i].text[1], "killed by signal 9") != NULL, "%s", f.rank[i].text[1]);
    }
    finish();
}
END_TEST

/* Both ranks have had a collective; rank 1 waits in the next for rank 0, which does not come. */
static pid_t wait_for_engine(void)
{
    while (!f.rank[0].text[1] || !f.rank[1].text[1])
        (void)fake_wait(&f, NULL, 10);
    (void)fake_wait(&f, NULL, 100);
    pid_t engine = engine_pid();
    ck_assert_int_gt(engine, 0);
    return engine;
}

static const struct {
    int signal;
    const char *says;
    unsigned within_ms;
} engine_ends[] = {
    {SIGKILL, "was killed by signal 9 (Killed)", 1000},
    {SIGABRT, "was killed by signal 6 (Aborted)", 1000},
    {SIGSTOP, "did not move for 1 s and was killed", 3000},
};

/* The engine is the cause; who ends because of it was told, and says so. */
START_TEST(the_engine_fails)
{
    char expected[200];
    heartbeat_ms = 2000;
    begin("waits", 2);
    pid_t engine = wait_for_engine();
    snprintf(expected, sizeof expected, "the collectives engine (pid %d) %s", (int)engine,
             engine_ends[_i].says);
    kill(engine, engine_ends[_i].signal);
    ck_assert(fake_wait(&f, &f.rank[1].exited, engine_ends[_i].within_ms));
    ck_assert_msg(f.rank[1].status == 51, "%u %s", f.rank[1].status, f.rank[1].text[1]);
    ck_assert_str_eq(f.fault, expected);
    ck_assert_uint_eq(f.exited_before_fault, 0);
    ck_assert(f.rank[1].told_peer);
    finish();
}
END_TEST

/* Nobody misses an engine after hvd_shutdown. */
START_TEST(an_engine_that_nobody_needs)
{
    begin("stays", 2);
    pid_t engine = wait_for_engine();
    for (int i = 0; i < 2; i++)
        while (!strstr(f.rank[i].text[1], "shut down"))
            (void)fake_wait(&f, NULL, 10);
    kill(engine, SIGKILL);
    ck_assert(fake_wait_exits(&f, 2, 10000));
    for (int i = 0; i < 2; i++)
        ck_assert_uint_eq(f.rank[i].status, 0);
    ck_assert_str_eq(f.fault, "");
    ck_assert_ptr_nonnull(strstr(f.notice, "was killed by signal 9"));
    finish();
}
END_TEST

/* The guard kills the rest: workers that wait in a collective, whose engine is gone. */
START_TEST(engine_and_session_are_killed)
{
    begin("waits", 2);
    pid_t engine = wait_for_engine();
    kill(_i ? engine : (pid_t)f.session_pid, SIGKILL);
    kill(_i ? (pid_t)f.session_pid : engine, SIGKILL);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(kill((pid_t)f.rank[i].pid, 0), -1);
    ck_assert_int_eq(kill(engine, 0), -1);
    ck_assert_uint_eq(fake_traces(), 0);
    fake_free(&f);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "work") == 0)
        return work(argv[2]);
    Suite *s = suite_create("session_engine");
    TCase *t = tcase_create("session_engine");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_good_job);
    tcase_add_test(t, exit_without_shutdown);
    tcase_add_test(t, a_death_is_told_to_the_others);
    tcase_add_loop_test(t, the_engine_fails, 0, 3);
    tcase_add_test(t, an_engine_that_nobody_needs);
    tcase_add_loop_test(t, engine_and_session_are_killed, 0, 2);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
