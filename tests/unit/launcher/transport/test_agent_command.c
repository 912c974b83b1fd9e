/* The command line that becomes the session, executed by every login shell that this machine has. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/transport/agent_command.h"
#include "tests/unit/scratch.h"

static const char *const shells[] = {"/bin/sh",   "/bin/bash",     "/bin/dash", "/bin/csh",
                                     "/bin/tcsh", "/usr/bin/fish", "/bin/zsh"};
static char *const session[] = {"session", NULL};
static char *const sweep[] = {"sweep", "12-a 'b' $c !d", NULL};
static char root[SCRATCH_MAX];
static char output[4096];

/* A directory whose name has everything that shells care for. */
#define ODD "a 'b' \"c\" $d `e` !f \\g *h"

static void put_agent(const char *dir, const char *says)
{
    char path[PATH_MAX];
    mkdir(dir, 0755);
    snprintf(path, sizeof path, "%s/hvdagent", dir);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\necho %s \"$@\"\n", says);
    fclose(f);
    chmod(path, 0755);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(scratch_dir(root, "agent"));
}

static void teardown(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", root, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* Exit status; stdout and stderr in `output`. */
static int run(const char *shell, const char *line, const char *path)
{
    int fds[2], status;
    size_t len = 0;
    ssize_t n;
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        dup2(fds[1], 2);
        setenv("PATH", path, 1);
        execl(shell, shell, "-c", line, (char *)NULL);
        _exit(126);
    }
    close(fds[1]);
    while (len < sizeof output - 1 && (n = read(fds[0], output + len, sizeof output - 1 - len)) > 0)
        len += (size_t)n;
    output[len] = '\0';
    close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(works_in_every_shell)
{
    const char *shell = shells[_i];
    char line[32 * 1024], dir[PATH_MAX], other[PATH_MAX], path[PATH_MAX + 32], expected[PATH_MAX + 64];
    struct err e = ERR_INIT;
    if (access(shell, X_OK) < 0)
        return;
    snprintf(dir, sizeof dir, "%s/%s", root, ODD);
    snprintf(other, sizeof other, "%s/bin", root);
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", other);
    put_agent(dir, "beside");
    put_agent(other, "path");
    ck_assert_int_eq(agent_command(dir, NULL, session, line, sizeof line, &e), 0);
    ck_assert_int_eq(run(shell, line, path), 0);
    ck_assert_str_eq(output, "beside session\n");
    ck_assert_int_eq(agent_command(dir, NULL, sweep, line, sizeof line, &e), 0);
    ck_assert_int_eq(run(shell, line, path), 0);
    ck_assert_str_eq(output, "beside sweep 12-a 'b' $c !d\n");
    ck_assert_int_eq(agent_command("/nonexistent", NULL, sweep, line, sizeof line, &e), 0);
    ck_assert_int_eq(run(shell, line, path), 0);
    ck_assert_str_eq(output, "path sweep 12-a 'b' $c !d\n");
    /* Not beside hvdrun: on PATH. */
    ck_assert_int_eq(agent_command("/nonexistent", NULL, session, line, sizeof line, &e), 0);
    ck_assert_int_eq(run(shell, line, path), 0);
    ck_assert_str_eq(output, "path session\n");
    /* Nowhere. */
    ck_assert_int_eq(run(shell, line, "/usr/bin:/bin"), 127);
    ck_assert_str_eq(output, "no hvdagent: looked for /nonexistent/hvdagent and on PATH\n");
    /* --agent-path: there and nowhere else. */
    snprintf(expected, sizeof expected, "%s/hvdagent", dir);
    ck_assert_int_eq(agent_command("/nonexistent", expected, session, line, sizeof line, &e), 0);
    ck_assert_int_eq(run(shell, line, "/usr/bin:/bin"), 0);
    ck_assert_str_eq(output, "beside session\n");
    ck_assert_int_eq(agent_command(dir, "/no/'where", session, line, sizeof line, &e), 0);
    ck_assert_int_eq(run(shell, line, path), 127);
    ck_assert_str_eq(output, "no hvdagent: looked for /no/'where\n");
}
END_TEST

START_TEST(does_not_fit)
{
    char line[64], longest[PATH_MAX + 1];
    struct err e = ERR_INIT;
    ck_assert_int_eq(agent_command("/opt/hvd", NULL, session, line, sizeof line, &e), -1);
    ck_assert_int_eq(e.code, ERR_USAGE);
    memset(longest, 'a', PATH_MAX);
    longest[PATH_MAX] = '\0';
    err_clear(&e);
    ck_assert_int_eq(agent_command(longest, NULL, session, line, sizeof line, &e), -1);
    err_clear(&e);
    ck_assert_int_eq(agent_command("/a\nb", NULL, session, line, sizeof line, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "line break"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agent command");
    TCase *tc = tcase_create("shells");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, works_in_every_shell, 0, sizeof shells / sizeof *shells);
    tcase_add_test(tc, does_not_fit);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
