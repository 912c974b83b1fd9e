/* The working directory, each command as a worker would find it, and the interpreter that its first line
 * names. A directory that is missing leaves nothing to say of a command that is relative to it. */
#include "agent/session/preflight.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/process/spawn.h"

#define PATH_TEXT  " (PATH is " /* of spawn_find */
#define FIRST_LINE 256          /* bytes of a script that the kernel reads */

/* ---- the directory ------------------------------------------------------------------------------------- */

static bool is_directory(const char *path)
{
    struct stat st;
    errno = 0;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, X_OK) == 0;
}

static const char *home_directory(void)
{
    const char *home = getenv("HOME");
    struct passwd *pw = home && is_directory(home) ? NULL : getpwuid(geteuid());
    if (pw)
        home = pw->pw_dir;
    return home && is_directory(home) ? home : "/";
}

/* The workers would start somewhere else than where hvdrun was started, and nobody has said that they may. */
static int lacks_launchers(const char *directory, struct err *e)
{
    return err_set(e, ERR_HOST,
                   "cannot change to %s, where hvdrun was started: %s (--wdir names another directory)",
                   directory, errno ? strerror(errno) : "it is no directory");
}

int preflight_directory(const char *wdir, const char *launcher_dir, bool or_home, char *out, size_t size,
                        struct err *e)
{
    const char *base = launcher_dir;
    int n;
    if (wdir[0] != '/' && !(launcher_dir[0] && is_directory(launcher_dir))) {
        if (launcher_dir[0] && !or_home)
            return lacks_launchers(launcher_dir, e);
        base = home_directory();
    }
    if (wdir[0] == '/')
        n = snprintf(out, size, "%s", wdir);
    else
        n = snprintf(out, size, "%s%s%s", base, wdir[0] ? "/" : "", wdir);
    if (n < 0 || (size_t)n >= size)
        return err_set(e, ERR_HOST, "the working directory's name is too long");
    if (!is_directory(out))
        return err_set(e, ERR_HOST, "cannot change to working directory %s: %s", out,
                       errno ? strerror(errno) : "it is no directory");
    return 0;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* The words behind #! of a script; false when there is none. */
static bool read_interpreter(const char *path, char line[FIRST_LINE], char **program, char **argument)
{
    if (file_read(path, O_NONBLOCK | O_NOCTTY, line, FIRST_LINE) < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[2 + strcspn(line + 2, "\n")] = '\0';
    char *at = line + 2 + strspn(line + 2, " \t");
    *program = at;
    at += strcspn(at, " \t");
    if (*at)
        *at++ = '\0';
    at += strspn(at, " \t");
    for (size_t len = strlen(at); len && isspace((unsigned char)at[len - 1]);)
        at[--len] = '\0';
    *argument = at;
    return **program != '\0';
}

/* A file that is text and names no interpreter. Other files may be for a program that the kernel knows. */
static bool is_bare_text(const char *path)
{
    char line[FIRST_LINE];
    ssize_t n = file_read(path, O_NONBLOCK | O_NOCTTY, line, FIRST_LINE);
    for (ssize_t i = 0; i < n && line[i]; i++)
        if (!isprint((unsigned char)line[i]) && !isspace((unsigned char)line[i]))
            return false;
    return n > 0 && strncmp(line, "#!", 2) != 0;
}

/* Missing it, the kernel's word would be that the command itself does not exist. */
static int check_interpreter(const char *path, const char *search, const char *dir, struct err *e)
{
    char line[FIRST_LINE], found[PATH_MAX], *program, *argument;
    struct err why = ERR_INIT;
    if (!read_interpreter(path, line, &program, &argument))
        return 0;
    if (!strchr(program, '/') || spawn_find(program, NULL, dir, found, sizeof found, &why) < 0)
        return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: its interpreter %s %s", path, program,
                       why.code == ERR_NOT_EXECUTABLE ? "cannot be executed" : "does not exist");
    const char *name = strrchr(program, '/') + 1;
    bool by_env = strcmp(name, "env") == 0 && *argument && *argument != '-' && !strpbrk(argument, " \t=");
    if (by_env && spawn_find(argument, search, dir, found, sizeof found, &why) < 0)
        return err_set(e, why.code, "cannot execute %s: its interpreter: %s", path, why.text);
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

/* The searched PATH moves from the problem to the advice, so that the problem stays short. */
static void add_problem(struct preflight *p, size_t program, const char *what, const char *fix,
                        struct err *why)
{
    char *path = strstr(why->text, PATH_TEXT);
    err_hint(why, "%s%s", fix, path ? path : "");
    if (path)
        *path = '\0';
    if (p->count < PREFLIGHT_MAX)
        p->item[p->count++] = (struct preflight_problem){.program = program, .what = what, .why = *why};
}

/* A program of the job: one command, and perhaps more that it is known to need. */
struct wanted {
    size_t program;
    char *const *command;
    size_t commands;
    const char *search; /* its PATH; NULL: it has none */
    const char *wdir;
    bool or_home;
};

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);
    return len > n && strcmp(text + len - n, end) == 0;
}

/* The program that is wanted for such a file, by the ending of the file's name; NULL: nobody knows. */
static const char *runner_of(const char *name)
{
    return ends_in(name, ".py") ? "python3" : ends_in(name, ".sh") ? "sh" : NULL;
}

static void drop_path(struct err *why)
{
    char *path = strstr(why->text, PATH_TEXT);
    if (path)
        *path = '\0';
}

/* The user may have meant a file of the working directory, or a second -x: then PATH does not matter. */
static void advise_missing(struct err *why, const char *command, const char *dir, char *fix, size_t size)
{
    char there[PATH_MAX];
    const char *runner = runner_of(command);
    bool plain = !strchr(command, '/'), is_here = false, assigns = plain && strchr(command, '=');
    if (plain && dir && (size_t)snprintf(there, sizeof there, "%s/%s", dir, command) < sizeof there)
        is_here = access(there, F_OK) == 0;
    if (is_here || assigns)
        drop_path(why);
    if (is_here && runner)
        snprintf(fix, size, "%s %s?", runner, command);
    else if (is_here)
        snprintf(fix, size, "./%s?", command);
    else if (assigns)
        snprintf(fix, size, "each variable has an -x of its own: -x %s", command);
    else if (plain)
        snprintf(fix, size, "install it there, or give its whole path");
    else if (command[0] == '/')
        snprintf(fix, size, "check its path, and that it is on that host");
    else
        snprintf(fix, size, "it was looked for in %s; --wdir names another directory", dir);
}

static void advise_unusable(const char *command, const char *path, char *fix, size_t size)
{
    struct stat st;
    const char *runner = runner_of(command);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(fix, size, "name a program in it");
    else if (runner)
        snprintf(fix, size, "%s %s? Or make it executable: chmod +x %s", runner, command, command);
    else
        snprintf(fix, size, "make it executable: chmod +x %s", command);
}

static void add_bare_text(struct preflight *p, size_t program, const char *command, const char *path)
{
    char fix[PATH_MAX + 100];
    struct err why = ERR_INIT;
    const char *runner = runner_of(command);
    err_set(&why, ERR_NOT_EXECUTABLE, "cannot execute %s: its first line names no interpreter", path);
    if (runner)
        snprintf(fix, sizeof fix, "%s %s? Or give it a first line: #!/usr/bin/env %s", runner, command,
                 runner);
    else
        snprintf(fix, sizeof fix, "give it a first line, as #!/bin/sh");
    add_problem(p, program, "interpreter", fix, &why);
}

static void check_command(struct preflight *p, const struct wanted *w, const char *command, const char *dir)
{
    char path[PATH_MAX] = "", fix[PATH_MAX + 100];
    struct err why = ERR_INIT;
    bool relative = command[0] != '/' && strchr(command, '/');
    if (relative && !dir)
        return;
    if (spawn_find(command, w->search, dir, path, sizeof path, &why) < 0) {
        if (why.code == ERR_NOT_FOUND)
            advise_missing(&why, command, dir, fix, sizeof fix);
        else
            advise_unusable(command, path, fix, sizeof fix);
        add_problem(p, w->program, "command", fix, &why);
        return;
    }
    if (is_bare_text(path))
        add_bare_text(p, w->program, command, path);
    else if (check_interpreter(path, w->search, dir, &why) < 0)
        add_problem(p, w->program, "interpreter", "install it there, or change the first line of the script",
                    &why);
}

static void check_program(struct preflight *p, const struct wanted *w, const char *launcher_dir)
{
    char dir[PATH_MAX];
    struct err why = ERR_INIT;
    bool there = preflight_directory(w->wdir, launcher_dir, w->or_home, dir, sizeof dir, &why) == 0;
    if (!there)
        add_problem(
            p, w->program, "working directory",
            w->wdir[0] == '/'
                ? "make it there, or name another with --wdir"
                : "make it there, name another with --wdir, or take the home directory with --wdir-or-home",
            &why);
    for (size_t i = 0; i < w->commands; i++)
        check_command(p, w, w->command[i], there ? dir : NULL);
}

void preflight_find(struct preflight *p, const Hvd__Preflight *asked)
{
    p->count = 0;
    struct wanted first = {
        0,           asked->command, asked->n_command, asked->has_path ? asked->path : NULL,
        asked->wdir, asked->or_home};
    check_program(p, &first, asked->launcher_dir);
    for (size_t i = 0; i < asked->n_program; i++) {
        const Hvd__PreflightProgram *own = asked->program[i];
        struct wanted w = {i + 1,     &own->command, own->preloaded ? 0 : 1, own->has_path ? own->path : NULL,
                           own->wdir, own->or_home};
        check_program(p, &w, asked->launcher_dir);
    }
}
