/* Problems that a session finds before a worker starts: directory, command by PATH, interpreter. Without a
 * problem the session says nothing. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/session/preflight.h"
#include "tests/unit/scratch.h"

static char top[SCRATCH_MAX];

static void make(const char *name, const char *text, int mode)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", top, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, (mode_t)mode), 0);
}

static void begin(void)
{
    char bin[64];
    memcpy(top + sizeof top - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(scratch_dir(top, "preflight"));
    snprintf(bin, sizeof bin, "%s/bin", top);
    ck_assert_int_eq(mkdir(bin, 0700), 0);
    make("bin/tool", "#!/bin/sh\n", 0755);
    make("bin/plain", "no program\n", 0644);
    make("bin/orphan", "#! /no/such/sh -e\n", 0755);
    make("bin/by-env", "#!/usr/bin/env nopython\nx\n", 0755);
    make("bin/env-ok", "#!/usr/bin/env tool\n", 0755);
    make("bin/env-s", "#!/usr/bin/env -S nopython -u\n", 0755);
    make("bin/by-plain", "#!/etc/passwd\n", 0755);
    make("bin/word", "#!sh\n", 0755);
    make("bin/crlf", "#!/bin/sh\r\n", 0755);
    make("bin/empty", "", 0755);
    make("bin/short", "#!", 0755);
}

static void end(void)
{
    char command[64];
    const char *const names[] = {"tool",     "plain", "orphan", "by-env", "env-ok", "env-s",
                                 "by-plain", "word",  "crlf",   "empty",  "short"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command, "%s/bin/%s", top, names[i]);
        unlink(command);
    }
    snprintf(command, sizeof command, "%s/bin", top);
    rmdir(command);
    rmdir(top);
}

static struct preflight found;
static const char *launchers; /* its directory; NULL: top */
static bool or_home;

static void look(const char *command, const char *wdir)
{
    Hvd__Preflight asked = HVD__PREFLIGHT__INIT;
    char path[128], *commands[] = {(char *)(uintptr_t)command};
    snprintf(path, sizeof path, "/no/such:%s/bin", top);
    asked.command = commands;
    asked.n_command = 1;
    asked.has_path = true;
    asked.path = path;
    asked.wdir = (char *)(uintptr_t)wdir;
    asked.launcher_dir = (char *)(uintptr_t)(launchers ? launchers : top);
    asked.or_home = or_home;
    preflight_find(&found, &asked);
}

static const struct {
    const char *command;
    int status; /* 0: nothing is wrong */
    const char *what, *why;
} cases[] = {
    {"tool", 0, NULL, NULL},
    {"bin/tool", 0, NULL, NULL},
    {"env-ok", 0, NULL, NULL},
    {"env-s", 0, NULL, NULL}, /* its options are env's business */
    {"empty", 0, NULL, NULL}, /* the kernel's word on it comes at exec */
    {"short", 0, NULL, NULL},
    {"absent", 127, "command", "command not found: absent"},
    {"./tool", 127, "command", "command not found: ./tool"},
    {"/no/such", 127, "command", "/no/such"},
    {"plain", 126, "command", "cannot execute plain: "},
    {"bin", 127, "command", "command not found: bin"},
    {"./bin", 126, "command", "it is a directory"},
    {"orphan", 126, "interpreter", "its interpreter /no/such/sh does not exist"},
    {"by-env", 127, "interpreter", "its interpreter: command not found: nopython"},
    {"by-plain", 126, "interpreter", "its interpreter /etc/passwd cannot be executed"},
    {"word", 126, "interpreter", "its interpreter sh does not exist"},
    {"crlf", 126, "interpreter", "does not exist"},
};

START_TEST(a_command_is_found_as_a_worker_would)
{
    look(cases[_i].command, "");
    if (!cases[_i].status) {
        ck_assert_msg(found.count == 0, "%s: %s", cases[_i].command, found.item[0].why.text);
        return;
    }
    ck_assert_msg(found.count == 1, "%s: %zu problems", cases[_i].command, found.count);
    ck_assert_int_eq(err_exit_status(&found.item[0].why), cases[_i].status);
    ck_assert_str_eq(found.item[0].what, cases[_i].what);
    ck_assert_msg(strstr(found.item[0].why.text, cases[_i].why), "%s", found.item[0].why.text);
    ck_assert(found.item[0].why.hint[0]);
}
END_TEST

START_TEST(where_it_was_looked_for_stands_in_the_hint)
{
    look("absent", "");
    ck_assert_ptr_null(strstr(found.item[0].why.text, "PATH"));
    ck_assert_msg(strstr(found.item[0].why.hint, "(PATH is /no/such:"), "%s", found.item[0].why.hint);
}
END_TEST

START_TEST(all_that_is_wrong_is_found)
{
    look("absent", "nowhere");
    ck_assert_uint_eq(found.count, 2);
    ck_assert_str_eq(found.item[0].what, "working directory");
    ck_assert_int_eq(err_exit_status(&found.item[0].why), 125);
    ck_assert_msg(strstr(found.item[0].why.text, "/nowhere: No such file or directory"), "%s",
                  found.item[0].why.text);
    ck_assert_str_eq(found.item[1].what, "command");
    look("./tool", "nowhere"); /* the directory is missing, not the command */
    ck_assert_uint_eq(found.count, 1);
    look("./tool", "bin");
    ck_assert_uint_eq(found.count, 0);
    look("tool", "/etc/passwd");
    ck_assert_uint_eq(found.count, 1);
    ck_assert_msg(strstr(found.item[0].why.text, "it is no directory"), "%s", found.item[0].why.text);
}
END_TEST

/* Nobody starts anywhere else than where he was told to, unless that was allowed. */
START_TEST(a_host_without_the_launchers_directory)
{
    char bin[64];
    snprintf(bin, sizeof bin, "%s/bin", top);
    launchers = "/no/such/place";
    look("tool", "");
    ck_assert_uint_eq(found.count, 1);
    ck_assert_str_eq(found.item[0].what, "working directory");
    ck_assert_int_eq(err_exit_status(&found.item[0].why), 125);
    ck_assert_ptr_nonnull(strstr(found.item[0].why.text, "cannot change to /no/such/place, "));
    ck_assert_ptr_nonnull(strstr(found.item[0].why.text, "--wdir"));
    ck_assert_ptr_nonnull(strstr(found.item[0].why.hint, "--wdir-or-home"));
    look("./tool", "bin"); /* seen from there */
    ck_assert_uint_eq(found.count, 1);
    look("tool", bin); /* in any directory */
    ck_assert_uint_eq(found.count, 0);
    or_home = true;
    setenv("HOME", top, 1);
    look("tool", "");
    ck_assert_uint_eq(found.count, 0);
    look("./tool", "bin");
    ck_assert_uint_eq(found.count, 0);
    or_home = false;
    launchers = ""; /* it has none any more itself */
    look("tool", "");
    ck_assert_uint_eq(found.count, 0);
    launchers = NULL;
}
END_TEST

START_TEST(each_program_has_its_own_directory_and_path)
{
    Hvd__Preflight asked = HVD__PREFLIGHT__INIT;
    Hvd__PreflightProgram second = HVD__PREFLIGHT_PROGRAM__INIT, third = second;
    Hvd__PreflightProgram *programs[] = {&second, &third};
    char path[128], *first[] = {"tool"};
    snprintf(path, sizeof path, "%s/bin", top);
    asked.command = first;
    asked.n_command = 1;
    asked.has_path = true;
    asked.path = path;
    asked.launcher_dir = top;
    asked.program = programs;
    asked.n_program = 2;
    second.command = "./tool";
    second.wdir = "bin";
    third.command = "tool";
    third.has_path = true;
    third.path = "/no/such";
    preflight_find(&found, &asked);
    ck_assert_uint_eq(found.count, 1);
    ck_assert_uint_eq(found.item[0].program, 2);
    ck_assert_str_eq(found.item[0].what, "command");
    second.wdir = "nowhere";
    preflight_find(&found, &asked);
    ck_assert_uint_eq(found.count, 2);
    ck_assert_uint_eq(found.item[0].program, 1);
    ck_assert_str_eq(found.item[0].what, "working directory");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("preflight");
    TCase *c = tcase_create("preflight");
    suite_add_tcase(suite, c);
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_loop_test(c, a_command_is_found_as_a_worker_would, 0, sizeof cases / sizeof *cases);
    tcase_add_test(c, where_it_was_looked_for_stands_in_the_hint);
    tcase_add_test(c, all_that_is_wrong_is_found);
    tcase_add_test(c, a_host_without_the_launchers_directory);
    tcase_add_test(c, each_program_has_its_own_directory_and_path);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
