/* hvdagent: one host's part of a job. hvdrun starts it, here or over SSH, as `hvdagent attach` and speaks to
 * a session on its stdin and stdout; nobody types that. systemd starts it as `hvdagent daemon`. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/daemon.h"
#include "agent/guard/guard.h"
#include "agent/guard/job_dir.h"
#include "agent/reach/reach.h"
#include "agent/session/session.h"
#include "agent/gpu/gpu.h"
#include "agent/gpu/gpu_scan.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

static const char usage[] =
    "Usage: hvdagent attach [--managed] | session\n"
    "       hvdagent sweep [--now] JOB\n"
    "       hvdagent daemon [options]\n"
    "       hvdagent gpus [--libraries]\n"
    "       hvdagent wait [--key-file FILE] [--port PORT] [--address ADDRESS]\n"
    "                     [--limit SECONDS] [--linger SECONDS]\n"
    "       hvdagent reach [--key-file FILE] [--port PORT] [--limit SECONDS] HOST COMMAND\n"
    "       hvdagent --version | --help\n"
    "\n"
    "Supervises the workers of one job on this host. hvdrun starts it, here or on other\n"
    "hosts over SSH, and talks to it on its standard input and output. `attach` asks the\n"
    "managed agent of the host for a session. Without a managed agent it is a session\n"
    "itself, but not with --managed. `session` is a session. `sweep` ends the rest of a\n"
    "job of this user: it asks the agent of the job to end it. After the grace period (at\n"
    "once with --now) it kills the processes that still run. `daemon` is the managed\n"
    "agent. `gpus` asks the GPU driver, for a program. `wait` waits on a host without\n"
    "sshd for hvdrun, which reaches that host with --rsh 'hvdagent reach'. See\n"
    "hvdagent(8).\n";

static int bad_usage(const char *what, const char *word)
{
    fprintf(stderr, "hvdagent: %s%s%s\nhvdagent: hint: hvdagent --help lists the commands\n", what,
            word ? ": " : "", word ? word : "");
    return 2;
}

/* `lease`: of a session that a managed agent had started; NULL: of none. */
static int run_session(const struct guard_lease *lease)
{
    struct guard g = {.status_fd = -1};
    struct err e = ERR_INIT;
    if (isatty(STDIN_FILENO))
        return bad_usage("a session is started by hvdrun, not at a terminal", NULL);
    struct sent_dir sent;
    sent_dir_find(&sent);
    int rc = lease ? guard_take_lease(&g, lease, &e) : 0, status;
    rc = rc < 0 ? rc : guard_fork(&g, &e);
    if (rc < 0)
        log_error("%s", e.text);
    status = rc < 0 ? err_exit_status(&e) : rc > 0 ? guard_main(&g) : session_main(&g);
    if (rc != 0 || !guard_lives(&g))
        sent_dir_remove(&sent);
    return status;
}

static int run_attach(bool must_be_managed)
{
    bool managed;
    struct sent_dir sent;
    sent_dir_find(&sent);
    int status = attach_main(must_be_managed, &managed);
    if (!managed)
        return run_session(NULL);
    sent_dir_remove(&sent);
    return status;
}

/* A session with a lease: the slots and GPUs of the lease, the systemd unit, the socket of the managed
 * agent. */
static int run_lease(const char *slots, const char *unit, const char *socket)
{
    char *end;
    unsigned long n = strtoul(slots, &end, 10);
    bool gpus = *end == ':' && gpu_lease_check(end + 1);
    if (slots[0] < '1' || slots[0] > '9' || (*end && !gpus) || n > UINT32_MAX)
        return bad_usage("--lease takes a number of slots, and GPUs behind a colon", slots);
    struct guard_lease lease = {(uint32_t)n, gpus ? end + 1 : NULL, unit, socket};
    return run_session(&lease);
}

static int run_gpus(int argc, char **argv)
{
    bool libraries = argc == 1 && strcmp(argv[0], "--libraries") == 0;
    if (argc > libraries)
        return bad_usage("unexpected argument", argv[0]);
    if (isatty(STDOUT_FILENO))
        return bad_usage("its output is for a program; people use hvdctl gpus", NULL);
    return gpu_scan_main(libraries);
}

/* ---- commands: each gets the words after its name ------------------------------------------------------ */

static int attach_command(int argc, char **argv)
{
    bool managed = argc == 1 && strcmp(argv[0], "--managed") == 0;
    return argc > managed ? bad_usage("unexpected argument", argv[0]) : run_attach(managed);
}

static int session_command(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[0], "--lease") == 0)
        return run_lease(argv[1], argv[2], argv[3]);
    return argc > 0 ? bad_usage("unexpected argument", argv[0]) : run_session(NULL);
}

static int sweep_command(int argc, char **argv)
{
    bool now = argc == 2 && strcmp(argv[0], "--now") == 0;
    if (argc != 1 + now)
        return bad_usage("sweep takes the name of one job", NULL);
    struct sent_dir sent;
    sent_dir_find(&sent);
    int status = sweep_job(argv[argc - 1], now);
    if (status == 0)
        sent_dir_remove(&sent);
    return status;
}

/* The daemon parses its options with their table, which wants the name first. */
static int daemon_command(int argc, char **argv)
{
    return daemon_main(argc + 1, argv - 1);
}

static int show_version(int argc, char **argv)
{
    return argc > 0 ? bad_usage("unexpected argument", argv[0])
                    : printf("hvdagent %s (protocol %u)\n", HVD_VERSION, PROTOCOL_VERSION) < 0;
}

static int show_help(int argc, char **argv)
{
    return argc > 0 ? bad_usage("unexpected argument", argv[0]) : fputs(usage, stdout) < 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"attach", attach_command}, {"session", session_command}, {"sweep", sweep_command},
    {"daemon", daemon_command}, {"gpus", run_gpus},           {"wait", wait_main},
    {"reach", reach_main},      {"--version", show_version},  {"--help", show_help},
};

int main(int argc, char **argv)
{
    log_init("hvdagent", LOG_WARNING);
    if (argc < 2)
        return bad_usage("no command", NULL);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    return bad_usage(argc > 2 ? "unexpected argument" : "unknown command", argc > 2 ? argv[2] : argv[1]);
}
