/* The session as a launcher sees it: real processes, a real channel, nothing left afterwards. */
/* needs: hvdagent tests/unit/fake_launcher.c */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/fake_launcher.h"
#include "tests/unit/scratch.h"

static struct fake f;
static char mark[64]; /* in the workers' environment, so that they are found wherever they hide */
static const char *env[2];

static void begin_as(const char *release, const char *containment, uint32_t heartbeat_ms, uint32_t grace_ms)
{
    snprintf(mark, sizeof mark, "HVD_TEST_MARK=%d", (int)getpid());
    env[0] = mark;
    fake_start(&f, containment);
    fake_hello(&f, release, heartbeat_ms, grace_ms);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
}

static void begin_session(const char *containment, uint32_t heartbeat_ms, uint32_t grace_ms)
{
    begin_as(HVD_VERSION, containment, heartbeat_ms, grace_ms);
}

static void spawn(unsigned workers, const char *const *argv)
{
    struct fake_job job = {.argv = argv, .workers = workers, .env = env};
    fake_spawn(&f, &job);
}

/* Ends it in order; nothing of the job may be left. */
static void finish(uint32_t grace_ms)
{
    fake_teardown(&f, grace_ms);
    ck_assert(fake_wait(&f, &f.ended, 8000));
    ck_assert_uint_eq(f.leftovers, 0);
    ck_assert_uint_eq(fake_count(mark), 0);
    ck_assert_uint_eq(fake_traces(), 0);
    fake_bye(&f);
    int status = fake_agent_status(&f, 3000);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    ck_assert(!f.broken);
    fake_free(&f);
}

#define SH(script) ((const char *const[]){"sh", "-c", script, NULL})

static const char *const containments[] = {NULL, "subreaper"};

START_TEST(ends_and_exit_codes)
{
    begin_session(containments[_i], 10000, 1000);
    ck_assert_str_eq(f.version, HVD_VERSION);
    ck_assert_uint_gt(f.free_port, 0);
    ck_assert_uint_ge(f.slots, 1);
    if (containments[_i])
        ck_assert_str_eq(f.containment, "subreaper");
    spawn(4, SH("echo out $HVD_RANK; echo err >&2; [ $RANK != 3 ] || kill -USR1 $$; exit $RANK"));
    ck_assert(fake_wait_exits(&f, 4, 5000));
    ck_assert_uint_eq(f.spawned, 4);
    for (unsigned i = 0; i < 4; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "out %u\n", i);
        ck_assert_str_eq(f.rank[i].text[1], expected);
        ck_assert_str_eq(f.rank[i].text[2], "err\n");
        ck_assert_uint_eq(f.rank[i].status, i == 3 ? 0 : i);
        ck_assert_uint_eq(f.rank[i].signal, i == 3 ? SIGUSR1 : 0);
        ck_assert(!f.rank[i].by_us);
    }
    finish(0);
}
END_TEST

/* A launcher that speaks no protocol of ours. */
START_TEST(another_protocol)
{
    fake_start(&f, NULL);
    f.later_protocols = 1;
    fake_hello(&f, "0.0.0-other", 10000, 1000);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
    ck_assert_str_eq(f.version, HVD_VERSION);
    fake_hang_up(&f);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 125);
    fake_free(&f);
}
END_TEST

START_TEST(another_release)
{
    begin_as("9.9.9", NULL, 10000, 1000);
    spawn(1, SH("echo runs"));
    ck_assert(fake_wait_exits(&f, 1, 5000));
    ck_assert_str_eq(f.rank[0].text[1], "runs\n");
    finish(0);
}
END_TEST

static void refused(const char *const *argv, const char *wdir, unsigned code, const char *word)
{
    struct fake_job job = {.argv = argv, .workers = 3, .wdir = wdir, .env = env};
    begin_session(NULL, 10000, 1000);
    fake_spawn(&f, &job);
    ck_assert(fake_wait(&f, &f.refused, 5000));
    ck_assert_uint_eq(f.refused_code, code);
    ck_assert_msg(strstr(f.refused_text, word) != NULL, "%s", f.refused_text);
    ck_assert_uint_eq(fake_count(mark), 0);
    ck_assert_uint_eq(f.exited, 0);
    finish(0);
}

START_TEST(not_found)
{
    refused((const char *const[]){"no-such-command", NULL}, NULL, 127, "no-such-command");
}
END_TEST

START_TEST(not_executable)
{
    refused((const char *const[]){"/etc/hostname", NULL}, NULL, 126, "/etc/hostname");
}
END_TEST

/* Found and executable, and yet execve fails: only the children can tell. */
START_TEST(no_program)
{
    char path[SCRATCH_MAX];
    int fd = scratch_file(path, "test");
    ck_assert_int_eq((int)write(fd, "\001\002\003", 3), 3);
    fchmod(fd, 0755);
    close(fd);
    refused((const char *const[]){path, NULL}, NULL, 126, path);
    unlink(path);
}
END_TEST

START_TEST(no_directory)
{
    refused((const char *const[]){"true", NULL}, "/no/such/place", 125, "/no/such/place");
}
END_TEST

START_TEST(credit_stops_a_writer)
{
    struct fake_job job = {.argv = SH("head -c 10000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo end"),
                           .workers = 1,
                           .window = 20000,
                           .env = env};
    begin_session(NULL, 10000, 1000);
    f.stingy = true;
    fake_spawn(&f, &job);
    (void)fake_wait(&f, NULL, 500);
    ck_assert_uint_le(f.rank[0].len[1], 20000);
    ck_assert_uint_gt(f.rank[0].len[1], 19000);
    ck_assert(!f.rank[0].exited);
    f.stingy = false;
    fake_credit(&f, 0, 1, (uint32_t)f.rank[0].len[1]);
    ck_assert(fake_wait_exits(&f, 1, 20000));
    ck_assert_uint_eq(f.rank[0].len[1], 10000000 + 10000000 / 99 + 4);
    ck_assert_str_eq(f.rank[0].text[1] + f.rank[0].len[1] - 4, "end\n");
    finish(0);
}
END_TEST

START_TEST(unfinished_line)
{
    begin_session(NULL, 10000, 1000);
    spawn(1, SH("printf prompt; sleep 1; echo .; sleep 100"));
    (void)fake_wait(&f, NULL, 700);
    ck_assert_ptr_nonnull(f.rank[0].text[1]);
    ck_assert_str_eq(f.rank[0].text[1], "prompt");
    ck_assert_uint_eq(f.rank[0].unfinished, 1);
    (void)fake_wait(&f, NULL, 700);
    ck_assert_str_eq(f.rank[0].text[1], "prompt.\n");
    ck_assert_uint_eq(f.rank[0].line_ends, 1);
    finish(2000);
    ck_assert_uint_eq(f.rank[0].signal, SIGTERM);
    ck_assert(f.rank[0].by_us);
}
END_TEST

/* The session is stopped until all have written, so it finds megabytes of unfinished lines at once. */
START_TEST(many_unfinished_lines_at_once)
{
    begin_session(NULL, 10000, 1000);
    struct fake_job job = {
        .argv = SH("sleep 1; head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; exec sleep 4"),
        .workers = 80,
        .window = 1u << 16,
        .env = env};
    fake_spawn(&f, &job);
    while (f.spawned < job.workers)
        (void)fake_wait(&f, NULL, 10);
    kill((pid_t)f.session_pid, SIGSTOP);
    (void)fake_wait(&f, NULL, 3000);
    kill((pid_t)f.session_pid, SIGCONT);
    ck_assert(fake_wait_exits(&f, job.workers, 10000));
    for (unsigned i = 0; i < job.workers; i++) {
        ck_assert_uint_eq(f.rank[i].len[1], 60000);
        ck_assert_uint_eq(f.rank[i].len[2], 60000);
    }
    finish(0);
}
END_TEST

START_TEST(input_reaches_the_worker)
{
    struct fake_job job = {
        .argv = SH("read a; echo got $a; cat | wc -c"), .workers = 2, .has_stdin = true, .env = env};
    static char block[4096];
    begin_session(NULL, 10000, 1000);
    fake_spawn(&f, &job);
    while (f.rank[0].granted == 0)
        (void)fake_wait(&f, NULL, 10);
    fake_input(&f, 0, "hello\n", 6, false);
    for (int i = 0; i < 64; i++) {
        while (f.rank[0].granted < sizeof block)
            (void)fake_wait(&f, NULL, 5);
        fake_input(&f, 0, block, sizeof block, false);
    }
    fake_input(&f, 0, NULL, 0, true);
    ck_assert(fake_wait_exits(&f, 2, 5000));
    ck_assert_str_eq(f.rank[0].text[1], "got hello\n262144\n");
    ck_assert_str_eq(f.rank[1].text[1], "got\n0\n");
    finish(0);
}
END_TEST

START_TEST(signals_are_forwarded)
{
    begin_session(NULL, 10000, 1000);
    spawn(2, SH("trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done"));
    while (!f.rank[0].text[1] || !f.rank[1].text[1])
        (void)fake_wait(&f, NULL, 10);
    fake_signal(&f, SIGUSR1);
    ck_assert(fake_wait_exits(&f, 2, 5000));
    ck_assert_uint_eq(f.rank[1].status, 7);
    ck_assert_str_eq(f.rank[1].text[1], "ready\ncaught\n");
    finish(0);
}
END_TEST

/* A program that dies of SIGUSR1 has failed; one that dies of SIGTERM did what it was asked to. */
START_TEST(who_dies_of_a_forwarded_signal)
{
    const int number = _i ? SIGUSR1 : SIGTERM;
    begin_session(NULL, 10000, 1000);
    spawn(1, SH("exec sleep 100"));
    while (f.spawned < 1)
        (void)fake_wait(&f, NULL, 10);
    fake_signal(&f, number);
    ck_assert(fake_wait_exits(&f, 1, 5000));
    ck_assert_uint_eq(f.rank[0].signal, (unsigned)number);
    ck_assert_int_eq(f.rank[0].by_us, number == SIGTERM);
    finish(0);
}
END_TEST

START_TEST(grace_then_kill)
{
    begin_session(containments[_i], 10000, 1000);
    spawn(2, SH("trap '' TERM; [ $RANK = 1 ] || exec sleep 100; while :; do sleep 0.05; done"));
    while (f.spawned < 2)
        (void)fake_wait(&f, NULL, 10);
    (void)fake_wait(&f, NULL, 200);
    finish(300);
    ck_assert_uint_eq(f.rank[1].signal, SIGKILL);
    ck_assert(f.rank[1].by_us);
}
END_TEST

START_TEST(an_orderly_end_is_ours_too)
{
    begin_session(NULL, 10000, 1000);
    spawn(2, SH("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"));
    while (!f.rank[0].text[1] || !f.rank[1].text[1])
        (void)fake_wait(&f, NULL, 10);
    finish(5000);
    ck_assert_uint_eq(f.rank[1].status, 9);
    ck_assert(f.rank[1].by_us);
}
END_TEST

/* In a session of its own, its parents gone: what a daemonizing library does. */
#define HIDE "setsid sh -c '(setsid sleep 300 &) &' "

START_TEST(grandchildren_end_with_the_job)
{
    begin_session(containments[_i], 10000, 1000);
    spawn(2, SH(HIDE "; (sleep 0.1; echo late; sleep 300) & exit 0"));
    ck_assert(fake_wait_exits(&f, 2, 5000));
    (void)fake_wait(&f, NULL, 300); /* output of processes that the dead workers left still arrives */
    ck_assert_str_eq(f.rank[0].text[1], "late\n");
    ck_assert_uint_ge(fake_count(mark), 2);
    finish(0);
}
END_TEST

/* A process that floods the dead worker's pipe must not delay the news that the worker is dead. */
START_TEST(a_flooding_grandchild)
{
    begin_session(containments[_i], 10000, 1000);
    spawn(2, SH("echo mine; yes & exit 3"));
    ck_assert(fake_wait_exits(&f, 2, 5000));
    ck_assert_uint_eq(f.rank[1].status, 3);
    ck_assert_ptr_nonnull(strstr(f.rank[1].text[1], "mine\n"));
    finish(0);
}
END_TEST

/* A process in a session of its own gets its SIGTERM too, so that a long grace period need not pass. */
START_TEST(the_hidden_need_no_grace)
{
    begin_session(containments[_i], 10000, 1000);
    spawn(2, SH(HIDE "; exec sleep 300"));
    while (f.spawned < 2)
        (void)fake_wait(&f, NULL, 10);
    (void)fake_wait(&f, NULL, 300);
    ck_assert_uint_ge(fake_count(mark), 4);
    finish(60000); /* the test waits 8 s at most */
}
END_TEST

START_TEST(launcher_hangs_up)
{
    begin_session(containments[_i], 10000, 300);
    spawn(2, SH(HIDE "; trap '' TERM; while :; do sleep 1; done"));
    while (f.spawned < 2)
        (void)fake_wait(&f, NULL, 10);
    (void)fake_wait(&f, NULL, 300);
    fake_hang_up(&f);
    ck_assert(fake_count_becomes(mark, 0, 3000));
    ck_assert_int_ne(fake_agent_status(&f, 3000), -1);
    ck_assert_uint_eq(fake_traces(), 0);
    fake_free(&f);
}
END_TEST

START_TEST(silence_ends_the_job)
{
    begin_session(NULL, 400, 100);
    spawn(2, SH("exec sleep 300"));
    while (f.spawned < 2)
        (void)fake_wait(&f, NULL, 10);
    ck_assert(fake_count_becomes(mark, 2, 1000));
    ck_assert(fake_count_becomes(mark, 0, 3000));
    ck_assert_int_ne(fake_agent_status(&f, 3000), -1);
    fake_free(&f);
}
END_TEST

START_TEST(stopped_launcher_keeps_its_job)
{
    begin_session(NULL, 400, 100);
    spawn(1, SH("while :; do echo x; sleep 0.02; done"));
    while (!f.rank[0].text[1])
        (void)fake_wait(&f, NULL, 10);
    fake_signal(&f, SIGTSTP);
    (void)fake_wait(&f, NULL, 100);
    size_t written = f.rank[0].len[1];
    usleep(1500000); /* we are silent, and the workers are stopped */
    ck_assert_uint_ge(fake_count(mark), 1);
    (void)fake_wait(&f, NULL, 10);
    ck_assert_uint_eq(f.rank[0].len[1], written);
    fake_signal(&f, SIGCONT);
    (void)fake_wait(&f, NULL, 100);
    ck_assert_uint_gt(f.rank[0].len[1], written);
    finish(1000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("session");
    TCase *t = tcase_create("session");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, ends_and_exit_codes, 0, 2);
    tcase_add_test(t, another_protocol);
    tcase_add_test(t, another_release);
    tcase_add_test(t, not_found);
    tcase_add_test(t, not_executable);
    tcase_add_test(t, no_program);
    tcase_add_test(t, no_directory);
    tcase_add_test(t, credit_stops_a_writer);
    tcase_add_test(t, unfinished_line);
    tcase_add_test(t, many_unfinished_lines_at_once);
    tcase_add_test(t, input_reaches_the_worker);
    tcase_add_test(t, signals_are_forwarded);
    tcase_add_loop_test(t, who_dies_of_a_forwarded_signal, 0, 2);
    tcase_add_loop_test(t, grace_then_kill, 0, 2);
    tcase_add_test(t, an_orderly_end_is_ours_too);
    tcase_add_loop_test(t, grandchildren_end_with_the_job, 0, 2);
    tcase_add_loop_test(t, a_flooding_grandchild, 0, 2);
    tcase_add_loop_test(t, the_hidden_need_no_grace, 0, 2);
    tcase_add_loop_test(t, launcher_hangs_up, 0, 2);
    tcase_add_test(t, silence_ends_the_job);
    tcase_add_test(t, stopped_launcher_keeps_its_job);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
