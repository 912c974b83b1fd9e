/* hvdagent: one host's part of a job. hvdrun starts it, here or over SSH, as `hvdagent session` and speaks to
 * it on its stdin and stdout; nobody types that. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/guard.h"
#include "agent/sent_dir.h"
#include "agent/session.h"
#include "agent/sweep.h"
#include "common/err.h"
#include "common/log.h"
#include "common/message.h"

static const char usage[] =
    "Usage: hvdagent session\n"
    "       hvdagent sweep [--now] JOB\n"
    "       hvdagent --version | --help\n"
    "\n"
    "Supervises the workers of one job on this host. hvdrun starts it, here or on other\n"
    "hosts over SSH, and speaks to it on its stdin and stdout. `sweep` ends what is left\n"
    "of a job of this user: its agent is asked to, and after the grace period (at once\n"
    "with --now) what still runs is killed. See hvdagent(8).\n";

static int bad_usage(const char *what, const char *word)
{
    fprintf(stderr, "hvdagent: %s%s%s\nhvdagent: hint: hvdagent --help says what there is\n", what,
            word ? ": " : "", word ? word : "");
    return 2;
}

static int run_session(void)
{
    struct guard g;
    struct err e = ERR_INIT;
    if (isatty(STDIN_FILENO))
        return bad_usage("a session is started by hvdrun, not at a terminal", NULL);
    struct sent_dir sent;
    sent_dir_find(&sent);
    int rc = guard_fork(&g, &e), status;
    if (rc < 0)
        log_error("%s", e.text);
    status = rc < 0 ? err_exit_status(&e) : rc > 0 ? guard_main(&g) : session_main(&g);
    if (rc != 0 || !guard_lives(&g))
        sent_dir_remove(&sent);
    return status;
}

static int run_sweep(const char *job, bool now)
{
    struct sent_dir sent;
    sent_dir_find(&sent);
    int status = sweep_job(job, now);
    if (status == 0)
        sent_dir_remove(&sent);
    return status;
}

int main(int argc, char **argv)
{
    log_init("hvdagent", LOG_WARNING);
    if (argc < 2)
        return bad_usage("what shall it do?", NULL);
    if (strcmp(argv[1], "sweep") == 0) {
        bool now = argc == 4 && strcmp(argv[2], "--now") == 0;
        return argc == 3 + now ? run_sweep(argv[argc - 1], now)
                               : bad_usage("sweep takes the name of one job", NULL);
    }
    if (argc > 2)
        return bad_usage("unexpected argument", argv[2]);
    if (strcmp(argv[1], "session") == 0)
        return run_session();
    if (strcmp(argv[1], "--version") == 0)
        return printf("hvdagent %s (protocol %u)\n", HVD_VERSION, PROTOCOL_VERSION) < 0;
    if (strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    return bad_usage("unknown command", argv[1]);
}
