/* One connection of `hvdagent wait`, in a process of its own.
 *
 * When it works: the other end shows that it has the key, and sends a command, within 10 s -> /bin/sh runs
 * the command in a session of its own -> bytes go both ways -> the command ends -> what it has written goes
 * out, then its exit status. How it fails: a stranger gets no byte but TLS's; when the connection ends first,
 * the command's input and output end, as with ssh, and we wait until the command has ended by that. SIGTERM
 * goes on to the command. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/reach/carrier.h"
#include "agent/reach/reach.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/spawn.h"

#define FLUSH_MS 5000 /* for the status to be taken */

enum { END_INPUT, END_OUTPUT, END_ERRORS, ENDS };

struct serve {
    struct carrier carrier;
    bool lost; /* the connection */
    int signals;
    struct spawned child;
    int end[ENDS]; /* of the command's pipes, ours; -1: closed */
    struct buf input;
    bool input_ends;
    int status; /* -1: the command runs */
};

static void close_end(struct serve *s, int which)
{
    if (s->end[which] >= 0)
        close(s->end[which]);
    s->end[which] = -1;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int read_command(struct serve *s, char *command, struct err *e)
{
    uint64_t limit = clock_now() + CARRIER_CONNECT_MS * NSEC_PER_MSEC, now;
    struct carrier_frame f;
    int rc;
    while ((rc = carrier_next(&s->carrier, &f, e)) == 0) {
        if ((now = clock_now()) >= limit)
            return err_set(e, ERR_PROTOCOL, "nothing came for %d s", CARRIER_CONNECT_MS / 1000);
        struct pollfd p = {.fd = s->carrier.fd, .events = carrier_events(&s->carrier)};
        poll(&p, 1, (int)((limit - now) / NSEC_PER_MSEC) + 1);
        if (carrier_move(&s->carrier, e) < 0)
            return -1;
    }
    if (rc < 0)
        return -1;
    if (f.kind != CARRIER_COMMAND || f.length == 0 || memchr(f.bytes, '\0', f.length))
        return err_set(e, ERR_PROTOCOL, "it sends no command");
    memcpy(command, f.bytes, f.length);
    command[f.length] = '\0';
    carrier_drop(&s->carrier, &f);
    return 0;
}

static int start_command(struct serve *s, char *command, struct err *e)
{
    char *argv[] = {"sh", "-c", command, NULL};
    int pipes[ENDS][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    struct spawn spawn = SPAWN_INIT;
    int rc = 0;
    for (int i = 0; i < ENDS && rc == 0; i++)
        rc = pipe2(pipes[i], O_CLOEXEC) < 0 ? err_sys(e, errno, "cannot make a pipe") : 0;
    spawn.path = "/bin/sh";
    spawn.argv = argv;
    spawn.new_session = true;
    for (int i = 0; i < ENDS; i++) {
        bool in = i == END_INPUT;
        spawn.fds[i] = pipes[i][in ? 0 : 1];
        s->end[i] = pipes[i][in ? 1 : 0];
        if (s->end[i] >= 0)
            fcntl(s->end[i], F_SETFL, O_NONBLOCK);
    }
    rc = rc == 0 ? spawn_start(&spawn, &s->child, e) : rc;
    for (int i = 0; i < ENDS; i++)
        if (spawn.fds[i] >= 0)
            close(spawn.fds[i]);
    return rc;
}

static void reap_command(struct serve *s)
{
    int status;
    if (waitpid(s->child.pid, &status, WNOHANG) != s->child.pid)
        return;
    s->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

static int take_frames(struct serve *s, struct err *e)
{
    struct carrier_frame f;
    int rc = 0;
    while (s->input.len == 0 && !s->input_ends && (rc = carrier_next(&s->carrier, &f, e)) > 0) {
        if (f.kind == CARRIER_INPUT)
            rc = buf_put(&s->input, f.bytes, f.length);
        else if (f.kind == CARRIER_INPUT_ENDS)
            s->input_ends = true;
        else
            rc = err_set(e, ERR_PROTOCOL, "it sends what hvdagent reach does not");
        carrier_drop(&s->carrier, &f);
        if (rc < 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

static void write_input(struct serve *s)
{
    while (s->end[END_INPUT] >= 0 && s->input.len > 0) {
        ssize_t n = write(s->end[END_INPUT], buf_data(&s->input), s->input.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            close_end(s, END_INPUT);
        else
            buf_consume(&s->input, (size_t)n);
    }
    if (s->end[END_INPUT] < 0)
        buf_consume(&s->input, s->input.len);
    else if (s->input_ends)
        close_end(s, END_INPUT);
}

/* true: something was read. */
static bool read_output(struct serve *s, int which)
{
    uint8_t bytes[CARRIER_BYTES_MAX];
    if (s->end[which] < 0 || !carrier_has_room(&s->carrier))
        return false;
    ssize_t n = read(s->end[which], bytes, sizeof bytes);
    if (n > 0)
        carrier_put(&s->carrier, which == END_OUTPUT ? CARRIER_OUTPUT : CARRIER_ERRORS, bytes, (uint32_t)n);
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        close_end(s, which);
    return n > 0;
}

static void lose_connection(struct serve *s, const struct err *why)
{
    log_info("the connection has ended: %s", why->text);
    s->lost = true;
    for (int i = 0; i < ENDS; i++)
        close_end(s, i);
}

static void move_bytes(struct serve *s)
{
    struct err e = ERR_INIT;
    if (s->lost)
        return;
    bool more = true;
    while (more) {
        if (carrier_move(&s->carrier, &e) < 0 || take_frames(s, &e) < 0) {
            lose_connection(s, &e);
            return;
        }
        write_input(s);
        more = s->input.len == 0 && !s->input_ends &&
               carrier_next(&s->carrier, &(struct carrier_frame){0}, &e) > 0;
        more = read_output(s, END_OUTPUT) || more;
        more = read_output(s, END_ERRORS) || more;
    }
}

static void await_event(struct serve *s)
{
    bool room = !s->lost && carrier_has_room(&s->carrier);
    struct pollfd p[] = {
        {.fd = s->lost ? -1 : s->carrier.fd, .events = s->lost ? 0 : carrier_events(&s->carrier)},
        {.fd = s->child.pidfd, .events = POLLIN},
        {.fd = s->signals, .events = POLLIN},
        {.fd = room ? s->end[END_OUTPUT] : -1, .events = POLLIN},
        {.fd = room ? s->end[END_ERRORS] : -1, .events = POLLIN},
        {.fd = s->input.len > 0 ? s->end[END_INPUT] : -1, .events = POLLOUT},
    };
    struct signalfd_siginfo info;
    poll(p, sizeof p / sizeof *p, -1);
    if (p[2].revents && read(s->signals, &info, sizeof info) == (ssize_t)sizeof info)
        kill(s->child.pid, SIGTERM);
}

/* The status goes out when there is room, and the other end closes when it has the status. */
static void send_status(struct serve *s)
{
    uint64_t limit = clock_now() + FLUSH_MS * NSEC_PER_MSEC, now;
    struct err e = ERR_INIT;
    uint8_t status[4];
    bool told = false;
    put_u32(status, (uint32_t)s->status);
    while (!s->lost && (now = clock_now()) < limit) {
        if (!told && carrier_has_room(&s->carrier)) {
            carrier_put(&s->carrier, CARRIER_STATUS, status, sizeof status);
            told = true;
        }
        if (carrier_move(&s->carrier, &e) < 0)
            return;
        struct pollfd p = {.fd = s->carrier.fd, .events = carrier_events(&s->carrier)};
        poll(&p, 1, (int)((limit - now) / NSEC_PER_MSEC) + 1);
        buf_consume(&s->carrier.in, s->carrier.in.len);
    }
}

static int run_command(struct serve *s, char *command, struct err *e)
{
    carrier_put(&s->carrier, CARRIER_RUNS, NULL, 0);
    if (start_command(s, command, e) < 0) {
        log_error("%s", e->text);
        s->status = 126;
    }
    while (s->status < 0) {
        move_bytes(s);
        await_event(s);
        reap_command(s);
    }
    move_bytes(s);
    send_status(s);
    return s->status;
}

int wait_serve(int fd, const uint8_t *secret, _Atomic bool *known, struct err *e)
{
    static char command[CARRIER_BYTES_MAX + 1];
    struct serve s = {.end = {-1, -1, -1}, .status = -1, .child = {.pidfd = -1}};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    buf_init(&s.input, CARRIER_BYTES_MAX);
    if (carrier_open(&s.carrier, fd, secret, false, e) < 0 || read_command(&s, command, e) < 0)
        return REACH_STRANGER;
    atomic_store(known, true);
    return run_command(&s, command, e);
}
