/* The place where a process is: its state in /proc, the output of the tools, and that the look changes
 * nothing. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/inspect/stacks.h"
#include "agent/inspect/stacks_proc.h"
#include "tests/unit/scratch.h"
#include "tests/unit/run_test.h"

/* ---- /proc --------------------------------------------------------------------------------------------- */

#define REST " 1 2 3 0 -1 4194560 111 0 0 0 150 50 7 8 20 0 3 0 987654 2469888 181"

START_TEST(a_stat_line)
{
    static const struct {
        const char *text;
        const char *name;
        char state;
        bool good;
    } cases[] = {
        {"12 (train) S" REST, "train", 'S', true},
        {"12 (a b) R) D" REST, "a b) R", 'D', true}, /* a name may hold anything */
        {"12 () R" REST, "", 'R', true},
        {"12 (train) S 1 2 3", "", 0, false},
        {"12 train S" REST, "", 0, false},
        {") S (" REST, "", 0, false},
        {"", "", 0, false},
    };
    struct inspected_process p = {0};
    ck_assert_int_eq(inspect_parse_stat(cases[_i].text, 100, &p), cases[_i].good);
    if (!cases[_i].good)
        return;
    ck_assert_str_eq(p.name, cases[_i].name);
    ck_assert_int_eq(p.state, cases[_i].state);
    ck_assert_uint_eq(p.cpu_ms, 2150);
    ck_assert_uint_eq(p.start, 987654);
}
END_TEST

START_TEST(a_stat_line_with_a_priority)
{
    static const char line[] = "12 (train) R 1 2 3 0 -1 4194560 111 0 0 0 150 50 7 8 39 19 3 0 987654 "
                               "2469888 181 18446744073709551615 "
                               "94 95 140 0 0 0 0 0 2 0 0 0 17 3 0 5 0 0 0 94 95 96 140 141 142 143 0";
    struct inspected_process p = {.policy = 7};
    ck_assert(inspect_parse_stat(line, 100, &p));
    ck_assert_int_eq(p.nice, 19);
    ck_assert_uint_eq(p.policy, 5);
    ck_assert_uint_eq(p.cpu, 3);
    ck_assert(inspect_parse_stat("12 (train) S" REST, 100, &p)); /* cut */
    ck_assert_int_eq(p.nice, 0);
    ck_assert_uint_eq(p.policy, 0);
}
END_TEST

START_TEST(states_in_words)
{
    static const struct {
        char state;
        const char *word;
    } cases[] = {
        {'R', "running"}, {'S', "sleeping"}, {'D', "uninterruptible"},    {'T', "stopped"}, {'Z', "ended"},
        {'t', "traced"},  {'I', "idle"},     {'?', "in an unknown state"}};
    ck_assert_str_eq(inspect_state_word(cases[_i].state), cases[_i].word);
}
END_TEST

START_TEST(what_it_waits_for)
{
    char call[64], out[96];
    snprintf(call, sizeof call, "%d 0x3 0x7ffe 0x400", SYS_read);
    ck_assert(!inspect_parse_wait(call, "pipe_read", out, sizeof out));
    ck_assert_str_eq(out, "read (pipe_read)");
    ck_assert(!inspect_parse_wait(call, "0", out, sizeof out));
    ck_assert_str_eq(out, "read");
    ck_assert(!inspect_parse_wait("running\n", "0", out, sizeof out));
    ck_assert_str_eq(out, "");
    ck_assert(!inspect_parse_wait("-1 0x7ffe 0x7f00", "", out, sizeof out));
    ck_assert_str_eq(out, "");
    ck_assert(!inspect_parse_wait("99999 0x3", "", out, sizeof out));
    ck_assert_str_eq(out, "system call 99999");
    snprintf(call, sizeof call, "%d 0x0", SYS_wait4);
    ck_assert(inspect_parse_wait(call, "do_wait", out, sizeof out));
    ck_assert(inspect_parse_wait("", "do_wait", out, sizeof out));
    ck_assert_str_eq(out, "do_wait");
}
END_TEST

START_TEST(the_process_to_look_at)
{
    pid_t below = fork();
    if (below == 0) {
        pause();
        _exit(0);
    }
    ck_assert_int_eq(inspect_subject(getpid(), 0), getpid());
    ck_assert_int_eq(inspect_subject(getpid(), getpid()), getpid());
    ck_assert_int_eq(inspect_subject(getpid(), below), getpid()); /* found from there downwards */
    ck_assert_int_eq(inspect_subject(below, getppid()), getppid());
    ck_assert_int_eq(inspect_subject(getpid(), 1 << 30), getpid()); /* it has gone */
    kill(below, SIGKILL);
    waitpid(below, NULL, 0);
}
END_TEST

/* A command that has started the rank: it sleeps until the rank ends, or until something else happens. */
static pid_t start_command(bool waits, pid_t *rank)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t command = fork();
    if (command == 0) {
        *rank = fork();
        if (*rank == 0) {
            pause();
            _exit(0);
        }
        if (write(ends[1], rank, sizeof *rank) != sizeof *rank)
            _exit(1);
        if (waits)
            waitpid(*rank, NULL, 0);
        pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ends[0], rank, sizeof *rank), sizeof *rank);
    close(ends[0]);
    close(ends[1]);
    return command;
}

START_TEST(a_rank_below_a_command)
{
    if (is_emulated()) /* the number of a system call is the machine's */
        return;
    for (int waits = 0; waits < 2; waits++) {
        pid_t rank = 0, command = start_command(waits, &rank);
        pid_t wanted = waits ? command : rank, found = 0;
        struct inspected_process p = {0};
        for (bool for_children = false; p.state != 'S' || for_children != waits; usleep(1000))
            ck_assert(inspect_read(command, &p, &for_children));
        for (int tries = 0; tries < 500 && (found = inspect_subject(command, rank)) != wanted; tries++)
            usleep(10000);
        ck_assert_int_eq(found, wanted);
        ck_assert_int_eq(inspect_root(command, rank), command);
        ck_assert_int_eq(inspect_root(rank, command), command);
        kill(rank, SIGKILL);
        kill(command, SIGKILL);
        waitpid(command, NULL, 0);
    }
}
END_TEST

START_TEST(who_holds_a_lock)
{
    static const char locks[] = "1: FLOCK  ADVISORY  WRITE 5443 fe:00:10993699 0 EOF\n"
                                "1: -> FLOCK  ADVISORY  WRITE 5501 fe:00:10993699 0 EOF\n"
                                "2: POSIX  ADVISORY  READ 77 00:26:180772 0 EOF\n"
                                "2: -> POSIX  ADVISORY  WRITE 88 00:26:180772 0 EOF\n"
                                "2: -> POSIX  ADVISORY  WRITE 89 00:26:180772 0 EOF";
    ck_assert_int_eq(peers_lock_holder(locks, 5501), 5443);
    ck_assert_int_eq(peers_lock_holder(locks, 88), 77);
    ck_assert_int_eq(peers_lock_holder(locks, 89), 77);
    ck_assert_int_eq(peers_lock_holder(locks, 5443), 0);
    ck_assert_int_eq(peers_lock_holder("", 1), 0);
    ck_assert_int_eq(peers_lock_holder("garbage\n1: -> \n\n1: FLOCK", 1), 0);
}
END_TEST

START_TEST(where_a_connection_leads)
{
    static const char four[] = "   1: 0100007F:1F90 0200000A:0FA0 01 000004B0:00000000 01:00000014 00000000  "
                               "   0        0 4711 2 0 20 4 30 10";
    static const char six[] =
        "   0: 00000000000000000000000001000000:0050 B80D0120000000000000000001000000:0FA0 01 "
        "00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 20 4 30 10 -1";
    char out[120];
    peers_parse_tcp(four, 4711, out, sizeof out);
    ck_assert_str_eq(out, "10.0.0.2:4000, which has not taken 1200 bytes");
    peers_parse_tcp(six, 4712, out, sizeof out);
    ck_assert_str_eq(out, "[2001:db8::1]:4000");
    peers_parse_tcp(four, 4712, out, sizeof out);
    ck_assert_str_eq(out, "");
    peers_parse_tcp("  sl  local_address rem_address", 0, out, sizeof out);
    ck_assert_str_eq(out, "");
}
END_TEST

/* ---- stacks -------------------------------------------------------------------------------------------- */

static const char eu_stack[] = "PID 10 - process\n"
                               "TID 10:\n"
                               "#0  0x00007f849e2d6545 clock_nanosleep@GLIBC_2.2.5 - /usr/lib/libc.so.6\n"
                               "#1  0x000055fd477a117a asleep_in_c - /home/me/a.out\n"
                               "#2  0x000055fd477a117b - /home/me/a.out\n"
                               "#3  0x000055fd477a11b9 main - /home/me/a.out\n"
                               "#4  0x00007f849e22e24a __libc_start_call_main - /usr/lib/libc.so.6\n"
                               "TID 12:\n"
                               "#0  0x00007f849e2dadf2 pause\n"
                               "#1  0x000055fd477a116a work(int, char*)\n"
                               "#2  0x00007f849e2901f5 start_thread\n"
                               "#3  0x00007f849e3108ec __clone3\n"
                               "TID 13:\n"
                               "#0  0x00007f849e2dadf2 pause\n"
                               "#1  0x000055fd477a116b work(int, char*)\n"
                               "#2  0x00007f849e2901f5 start_thread\n"
                               "eu-stack: dwfl_thread_getframes tid 14: no matching address range\n";

static const char gdb[] = "[New LWP 12]\n"
                          "0x00007f849e2d6545 in clock_nanosleep () from /lib/libc.so.6\n"
                          "\n"
                          "Thread 3 (Thread 0x7f849da026c0 (LWP 13) \"a.out\"):\n"
                          "#0  0x00007f849e2dadf2 in pause () at ../pause.c:29\n"
                          "#1  0x000055fd477a116a in work (a=0x0) at a.c:3\n"
                          "#2  0x00007f849e2901f5 in start_thread (arg=<optimized out>) at ./pthread.c:442\n"
                          "#3  0x00007f849e3108ec in clone3 () at ../clone3.S:81\n"
                          "\n"
                          "Thread 2 (Thread 0x7f849e2036c0 (LWP 12) \"a.out\"):\n"
                          "#0  0x00007f849e2dadf2 in pause () at ../pause.c:29\n"
                          "#1  0x000055fd477a116a in work (a=0x0) at a.c:3\n"
                          "#2  0x00007f849e2901f5 in start_thread (arg=<optimized out>) at ./pthread.c:442\n"
                          "\n"
                          "Thread 1 (Thread 0x7f849e204740 (LWP 10) \"a.out\"):\n"
                          "#0  0x00007f849e2d6545 in clock_nanosleep () from /lib/libc.so.6\n"
                          "#1  asleep_in_c () at a.c:4\n"
                          "#2  0x000055fd477a117b in ?? () from /home/me/a.out\n"
                          "#3  0x000055fd477a11b9 in main () at a.c:5\n"
                          "[Inferior 1 (process 10) detached]\n";

START_TEST(what_the_tools_print)
{
    char out[1000];
    ck_assert(stacks_parse(_i ? gdb : eu_stack, 10, out, sizeof out));
    ck_assert_str_eq(out, "clock_nanosleep < asleep_in_c < ? in a.out < main\n"
                          "2 threads: pause < work < start_thread");
}
END_TEST

/* With C functions above those of Python; what is below the module is the same everywhere. */
START_TEST(py_spys_output)
{
    static const char text[] = "Process 12: /usr/bin/python3 train.py\n"
                               "Python v3.11.2 (/usr/bin/python3.11)\n"
                               "\n"
                               "Thread 12 (idle): \"MainThread\"\n"
                               "    clock_nanosleep (libc.so.6)\n"
                               "    load (a b) (train.py:5)\n"
                               "    <module> (train.py:9)\n"
                               "    0x7f40db93d24a (libc.so.6)\n"
                               "Thread 13 (active): \"Thread-1 (work)\"\n"
                               "    0x7f40db93d24a (libc.so.6)\n"
                               "    run (threading.py:982)\n"
                               "    ()\n";
    char out[400];
    ck_assert(stacks_parse(text, 12, out, sizeof out));
    ck_assert_str_eq(out, "clock_nanosleep libc.so.6 < load (a b) train.py:5 < <module> train.py:9\n"
                          "a thread: ? libc.so.6 < run threading.py:982");
    ck_assert(
        !stacks_parse("Error: Failed to find python version from target process\n", 12, out, sizeof out));
}
END_TEST

START_TEST(no_stack_in_it)
{
    char out[100] = "x";
    ck_assert(!stacks_parse("eu-stack: cannot attach: Operation not permitted\n", 10, out, sizeof out));
    ck_assert_str_eq(out, "");
    ck_assert(!stacks_parse("", 10, out, sizeof out));
    ck_assert(!stacks_parse("TID 10:\nTID 11:\n", 10, out, sizeof out));
}
END_TEST

START_TEST(a_deep_stack_loses_its_middle)
{
    char text[20000] = "TID 10:\n", out[4000], small[40];
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "#%d  0x0000 f%d\n", i, i);
    snprintf(text + strlen(text), sizeof text - strlen(text), "#200  0x0000 main\n#201  0x0000 _start\n");
    ck_assert(stacks_parse(text, 10, out, sizeof out));
    ck_assert_ptr_nonnull(strstr(out, "f0 < f1 < "));
    ck_assert_ptr_nonnull(strstr(out, " < f15 < (181 more) < f197 < f198 < f199 < main"));
    ck_assert_ptr_null(strstr(out, "_start"));
    ck_assert(!stacks_parse(text, 10, small, sizeof small)); /* a stack is whole or missing */
}
END_TEST

/* ---- a look -------------------------------------------------------------------------------------------- */

static char dir[SCRATCH_MAX];
static struct worker worker[2];
static struct workers workers = {.item = worker, .room = 2, .count = 2, .alive = 2};
static struct stacks stacks;
static unsigned found;
static bool done, no_stack;

static void on_found(void *ctx, Hvd__Where *w)
{
    found++;
    no_stack = no_stack || w->process[0]->no_stack[0];
}

static void on_done(void *ctx, const char *tool)
{
    done = true;
}

static bool is_busy(void *ctx)
{
    return false;
}

static const struct stacks_events events = {on_found, on_done, is_busy};

static bool has_line(pid_t pid, const char *wanted)
{
    char path[64], line[200];
    bool has = false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && !has && fgets(line, sizeof line, f))
        has = strncmp(line, wanted, strlen(wanted)) == 0;
    if (f)
        fclose(f);
    return has;
}

static bool runs_a_tool(void)
{
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks.run[i].pid)
            return true;
    return false;
}

static void look(uv_loop_t *loop, uint32_t limit_ms)
{
    stacks_start(&stacks, loop, &events, NULL, &workers, -1, limit_ms);
    while (!done || runs_a_tool()) {
        siginfo_t info = {0};
        uv_run(loop, UV_RUN_NOWAIT);
        for (size_t i = 0; i < STACKS_AT_ONCE; i++)
            if (stacks.run[i].pid && waitid(P_PID, (id_t)stacks.run[i].pid, &info, WEXITED | WNOHANG) == 0 &&
                info.si_pid)
                stacks_reaped(&stacks, info.si_pid);
        usleep(1000);
    }
}

/* A tool in PATH that is gdb, and hangs while it traces. */
static void make_tool(void)
{
    char path[100];
    ck_assert_ptr_nonnull(scratch_dir(dir, "stacks"));
    snprintf(path, sizeof path, "%s/eu-stack", dir);
    FILE *f = fopen(path, "we");
    fputs("#!/bin/sh\nexec gdb -p $3 -batch -nx -ex 'shell sleep 60'\n", f);
    fclose(f);
    chmod(path, 0700);
    setenv("PATH", dir, 1);
}

START_TEST(a_look_changes_nothing)
{
    uv_loop_t loop;
    bool hangs = _i == 1;
    if (hangs && access("/usr/bin/gdb", X_OK) < 0)
        return;
    if (hangs)
        make_tool();
    for (size_t i = 0; i < 2; i++) {
        worker[i] = (struct worker){.rank = (uint32_t)i, .alive = true, .pid = fork()};
        if (worker[i].pid == 0)
            for (;;)
                pause();
    }
    kill(worker[1].pid, SIGSTOP);
    while (!has_line(worker[1].pid, "State:\tT"))
        usleep(1000);
    uv_loop_init(&loop);
    look(&loop, 8000);
    ck_assert_uint_eq(found, 2);
    ck_assert_int_eq(no_stack, hangs);
    usleep(100000);
    for (size_t i = 0; i < 2; i++)
        ck_assert(has_line(worker[i].pid, "TracerPid:\t0"));
    ck_assert(has_line(worker[0].pid, "State:\tS"));
    ck_assert(has_line(worker[1].pid, "State:\tT"));
    stacks_close(&stacks);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (size_t i = 0; i < 2; i++)
        kill(worker[i].pid, SIGKILL);
    if (hangs) {
        char path[100];
        snprintf(path, sizeof path, "%s/eu-stack", dir);
        unlink(path);
        rmdir(dir);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stacks");
    TCase *t = tcase_create("stacks");
    tcase_set_timeout(t, 30);
    tcase_add_loop_test(t, a_stat_line, 0, 7);
    tcase_add_test(t, a_stat_line_with_a_priority);
    tcase_add_loop_test(t, states_in_words, 0, 8);
    tcase_add_test(t, what_it_waits_for);
    tcase_add_test(t, the_process_to_look_at);
    tcase_add_test(t, a_rank_below_a_command);
    tcase_add_test(t, who_holds_a_lock);
    tcase_add_test(t, where_a_connection_leads);
    tcase_add_loop_test(t, what_the_tools_print, 0, 2);
    tcase_add_test(t, py_spys_output);
    tcase_add_test(t, no_stack_in_it);
    tcase_add_test(t, a_deep_stack_loses_its_middle);
    tcase_add_loop_test(t, a_look_changes_nothing, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
