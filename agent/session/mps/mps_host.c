#include "agent/session/mps/mps_host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/guard/job_dir.h"
#include "common/base/log.h"

#define START_MS  10000
#define QUIT_MS   2000 /* of MPS_END_MS */
#define AGAIN_MS  50   /* its socket is there before it listens, and nothing tells when it does */
#define SAID      MPS_LOG "/said"
#define WORDS_MAX 256

#define EVENTS(X)                                                                                            \
    X(START, "start")                                                                                        \
    X(ANSWERED, "answered")                                                                                  \
    X(MUTE, "mute")                                                                                          \
    X(DIED, "died")                                                                                          \
    X(END, "end")                                                                                            \
    X(KILL, "kill")                                                                                          \
    X(LATE, "late")

#define EVENT_NUMBER(name, text) EV_##name,
#define TEXT(name, text)         text,
enum event { EVENTS(EVENT_NUMBER) };

static void look_for_socket(void *owner);
static void say_serves(void *owner);
static void ask_later(void *owner);
static void give_up(void *owner);
static void say_not_started(void *owner);
static void say_lost(void *owner);
static void tell_quit(void *owner);
static void kill_it(void *owner);
static void say_over(void *owner);

static const char *const state_names[] = {MPS_STATES(TEXT)};
static const char *const event_names[] = {EVENTS(TEXT)};

static const struct fsm_row rows[] = {
    {MPS_NONE, EV_START, MPS_STARTING, look_for_socket},
    {MPS_STARTING, EV_ANSWERED, MPS_SERVING, say_serves},
    {MPS_STARTING, EV_MUTE, MPS_STARTING, ask_later},
    {MPS_STARTING, EV_LATE, MPS_KILLING, give_up},
    {MPS_STARTING, EV_DIED, MPS_OVER, say_not_started},
    {MPS_STARTING, EV_END, MPS_KILLING, kill_it}, /* nobody uses it yet */
    {MPS_STARTING, EV_KILL, MPS_KILLING, kill_it},
    {MPS_SERVING, EV_DIED, MPS_OVER, say_lost},
    {MPS_SERVING, EV_KILL, MPS_KILLING, kill_it},
    {MPS_QUITTING, EV_KILL, MPS_KILLING, kill_it},
    {MPS_SERVING, EV_END, MPS_QUITTING, tell_quit},
    {MPS_QUITTING, EV_MUTE, MPS_KILLING, kill_it},
    {MPS_QUITTING, EV_LATE, MPS_KILLING, kill_it},
    {MPS_QUITTING, EV_DIED, MPS_OVER, say_over},
    {MPS_KILLING, EV_DIED, MPS_OVER, say_over},
};

static const struct fsm_table table = {"MPS", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- its processes ------------------------------------------------------------------------------------- */

static int start_daemon(struct mps_host *h, struct err *e)
{
    char *argv[] = {(char *)MPS_PROGRAM, (char *)"-f", NULL};
    int said = openat(h->place.directory_fd, SAID, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (said < 0)
        return err_sys(e, errno, "cannot make the file %s/%s", h->place.directory, SAID);
    pid_t pid = mps_start(&h->place, argv, -1, said, e);
    close(said);
    h->pid = pid > 0 ? pid : 0;
    return pid > 0 ? 0 : -1;
}

/* Has the program tell the daemon something. Its end says whether there was an answer. */
static void tell_daemon(struct mps_host *h, const char *command)
{
    if (h->teller)
        return;
    pid_t pid = mps_tell(&h->place, command, -1);
    if (pid > 0)
        h->teller = pid;
    else
        fsm_post(&h->fsm, EV_MUTE);
}

static void signal_it(struct mps_host *h)
{
    if (h->teller)
        (void)kill(h->teller, SIGKILL);
    if (h->pid) {
        (void)kill(-h->pid, SIGKILL); /* with its servers, if they are of its session still */
        (void)kill(h->pid, SIGKILL);
    }
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static void on_late(uv_timer_t *timer)
{
    struct mps_host *h = timer->data;
    fsm_post(&h->fsm, EV_LATE);
}

static void on_again(uv_timer_t *timer)
{
    look_for_socket(timer->data);
}

static void on_made(uv_poll_t *poll, int status, int events)
{
    struct mps_host *h = poll->data;
    char space[4096];
    while (read(h->inotify, space, sizeof space) > 0)
        ;
    if (h->fsm.state == MPS_STARTING)
        look_for_socket(h);
}

static void look_for_socket(void *owner)
{
    struct mps_host *h = owner;
    if (faccessat(h->place.directory_fd, MPS_DIRECTORY "/" MPS_SOCKET, F_OK, 0) == 0)
        tell_daemon(h, "get_server_list\n");
}

static void stop_waiting(struct mps_host *h)
{
    uv_timer_stop(&h->limit);
    uv_timer_stop(&h->again);
    uv_poll_stop(&h->poll);
}

static int watch_pipes(struct mps_host *h, struct err *e)
{
    char pipes[4096];
    snprintf(pipes, sizeof pipes, "%s/" MPS_DIRECTORY, h->place.directory);
    h->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (h->inotify < 0 || inotify_add_watch(h->inotify, pipes, IN_CREATE | IN_MOVED_TO) < 0)
        return err_sys(e, errno, "cannot watch %s", pipes);
    int rc = uv_poll_init(h->loop, &h->poll, h->inotify);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch %s: %s", pipes, uv_strerror(rc));
    uv_timer_init(h->loop, &h->limit);
    uv_timer_init(h->loop, &h->again);
    h->poll.data = h->limit.data = h->again.data = h;
    h->opened = true;
    uv_poll_start(&h->poll, UV_READABLE, on_made);
    uv_timer_start(&h->limit, on_late, START_MS, 0);
    return 0;
}

/* ---- its last words ------------------------------------------------------------------------------------ */

/* The last line of a file that is not blank; empty: it has none. */
static void last_line(int at, const char *name, char text[WORDS_MAX])
{
    char end[1024];
    struct stat st;
    text[0] = '\0';
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    off_t from = fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof end
                     ? st.st_size - (off_t)sizeof end + 1
                     : 0;
    ssize_t n = fd >= 0 ? pread(fd, end, sizeof end - 1, from) : -1;
    if (fd >= 0)
        close(fd);
    while (n > 0 && strchr(" \r\n\t", end[n - 1]))
        n--;
    if (n <= 0)
        return;
    end[n] = '\0';
    const char *line = strrchr(end, '\n');
    snprintf(text, WORDS_MAX, "%.*s", WORDS_MAX - 1, line ? line + 1 : end);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

static void report_failure(struct mps_host *h, bool served, const char *how)
{
    char line[WORDS_MAX], text[ERR_TEXT_MAX];
    last_line(h->place.directory_fd, SAID, line);
    if (!line[0])
        last_line(h->place.directory_fd, MPS_LOG "/control.log", line);
    snprintf(text, sizeof text, "%s%s%s%s", how, line[0] ? ", its last line being \"" : "", line,
             line[0] ? "\"" : "");
    h->events->failed(h->ctx, served, text);
}

/* ---- the table's actions ------------------------------------------------------------------------------- */

static void say_serves(void *owner)
{
    struct mps_host *h = owner;
    stop_waiting(h);
    h->events->serves(h->ctx);
}

static void ask_later(void *owner)
{
    struct mps_host *h = owner;
    uv_timer_start(&h->again, on_again, AGAIN_MS, 0);
}

static void kill_it(void *owner)
{
    struct mps_host *h = owner;
    stop_waiting(h);
    signal_it(h);
}

static void give_up(void *owner)
{
    struct mps_host *h = owner;
    char how[128];
    snprintf(how, sizeof how, MPS_PROGRAM " (pid %d) did not answer within %d s", (int)h->pid,
             START_MS / 1000);
    kill_it(h);
    report_failure(h, false, how);
}

static void say_not_started(void *owner)
{
    struct mps_host *h = owner;
    stop_waiting(h);
    signal_it(h);
    report_failure(h, false, h->how);
}

static void say_lost(void *owner)
{
    struct mps_host *h = owner;
    report_failure(h, true, h->how);
}

static void tell_quit(void *owner)
{
    struct mps_host *h = owner;
    uv_timer_start(&h->limit, on_late, QUIT_MS, 0);
    tell_daemon(h, "quit\n");
}

static void say_over(void *owner)
{
    struct mps_host *h = owner;
    stop_waiting(h);
    signal_it(h); /* the teller may still be there */
    h->events->over(h->ctx);
}

/* ---- from outside -------------------------------------------------------------------------------------- */

static int make_directories(const struct mps_place *place, struct err *e)
{
    struct sockaddr_un address;
    if (strlen(place->directory) + sizeof "/" MPS_DIRECTORY "/" MPS_SOCKET "_privileged" >
        sizeof address.sun_path)
        return err_set(e, ERR_SYSTEM, "the path of its sockets is too long: %s/" MPS_DIRECTORY,
                       place->directory);
    if (mkdirat(place->directory_fd, MPS_DIRECTORY, 0700) < 0 ||
        mkdirat(place->directory_fd, MPS_LOG, 0700) < 0)
        return err_sys(e, errno, "cannot make its directories in %s", place->directory);
    return 0;
}

int mps_host_start(struct mps_host *h, uv_loop_t *loop, const struct mps_events *events, void *ctx,
                   const struct mps_place *place, struct err *e)
{
    *h = (struct mps_host){.loop = loop, .events = events, .ctx = ctx, .place = *place, .inotify = -1};
    fsm_init(&h->fsm, &table, h, "-", MPS_NONE);
    if (make_directories(place, e) < 0 || watch_pipes(h, e) < 0 || start_daemon(h, e) < 0) {
        mps_host_close(h);
        (void)remove_tree(place->directory_fd, MPS_DIRECTORY, 1);
        (void)remove_tree(place->directory_fd, MPS_LOG, 1);
        return err_wrap(e, MPS_PROGRAM);
    }
    fsm_post(&h->fsm, EV_START);
    return 0;
}

void mps_host_end(struct mps_host *h)
{
    if (h->fsm.state == MPS_STARTING || h->fsm.state == MPS_SERVING)
        fsm_post(&h->fsm, EV_END);
}

void mps_host_kill(struct mps_host *h)
{
    if (h->pid)
        fsm_post(&h->fsm, EV_KILL);
}

pid_t mps_host_pid(const struct mps_host *h)
{
    return h->pid;
}

bool mps_host_reaped(struct mps_host *h, pid_t pid, uint32_t status, uint32_t signal)
{
    if (pid <= 0 || (pid != h->pid && pid != h->teller))
        return false;
    if (pid == h->teller) {
        h->teller = 0;
        fsm_post(&h->fsm, status == 0 && signal == 0 ? EV_ANSWERED : EV_MUTE);
        return true;
    }
    if (signal)
        snprintf(h->how, sizeof h->how, MPS_PROGRAM " (pid %d) was killed by signal %u (%s)", (int)pid,
                 signal, strsignal((int)signal));
    else
        snprintf(h->how, sizeof h->how, MPS_PROGRAM " (pid %d) ended with exit status %u", (int)pid, status);
    h->pid = 0;
    fsm_post(&h->fsm, EV_DIED);
    return true;
}

void mps_host_close(struct mps_host *h)
{
    if (h->opened) {
        uv_close((uv_handle_t *)&h->poll, NULL);
        uv_close((uv_handle_t *)&h->limit, NULL);
        uv_close((uv_handle_t *)&h->again, NULL);
    }
    if (h->loop && h->inotify >= 0)
        close(h->inotify);
    h->opened = false;
    h->inotify = -1;
}

/* ---- one that is there already ------------------------------------------------------------------------- */

static bool is_trusted(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid();
}

/* The owner of a directory can put another socket there at any time, and so can the owner of a link to it. So
 * a link to a trusted user's socket does not tell which process will answer the job. */
static bool is_safe(const char *directory, const char *socket_path)
{
    struct stat own, target, st;
    return lstat(directory, &own) == 0 && is_trusted(&own) && stat(directory, &target) == 0 &&
           S_ISDIR(target.st_mode) && is_trusted(&target) && lstat(socket_path, &st) == 0 &&
           S_ISSOCK(st.st_mode) && is_trusted(&st);
}

/* Of which type its socket is, is NVIDIA's own affair: the wrong one is told from a socket without a process.
 */
bool mps_is_served(const char *directory)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/" MPS_SOCKET, directory);
    bool served = false;
    if (n < 0 || (size_t)n >= sizeof address.sun_path || !is_safe(directory, address.sun_path))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types && !served; i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        served =
            fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN);
        if (fd >= 0)
            close(fd);
    }
    return served;
}
