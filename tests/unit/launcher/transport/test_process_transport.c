/* The local and exec transports with real children. */
/* needs: launcher tests/unit/transport_run.c */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/transport_run.h"
#include "tests/unit/scratch.h"

static struct transport_run run;
static char script[SCRATCH_MAX];

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    run = (struct transport_run){.ops = &transport_exec};
}

static void teardown(void)
{
    unlink(script);
}

/* `rsh` is `sh -c`-like: the command is its last argument and the host comes before it. */
static void go(const char *command)
{
    struct transport_target target = {.host = "h", .rsh = "sh -c 'exec sh -c \"$1\"'", .command = command};
    ck_assert_msg(run_transport(&run, &target), "%s", run.start_err.text);
}

static void write_script(const char *text)
{
    int fd = scratch_file(script, "script");
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, 0755);
    close(fd);
}

START_TEST(command_runs)
{
    run.greeting = "hello\n";
    go("read line; echo got $line; echo complaint >&2; exit 3");
    ck_assert(!run.err.code);
    ck_assert_int_eq(run.exit_status, 3);
    ck_assert_str_eq(run.text, "got hello\n");
    ck_assert_str_eq(run.noise, "complaint\n");
    ck_assert_int_eq(run.opened, 1);
    ck_assert_int_eq(run.last_phase, TRANSPORT_AGENT_START);
}
END_TEST

START_TEST(silent_failure_is_the_commands)
{
    go("exit 127");
    ck_assert(!run.err.code);
    ck_assert_int_eq(run.last_phase, TRANSPORT_AGENT_START);
}
END_TEST

START_TEST(signal_is_reported)
{
    go("kill -SEGV $$");
    ck_assert_int_eq(run.term_signal, SIGSEGV);
    ck_assert_int_eq(run.exit_status, -1);
}
END_TEST

START_TEST(carrier_failure_is_an_error)
{
    go("echo first >&2; echo 'ssh: connect to host h port 22: Connection refused' >&2; exit 255");
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_str_eq(run.err.text, "ssh: connect to host h port 22: Connection refused");
    ck_assert_int_eq(run.last_phase, TRANSPORT_CONNECT);
}
END_TEST

START_TEST(own_session_not_the_terminals)
{
    char expected[32];
    go("ps -o sid= -p $$ | tr -d ' '");
    snprintf(expected, sizeof expected, "%d\n", (int)getsid(0));
    ck_assert_str_ne(run.text, expected);
    ck_assert_uint_gt(strlen(run.text), 1);
}
END_TEST

#define BULK (100UL * 1000 * 1000)

START_TEST(bulk_both_ways)
{
    run.to_send = BULK;
    run.close_after = BULK;
    go("cat");
    ck_assert_uint_eq(run.received, BULK);
    ck_assert_uint_eq(run.checksum, pattern_checksum(BULK));
}
END_TEST

START_TEST(all_output_comes_before_the_end)
{
    go("head -c 30000000 /dev/zero; exit 12");
    ck_assert_uint_eq(run.received, 30000000);
    ck_assert_int_eq(run.exit_status, 12);
}
END_TEST

START_TEST(grandchild_does_not_hold_the_end)
{
    go("sleep 3 & echo out; exit 4");
    ck_assert_str_eq(run.text, "out\n");
    ck_assert_int_eq(run.exit_status, 4);
}
END_TEST

/* The child's end is seen before bytes that are there already. */
START_TEST(bytes_are_read_after_the_end)
{
    run.stall_us = 500000;
    go("echo go >&2; (sleep 0.2; echo late) & exit 3");
    ck_assert_str_eq(run.text, "late\n");
    ck_assert_int_eq(run.exit_status, 3);
}
END_TEST

START_TEST(close_is_eof_there)
{
    run.close_when_opened = true;
    go("cat; exit 5");
    ck_assert(!run.err.code);
    ck_assert_int_eq(run.closed, 1);
}
END_TEST

START_TEST(stubborn_child_is_killed)
{
    run.quit_on_reply = true;
    go("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    ck_assert_int_eq(run.term_signal, SIGKILL);
}
END_TEST

/* A guard still clears away when its session has closed the stream. */
START_TEST(the_status_comes_after_the_stream)
{
    go("echo ready; exec <&- >&-; sleep 0.7; exit 7");
    ck_assert_int_eq(run.exit_status, 7);
    ck_assert_int_eq(run.term_signal, 0);
}
END_TEST

START_TEST(missing_program_is_refused)
{
    struct transport_target target = {.host = "h", .rsh = "no-such-program", .command = "true"};
    ck_assert(!run_transport(&run, &target));
    ck_assert_int_eq(run.start_err.code, ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(run.start_err.text, "no-such-program"));
}
END_TEST

START_TEST(local_session)
{
    write_script("#!/bin/sh\necho $0 $#:$1; read x; echo $x; exit 6\n");
    char expected[64];
    struct transport_target target = {.host = "localhost", .agent_path = script};
    run.ops = &transport_local;
    run.greeting = "in\n";
    ck_assert(run_transport(&run, &target));
    snprintf(expected, sizeof expected, "%s 1:session\nin\n", script);
    ck_assert_str_eq(run.text, expected);
    ck_assert_int_eq(run.exit_status, 6);
    ck_assert_str_eq(run.peer, "127.0.0.1");
}
END_TEST

START_TEST(local_agent_missing)
{
    struct transport_target target = {.host = "localhost", .agent_path = "/nonexistent/hvdagent"};
    run.ops = &transport_local;
    ck_assert(!run_transport(&run, &target));
    ck_assert_int_eq(run.start_err.code, ERR_NOT_FOUND);
}
END_TEST

static size_t open_descriptors(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

START_TEST(no_descriptor_is_left)
{
    go("true");
    size_t before = open_descriptors();
    setup();
    go("exit 1");
    setup();
    struct transport_target target = {.host = "h", .rsh = "no-such-program", .command = "true"};
    run_transport(&run, &target);
    write_script("no interpreter line, and not a program\n");
    setup();
    target.rsh = script;
    ck_assert(!run_transport(&run, &target));
    ck_assert_int_eq(run.start_err.code, ERR_NOT_EXECUTABLE);
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {command_runs,
                                  silent_failure_is_the_commands,
                                  signal_is_reported,
                                  carrier_failure_is_an_error,
                                  own_session_not_the_terminals,
                                  bulk_both_ways,
                                  all_output_comes_before_the_end,
                                  grandchild_does_not_hold_the_end,
                                  bytes_are_read_after_the_end,
                                  close_is_eof_there,
                                  stubborn_child_is_killed,
                                  the_status_comes_after_the_stream,
                                  missing_program_is_refused,
                                  local_session,
                                  local_agent_missing,
                                  no_descriptor_is_left};
    Suite *suite = suite_create("process transports");
    TCase *tc = tcase_create("children");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tc, tests[i]);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
