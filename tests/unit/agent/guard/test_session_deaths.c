/* Each supervisor dies or is stopped, alone or with another: the launcher is told, and nothing is left. */
/* needs: hvdagent tests/unit/fake_launcher.c */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guard/job_record.h"
#include "agent/worker/containment.h"
#include "common/protocol/agent_exit.h"
#include "common/base/clock.h"
#include "common/process/module.h"
#include "tests/unit/fake_launcher.h"
#include "tests/unit/scratch.h"

static struct fake f;
static char mark[64]; /* in the workers' environment, so that they are found wherever they hide */
static const char *env[2];

static const char *const containments[] = {NULL, "subreaper"};

/* ---- a place of its own -------------------------------------------------------------------------------- */

/* Each agent that starts sweeps away what dead ones have left beside it, in the directory of jobs and in its
 * cgroup: those of other jobs on this machine would come to what these cases leave on purpose. */
static char runtime[SCRATCH_MAX], home[CONTAINMENT_PATH_MAX], apart[CONTAINMENT_PATH_MAX];

static bool enter_cgroup(const char *path)
{
    char file[CONTAINMENT_PATH_MAX + 16];
    snprintf(file, sizeof file, "%s/cgroup.procs", path);
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    bool entered = fd >= 0 && write(fd, "0", 1) == 1;
    if (fd >= 0)
        close(fd);
    return entered;
}

static void keep_apart(void)
{
    char *self = containment_read("/proc/self/cgroup"), *mounts = containment_read("/proc/self/mountinfo");
    char name[64];
    ck_assert_ptr_nonnull(scratch_dir(runtime, "test"));
    ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", runtime, 1), 0);
    snprintf(name, sizeof name, "test-apart-%d", (int)getpid());
    if (!self || !mounts || containment_place(self, mounts, "", home, sizeof home) < 0 ||
        containment_place(self, mounts, name, apart, sizeof apart) < 0 || mkdir(apart, 0755) < 0)
        apart[0] = '\0'; /* then the agents make none either */
    else
        ck_assert(enter_cgroup(apart));
    free(self);
    free(mounts);
}

/* The agents have removed theirs below it. */
static bool remove_empty(const char *path)
{
    int rc = rmdir(path);
    for (int tries = 0; rc < 0 && tries < 300; tries++, rc = rmdir(path))
        usleep(10000);
    return rc == 0;
}

static void leave_apart(void)
{
    ck_assert_int_eq(rmdir(runtime), 0);
    ck_assert(!apart[0] || (enter_cgroup(home) && remove_empty(apart)));
}

/* ---- the cases ----------------------------------------------------------------------------------------- */

/* Two workers, each with a grandchild that no PDEATHSIG reaches. In the end four that sleep, and only these
 * have the whole of their time in their command line. */
static void begin(const char *containment, uint32_t heartbeat_ms)
{
    static const char *const argv[] = {
        "sh", "-c", "setsid sh -c '(setsid sleep 300.$HVD_TEST_MARK &) &'; exec sleep 300.$HVD_TEST_MARK",
        NULL};
    struct fake_job job = {.argv = argv, .workers = 2, .env = env};
    char asleep[32];
    snprintf(asleep, sizeof asleep, "300.%d", (int)getpid());
    snprintf(mark, sizeof mark, "HVD_TEST_MARK=%d", (int)getpid());
    env[0] = mark;
    fake_start(&f, containment);
    fake_hello(&f, HVD_VERSION, heartbeat_ms, 300);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
    fake_spawn(&f, &job);
    while (f.spawned < 2 || fake_count(asleep) != 4 || fake_count(mark) != 4) /* the shells have gone */
        (void)fake_wait(&f, NULL, 10);
}

/* All is gone, by itself. */
static void gone(unsigned ms)
{
    ck_assert(fake_count_becomes(mark, 0, ms));
    ck_assert(fake_traces_become(0, 1000));
    fake_free(&f);
}

/* As it should end: a job of which nothing was lost. */
static void finish(void)
{
    fake_teardown(&f, 0);
    ck_assert(fake_wait(&f, &f.ended, 8000));
    ck_assert_uint_eq(f.leftovers, 0);
    ck_assert_uint_eq(fake_count(mark), 0);
    ck_assert_uint_eq(fake_traces(), 0);
}

START_TEST(session_is_killed)
{
    begin(containments[_i], 10000);
    kill((pid_t)f.session_pid, SIGKILL);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == AGENT_EXIT_SIGNAL + SIGKILL);
    (void)fake_wait(&f, &f.closed, 3000);
    ck_assert(f.closed);
    gone(3000);
}
END_TEST

START_TEST(session_is_stopped)
{
    begin(containments[_i], 400);
    kill((pid_t)f.session_pid, SIGSTOP);
    int status = fake_agent_status(&f, 4000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == AGENT_EXIT_STUCK);
    gone(3000);
}
END_TEST

/* Asked by itself, or through its guard. */
START_TEST(session_is_asked_to_end)
{
    char expected[200];
    begin(containments[_i / 2], 10000);
    snprintf(expected, sizeof expected,
             "the session of the job (pid %u) was asked to end by signal 15 (Terminated)", f.session_pid);
    kill(_i % 2 ? f.agent : (pid_t)f.session_pid, SIGTERM);
    ck_assert(fake_wait(&f, &f.ended, 3000));
    ck_assert_str_eq(f.fault, expected);
    ck_assert_uint_eq(f.exited_before_fault, 0);
    fake_bye(&f);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 125);
    gone(0);
}
END_TEST

START_TEST(guard_is_killed)
{
    char expected[200];
    begin(containments[_i], 10000);
    snprintf(expected, sizeof expected, "the guard of the job (pid %d) was killed", (int)f.agent);
    kill(f.agent, SIGKILL);
    ck_assert(fake_wait(&f, &f.ended, 3000));
    ck_assert_str_eq(f.fault, expected);
    ck_assert_uint_eq(f.exited_before_fault, 0);
    fake_bye(&f);
    (void)fake_wait(&f, &f.closed, 3000);
    ck_assert(f.closed);
    gone(0);
}
END_TEST

/* The job goes on, and so does the guard. */
START_TEST(guard_is_stopped)
{
    begin(containments[_i], 1000);
    kill(f.agent, SIGSTOP);
    for (int i = 0; i < 400 && !strstr(f.notice, "was stopped"); i++) {
        fake_ping(&f);
        (void)fake_wait(&f, NULL, 10);
    }
    ck_assert_ptr_nonnull(strstr(f.notice, "was stopped: it goes on"));
    for (int i = 0; i < 250; i++) {
        fake_ping(&f);
        (void)fake_wait(&f, NULL, 10);
    }
    ck_assert_str_eq(f.fault, "");
    finish();
    fake_bye(&f);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gone(0);
}
END_TEST

START_TEST(guard_is_stopped_at_the_end)
{
    begin(containments[_i], 10000);
    finish();
    kill(f.agent, SIGSTOP);
    fake_bye(&f);
    int status = fake_agent_status(&f, 3000);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gone(0);
}
END_TEST

/* The guard kills the rest. */
START_TEST(launcher_and_session_are_killed)
{
    begin(containments[_i], 10000);
    kill((pid_t)f.session_pid, SIGKILL);
    fake_hang_up(&f);
    gone(3000);
}
END_TEST

/* The session ends the job. */
START_TEST(launcher_and_guard_are_killed)
{
    begin(containments[_i], 10000);
    kill(f.agent, SIGKILL);
    fake_hang_up(&f);
    gone(3000);
}
END_TEST

static int sweep(const char *job, bool now)
{
    char path[4200], dir[4000];
    int status = -1;
    ck_assert_int_eq(module_program_dir(dir, sizeof dir, NULL), 0);
    snprintf(path, sizeof path, "%s/../hvdagent", dir);
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, "hvdagent", "sweep", now ? "--now" : job, now ? job : (char *)NULL, (char *)NULL);
        _exit(99);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Two deaths at once leave what has escaped PDEATHSIG; sweep finds it. */
START_TEST(both_are_killed)
{
    char job[64];
    begin(containments[_i], 10000);
    kill(f.agent, SIGSTOP);
    kill((pid_t)f.session_pid, SIGKILL);
    kill(f.agent, SIGKILL);
    ck_assert_int_ne(fake_agent_status(&f, 3000), -1);
    ck_assert_uint_ge(fake_count(mark), 2);
    ck_assert_uint_ge(fake_traces(), 1);
    snprintf(job, sizeof job, "t-%d", (int)getpid());
    ck_assert_int_eq(sweep("another-job", false), 0);
    ck_assert_uint_ge(fake_count(mark), 2);
    ck_assert_int_eq(sweep(job, false), 0);
    ck_assert_uint_eq(fake_count(mark), 0);
    ck_assert_uint_eq(fake_traces(), 0);
    ck_assert_int_eq(sweep("../x", false), 2);
    fake_free(&f);
}
END_TEST

/* Workers of a living session end in their own time, half a second here, unless the sweep has none; whoever
 * of the supervisors is dead or stopped meanwhile. */
static void sweep_with_grace(const char *containment, bool now, const char *victim, int number)
{
    static const char *const argv[] = {"sh", "-c",
                                       "trap 'sleep 0.5; echo whole > \"$HVD_TEST_FILE\"; exit 0' TERM; echo "
                                       "ready; while :; do sleep 0.02; done",
                                       NULL};
    static const char *both[3];
    char job[64], file[80], variable[100], dir[SCRATCH_MAX];
    struct fake_job wanted = {.argv = argv, .workers = 2, .env = both};
    ck_assert_ptr_nonnull(scratch_dir(dir, "test"));
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(variable, sizeof variable, "HVD_TEST_FILE=%s", file);
    snprintf(mark, sizeof mark, "HVD_TEST_MARK=%d", (int)getpid());
    both[0] = mark;
    both[1] = variable;
    snprintf(job, sizeof job, "t-%d", (int)getpid());
    fake_start(&f, containment);
    fake_hello(&f, HVD_VERSION, 30000, 20000);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
    fake_spawn(&f, &wanted);
    for (int i = 0;
         i < 500 && f.rank[0].len[STREAM_STDOUT] + f.rank[1].len[STREAM_STDOUT] < 2 * strlen("ready\n"); i++)
        (void)fake_wait(&f, NULL, 10);
    if (victim)
        kill(strcmp(victim, "guard") == 0 ? f.agent : (pid_t)f.session_pid, number);
    uint64_t began = clock_now();
    ck_assert_int_eq(sweep(job, now), 0);
    ck_assert_uint_lt((clock_now() - began) / NSEC_PER_MSEC, 8000);
    ck_assert_int_eq(access(file, F_OK), now ? -1 : 0);
    ck_assert_uint_eq(fake_count(mark), 0);
    ck_assert_uint_eq(fake_traces(), 0);
    (void)unlink(file);
    (void)rmdir(dir);
    fake_free(&f);
}

START_TEST(sweep_waits_for_the_living)
{
    sweep_with_grace(containments[_i / 2], _i % 2, NULL, 0);
}
END_TEST

START_TEST(sweep_beside_a_dead_or_stopped_one)
{
    if (_i == 0)
        sweep_with_grace(NULL, false, "guard", SIGKILL);
    else if (_i == 1)
        sweep_with_grace(NULL, false, "guard", SIGSTOP);
    else
        sweep_with_grace(NULL, false, "session", SIGSTOP);
}
END_TEST

/* The record is believed only while that very process lives and is an agent of ours. */
START_TEST(a_note_is_checked)
{
    struct job_note note;
    struct err e = ERR_INIT;
    char dir[SCRATCH_MAX], file[80];
    ck_assert_ptr_nonnull(scratch_dir(dir, "test"));
    snprintf(file, sizeof file, "%s/supervisors", dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(job_note_read(fd, &note), -1);
    ck_assert_int_eq(prctl(PR_SET_NAME, "hvdagent"), 0);
    ck_assert_int_eq(job_note_write(fd, getpid(), 700, &e), 0);
    ck_assert_int_eq(job_note_write(fd, getpid(), 700, &e), -1);
    struct stat st;
    ck_assert(stat(file, &st) == 0 && (st.st_mode & 0777) == 0600);
    ck_assert_int_eq(job_note_read(fd, &note), 0);
    ck_assert(note.grace_ms == 700 && note.session.pid == getpid() && note.guard.pid == getpid());
    int held = job_note_hold(&note.session);
    ck_assert_int_ge(held, 0);
    close(held);
    note.session.started++; /* the number was used again */
    ck_assert_int_eq(job_note_hold(&note.session), -1);
    ck_assert_int_eq(prctl(PR_SET_NAME, "another"), 0);
    ck_assert_int_eq(job_note_hold(&note.guard), -1);
    note.guard.pid = 1;
    ck_assert_int_eq(job_note_hold(&note.guard), -1);
    ck_assert_int_eq(truncate(file, 9), 0);
    ck_assert_int_eq(job_note_read(fd, &note), -1);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(symlink("/proc/self/stat", file), 0);
    ck_assert_int_eq(job_note_read(fd, &note), -1);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(dir), 0);
    close(fd);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* The programs are slow to execute, on a file system that is: the session beats meanwhile. */
START_TEST(a_slow_start)
{
    char preload[4200], dir[4000];
    static const char *const argv[] = {"sleep", "300", NULL};
    struct fake_job job = {.argv = argv, .workers = 100, .env = env};
    ck_assert_int_eq(module_program_dir(dir, sizeof dir, NULL), 0);
    snprintf(preload, sizeof preload, "%s/slow-exec.so", dir);
    snprintf(mark, sizeof mark, "HVD_TEST_MARK=%d", (int)getpid());
    env[0] = mark;
    setenv("LD_PRELOAD", preload, 1);
    fake_start(&f, NULL);
    unsetenv("LD_PRELOAD");
    fake_hello(&f, HVD_VERSION, 1000, 300);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
    fake_spawn(&f, &job);
    unsigned pings = f.pings;
    for (int i = 0; i < 600 && f.spawned < 100; i++) {
        fake_ping(&f);
        (void)fake_wait(&f, NULL, 10);
        if (f.spawned == 0)
            pings = f.pings;
    }
    ck_assert_uint_eq(f.spawned, 100);
    ck_assert_uint_ge(pings, 4);
    finish();
    fake_bye(&f);
    ck_assert_int_eq(fake_agent_status(&f, 3000), 0);
    gone(0);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("session_deaths");
    TCase *t = tcase_create("session_deaths");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, keep_apart, leave_apart);
    tcase_add_loop_test(t, session_is_killed, 0, 2);
    tcase_add_loop_test(t, session_is_stopped, 0, 2);
    tcase_add_loop_test(t, session_is_asked_to_end, 0, 4);
    tcase_add_loop_test(t, guard_is_killed, 0, 2);
    tcase_add_loop_test(t, guard_is_stopped, 0, 2);
    tcase_add_loop_test(t, guard_is_stopped_at_the_end, 0, 2);
    tcase_add_loop_test(t, launcher_and_session_are_killed, 0, 2);
    tcase_add_loop_test(t, launcher_and_guard_are_killed, 0, 2);
    tcase_add_loop_test(t, both_are_killed, 0, 2);
    tcase_add_loop_test(t, sweep_waits_for_the_living, 0, 4);
    tcase_add_loop_test(t, sweep_beside_a_dead_or_stopped_one, 0, 3);
    tcase_add_test(t, a_note_is_checked);
#if !defined(__SANITIZE_ADDRESS__) &&                                                                        \
    !defined(__SANITIZE_THREAD__) /* their library wants to be loaded first */
    tcase_add_test(t, a_slow_start);
#endif
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
