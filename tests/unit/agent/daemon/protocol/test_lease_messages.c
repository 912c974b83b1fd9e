/* hvdrun, `hvdagent attach` and a managed agent that is played here. hvdrun acts on messages and their codes.
 * A text is for people only, whatever it looks like. */
/* needs: agent hvdrun hvdagent */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/daemon/protocol/wire.h"
#include "common/base/file.h"
#include "common/process/module.h"
#include "tests/unit/scratch.h"

#define BUSY_HINT "hvdrun --wait waits until they are free"
#define UNKNOWN   77 /* a code that no program knows so far */
#define SECONDS   20 /* no job here needs as long */

static char directory[SCRATCH_MAX], bin[4000];
static pid_t daemon_pid;

static const char *in_directory(const char *name)
{
    static char path[2][128];
    static int next;
    char *out = path[next ^= 1];
    snprintf(out, sizeof path[0], "%s/%s", directory, name);
    return out;
}

/* ---- the managed agent --------------------------------------------------------------------------------- */

/* The answers to each request for a lease, in this order; then the connection is closed. */
struct script {
    const char *waiting[3]; /* ended by NULL */
    const char *refusal;    /* NULL: none */
    unsigned code;
    const char *node; /* in its status */
};

static void answer(int fd, const Hvd__Daemon *m)
{
    struct err e = ERR_INIT;
    uint8_t bytes[4096];
    memcpy(bytes, DAEMON_MAGIC, FRAME_MAGIC_SIZE);
    ptrdiff_t len = daemon_pack(m, bytes + FRAME_MAGIC_SIZE, sizeof bytes - FRAME_MAGIC_SIZE, &e);
    if (len < 0 || write_all(fd, bytes, FRAME_MAGIC_SIZE + (size_t)len) < 0)
        _exit(97);
}

static void answer_request(int fd, const struct script *s)
{
    for (size_t i = 0; s->waiting[i]; i++) {
        Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
        Hvd__Daemon m = HVD__DAEMON__INIT;
        waiting.text = (char *)(uintptr_t)s->waiting[i];
        m.body_case = HVD__DAEMON__BODY_WAITING;
        m.waiting = &waiting;
        answer(fd, &m);
    }
    if (s->refusal) {
        Hvd__LeaseRefusal refusal = HVD__LEASE_REFUSAL__INIT;
        Hvd__Daemon m = HVD__DAEMON__INIT;
        refusal.text = (char *)(uintptr_t)s->refusal;
        refusal.code = (Hvd__LeaseRefusal__Code)s->code;
        m.body_case = HVD__DAEMON__BODY_REFUSAL;
        m.refusal = &refusal;
        answer(fd, &m);
    }
}

static void answer_query(int fd, const struct script *s)
{
    Hvd__AgentStatus status = HVD__AGENT_STATUS__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    status.node = (char *)(uintptr_t)s->node;
    m.body_case = HVD__DAEMON__BODY_STATUS;
    m.status = &status;
    answer(fd, &m);
}

/* "q" for a question, "r" for a request, in the file `asked`. */
static void serve(int fd, const struct script *s)
{
    uint8_t frame[DAEMON_FRAME_MAX];
    struct err e = ERR_INIT;
    ssize_t n = recv(fd, frame, FRAME_HEADER_SIZE, MSG_WAITALL);
    ptrdiff_t len = n == FRAME_HEADER_SIZE ? daemon_frame_length(frame, DAEMON_MESSAGE_MAX, &e) : -1;
    size_t rest = len > 0 ? (size_t)len - FRAME_HEADER_SIZE : 0;
    if (len < 0 || recv(fd, frame + FRAME_HEADER_SIZE, rest, MSG_WAITALL) != (ssize_t)rest)
        return;
    Hvd__Daemon *m = daemon_unpack(frame, (size_t)len, &e);
    bool is_query = m && m->body_case == HVD__DAEMON__BODY_QUERY;
    int log = open(in_directory("asked"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0 || write_all(log, is_query ? "q" : "r", 1) < 0)
        _exit(97);
    close(log);
    if (is_query)
        answer_query(fd, s);
    else
        answer_request(fd, s);
}

static void start_daemon(const struct script *s)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", in_directory("socket"));
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, sizeof name), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    setenv(DAEMON_SOCKET_VARIABLE, name.sun_path, 1);
    daemon_pid = fork();
    for (int fd; daemon_pid == 0; close(fd)) {
        alarm(2 * SECONDS);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            _exit(97);
        serve(fd, s);
    }
    close(listener);
}

/* ---- a job --------------------------------------------------------------------------------------------- */

static char err[16384];

/* Runs hvdrun with these arguments, up to NULL. Returns the exit status; `err` holds the bytes of stderr. */
static int run_job(const char *first, ...)
{
    const char *argv[24] = {"hvdrun", first};
    char path[4100];
    int status, pipe_fd[2];
    size_t used = 0, n = 2;
    va_list more;
    va_start(more, first);
    do
        argv[n] = va_arg(more, const char *);
    while (argv[n++]);
    va_end(more);
    ck_assert_int_eq(pipe2(pipe_fd, O_CLOEXEC), 0);
    snprintf(path, sizeof path, "%s/../hvdrun", bin);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipe_fd[1], STDERR_FILENO);
        dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
        alarm(SECONDS);
        execv(path, (char *const *)(uintptr_t)argv);
        _exit(98);
    }
    close(pipe_fd[1]);
    for (ssize_t got = 1; got > 0 && used<sizeof err - 1; used += got> 0 ? (size_t)got : 0)
        got = read(pipe_fd[0], err + used, sizeof err - 1 - used);
    err[used] = '\0';
    close(pipe_fd[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "hvdrun ended with %x: %s", (unsigned)status, err);
    return WEXITSTATUS(status);
}

#define says(text)     ck_assert_msg(strstr(err, text) != NULL, "'%s' is not in: %s", text, err)
#define says_not(text) ck_assert_msg(strstr(err, text) == NULL, "'%s' is in: %s", text, err)

/* A command for --rsh: prints `line` on stderr, as the profile of a login shell may, and then does `then`,
 * where $2 is the command for the remote host. */
static const char *make_rsh(const char *line, const char *then)
{
    const char *path = in_directory("rsh");
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\necho '%s' >&2\n%s\n", line, then);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, 0700), 0);
    return path;
}

static void set_up(void)
{
    ck_assert_ptr_nonnull(scratch_dir(directory, "lease"));
    ck_assert_int_eq(module_program_dir(bin, sizeof bin, NULL), 0);
    daemon_pid = 0;
    setenv(DAEMON_SOCKET_VARIABLE, in_directory("socket"), 1); /* so far nobody listens there */
}

static void tear_down(void)
{
    static const char *const names[] = {"socket", "asked", "rsh"};
    if (daemon_pid) {
        kill(daemon_pid, SIGKILL);
        waitpid(daemon_pid, NULL, 0);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(in_directory(names[i]));
    rmdir(directory);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

START_TEST(a_refusal_is_told_with_its_text)
{
    static const struct script s = {.refusal = "it is drained: until Friday"};
    start_daemon(&s);
    ck_assert_int_eq(run_job("-np", "1", "true", NULL), 125);
    says("the managed agent refuses: it is drained: until Friday\n");
    says_not("hvdagent: ");
    says_not(BUSY_HINT);
}
END_TEST

START_TEST(the_code_says_that_waiting_helps)
{
    static const struct script s = {.refusal = "no room", .code = HVD__LEASE_REFUSAL__CODE__BUSY};
    start_daemon(&s);
    ck_assert_int_eq(run_job("-np", "1", "true", NULL), 125);
    says("the managed agent refuses: no room\n");
    says(BUSY_HINT);
    ck_assert_int_eq(run_job("--wait", "-np", "1", "true", NULL), 125);
    says_not(BUSY_HINT);
}
END_TEST

/* Neither the text nor a code of tomorrow. */
START_TEST(no_other_code_says_so)
{
    struct script s = {.refusal = "it is busy: 1 slot is wanted", .code = _i ? UNKNOWN : 0};
    start_daemon(&s);
    ck_assert_int_eq(run_job("-np", "1", "true", NULL), 125);
    says("the managed agent refuses: it is busy: 1 slot is wanted\n");
    says_not(BUSY_HINT);
}
END_TEST

START_TEST(the_place_in_the_queue_is_told)
{
    static const struct script s = {.waiting = {"place 2 of 2", "place 1 of 2"}, .refusal = "no more"};
    start_daemon(&s);
    ck_assert_int_eq(run_job("--wait", "-np", "1", "true", NULL), 125);
    says(": place 2 of 2\n");
    says(": place 1 of 2\n");
    says("waiting: the managed agent refuses: no more\n"); /* the phase */
}
END_TEST

START_TEST(an_agent_that_ends_during_the_wait_is_told)
{
    static const struct script s = {.waiting = {"place 1 of 1"}};
    start_daemon(&s);
    ck_assert_int_eq(run_job("--wait", "-np", "1", "true", NULL), 125);
    says("the managed agent ended while the job waited for it: start it again\n");
}
END_TEST

START_TEST(an_agent_that_is_not_there_is_told)
{
    ck_assert_int_eq(run_job("--agent", "managed", "-np", "1", "true", NULL), 125);
    says("there is no managed agent on this host\n");
}
END_TEST

/* Each says which node it is before one of them is asked for a lease. */
START_TEST(hosts_are_asked_one_after_the_other)
{
    static const struct script s = {.node = "n1", .refusal = "no more"};
    char asked[16] = "", rsh[200];
    start_daemon(&s);
    snprintf(rsh, sizeof rsh, "%s {host}", make_rsh("hello", "exec sh -c \"$2\""));
    ck_assert_int_eq(run_job("--wait", "--rsh", rsh, "-np", "2", "-H", "a:1,b:1", "true", NULL), 125);
    says("the managed agent refuses: no more\n");
    FILE *f = fopen(in_directory("asked"), "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(asked, sizeof asked, f));
    fclose(f);
    ck_assert_msg(strncmp(asked, "qqr", 3) == 0, "%s", asked);
}
END_TEST

/* ---- texts --------------------------------------------------------------------------------------------- */

/* A login shell prints what attach printed once: hvdrun does nothing of that. */
START_TEST(a_text_is_no_message)
{
    static const char *const lines[] = {"hvdagent: waiting: place 1 of 1",
                                        "hvdagent: waiting: ", "hvdagent: held: n1",
                                        "hvdagent: error: the managed agent refuses: it is busy: x"};
    char rsh[200];
    snprintf(rsh, sizeof rsh, "%s {host}", make_rsh(lines[_i], "exec sh -c \"$2\""));
    ck_assert_int_eq(run_job("--wait", "--rsh", rsh, "-np", "2", "-H", "a:1,b:1", "true", NULL), 0);
    says_not("hvdrun: "); /* but the line itself, if it comes when the session runs already */
}
END_TEST

START_TEST(a_text_is_no_refusal)
{
    char rsh[200];
    snprintf(rsh, sizeof rsh, "%s {host}",
             make_rsh("hvdagent: error: the managed agent refuses: it is busy: x", "exit 123"));
    ck_assert_int_eq(run_job("--rsh", rsh, "-np", "1", "-H", "a:1", "true", NULL), 125);
    says("it is busy: x");
    says_not(BUSY_HINT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease_messages");
    TCase *t = tcase_create("lease_messages");
    tcase_set_timeout(t, 3 * SECONDS);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_refusal_is_told_with_its_text);
    tcase_add_test(t, the_code_says_that_waiting_helps);
    tcase_add_loop_test(t, no_other_code_says_so, 0, 2);
    tcase_add_test(t, the_place_in_the_queue_is_told);
    tcase_add_test(t, an_agent_that_ends_during_the_wait_is_told);
    tcase_add_test(t, an_agent_that_is_not_there_is_told);
    tcase_add_test(t, hosts_are_asked_one_after_the_other);
    tcase_add_loop_test(t, a_text_is_no_message, 0, 4);
    tcase_add_test(t, a_text_is_no_refusal);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
