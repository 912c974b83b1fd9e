/* A child process as a transport.
 *
 * When it works: spawn (own session, socketpair, stderr pipe) -> the first turn of the loop reports the
 * phases and opened() -> bytes flow -> the child exits -> what is left in the socket and in the pipe is read
 * until empty (not until EOF: a grandchild may hold them) -> every handle is closed -> closed() with the
 * child's status. How it fails: spawn fails: start() returns NULL and nothing is left. The stream ends first
 * (EOF, EPIPE): reading and writing stop, the child gets time to exit, then SIGTERM, then SIGKILL to its
 * process group; a child that survives even this is named and left, so closed() always comes. close(): the
 * same way, and nothing is delivered any more. */
#include "launcher/transport/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/process/spawn.h"

#define SOCKET_BUFFER (64 * 1024)
#define READ_BYTES    (64 * 1024)
#define READS_A_TURN  16 /* then other hosts get theirs */
#define KILL_AFTER_MS 2000
#define NOISE_KEPT    256

enum process_handle { HANDLE_STREAM, HANDLE_STDERR, HANDLE_CHILD, HANDLE_COUNT };

struct transport {
    const struct transport_events *events;
    void *ctx;
    const char *peer_address;
    unsigned term_after_ms, exit_after_ms;
    bool lingers, carrier;
    uv_poll_t poll[HANDLE_COUNT];
    uv_timer_t timer;
    int fd[HANDLE_COUNT]; /* -1 once closed */
    int open_handles;     /* uv handles whose close callback has not come */
    pid_t pid;
    int exit_status, term_signal;
    bool announced; /* opened() was reported */
    /* The phase "starting the session" was reported: at once for a local host, else when the carrier (the
     * ssh-like command of --rsh) has connected. */
    bool reached;
    bool want_writable;
    bool exited;            /* the child was reaped */
    bool finished;          /* every handle is on its way to being closed */
    bool ending;            /* the stream is over; the child is on its way out */
    bool silent;            /* close() was called: deliver nothing more but closed() */
    unsigned kills;         /* SIGTERM was sent, then SIGKILL */
    char noise[NOISE_KEPT]; /* the last line of stderr, for the error of a carrier */
    struct err err;
};

static void check_end(struct transport *t);

static void report_reached(struct transport *t)
{
    if (t->reached || t->silent)
        return;
    t->reached = true;
    t->events->phase(t->ctx, TRANSPORT_AGENT_START);
}

static void report_closed(struct transport *t)
{
    if (t->exit_status != 255)
        report_reached(t);
    if (t->carrier && !t->silent && !t->err.code && t->exit_status == 255)
        err_set(&t->err, ERR_HOST, "%s",
                t->noise[0] ? t->noise : "the remote shell program failed (exit status 255)");
    struct transport_end end = {t->exit_status, t->term_signal, t->err.code ? &t->err : NULL};
    t->events->closed(t->ctx, &end);
}

static void handle_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    if (--t->open_handles == 0)
        report_closed(t);
}

static void close_handle(struct transport *t, enum process_handle h)
{
    if (t->fd[h] < 0)
        return;
    uv_poll_stop(&t->poll[h]);
    close(t->fd[h]);
    t->fd[h] = -1;
    uv_close((uv_handle_t *)&t->poll[h], handle_closed);
}

/* Lines of the agent's log come the same way as lines of the carrier, but explain no end of the carrier. */
static bool is_logged(const char *line, size_t len)
{
    static const char *const programs[] = {"hvdagent: ", "hvd-engine: ", "hvd-pmix: "};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (len >= strlen(programs[i]) && memcmp(line, programs[i], strlen(programs[i])) == 0)
            return true;
    return false;
}

/* Keeps the last line of stderr that has letters in it. */
static void keep_noise(struct transport *t, const char *bytes, size_t len)
{
    while (len && strchr("\r\n", bytes[len - 1]))
        len--;
    size_t start = len;
    while (start && bytes[start - 1] != '\n')
        start--;
    if (len > start && !(t->reached && is_logged(bytes + start, len - start)))
        snprintf(t->noise, sizeof t->noise, "%.*s", (int)(len - start), bytes + start);
}

/* Reads one descriptor until it is empty or had its turn. Returns false when it has ended. */
static bool drain_pipe(struct transport *t, enum process_handle h, int turns)
{
    static uint8_t bytes[READ_BYTES]; /* there is one thread; callbacks use it during their call only */
    while (turns-- > 0 && t->fd[h] >= 0) {
        ssize_t n = read(t->fd[h], bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        if (n == 0)
            return false;
        if (h == HANDLE_STDERR)
            keep_noise(t, (const char *)bytes, (size_t)n);
        if (t->silent)
            continue;
        if (h == HANDLE_STREAM) {
            report_reached(t);
            t->events->received(t->ctx, bytes, (size_t)n);
        } else {
            t->events->noise(t->ctx, bytes, (size_t)n);
        }
    }
    return true;
}

static void announce_start(struct transport *t)
{
    if (t->announced || t->silent)
        return;
    t->announced = true;
    t->events->phase(t->ctx, TRANSPORT_CONNECT);
    /* When a carrier has connected only its first byte or its exit status tells; what is written meanwhile
     * waits in the socket. */
    if (!t->carrier)
        report_reached(t);
    if (!t->silent)
        t->events->opened(t->ctx);
}

static void finish_transport(struct transport *t)
{
    if (t->finished)
        return;
    t->finished = true;
    /* A turn is at most READ_BYTES; what the child left in socket and pipe is less than this, a chatty
     * grandchild never ends it. */
    drain_pipe(t, HANDLE_STREAM, READS_A_TURN * 4);
    drain_pipe(t, HANDLE_STDERR, READS_A_TURN * 4);
    for (int h = 0; h < HANDLE_COUNT; h++)
        close_handle(t, h);
    uv_close((uv_handle_t *)&t->timer, handle_closed);
}

static void child_exited(uv_poll_t *poll, int status, int events)
{
    struct transport *t = poll->data;
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)t->fd[HANDLE_CHILD], &info, WEXITED | WNOHANG) == 0) {
        if (info.si_pid == 0)
            return;
        if (info.si_code == CLD_EXITED)
            t->exit_status = info.si_status;
        else
            t->term_signal = info.si_status;
    }
    t->exited = true;
    announce_start(t);
    close_handle(t, HANDLE_CHILD);
    if (!t->lingers || t->silent || t->fd[HANDLE_STREAM] < 0)
        finish_transport(t);
}

static void timer_fired(uv_timer_t *timer)
{
    struct transport *t = timer->data;
    if (t->exited)
        return;
    if (!t->ending) {
        announce_start(t);
        return;
    }
    if (t->kills == 2) {
        /* In uninterruptible sleep, or frozen: nothing ends it now, and nobody waits for it. */
        log_error("process %d (of the agent) could not be ended", (int)t->pid);
        finish_transport(t);
        return;
    }
    kill(-t->pid, t->kills++ ? SIGKILL : SIGTERM);
    uv_timer_start(timer, timer_fired, KILL_AFTER_MS, 0);
}

/* The stream is over: no more bytes either way, the child exits or is made to. */
static void check_end(struct transport *t)
{
    close_handle(t, HANDLE_STREAM);
    if (t->exited)
        finish_transport(t);
    if (t->ending || t->exited)
        return;
    t->ending = true;
    uv_timer_start(&t->timer, timer_fired, t->silent || !t->reached ? t->term_after_ms : t->exit_after_ms, 0);
}

static int stream_interest(const struct transport *t)
{
    return UV_READABLE | (t->want_writable ? UV_WRITABLE : 0);
}

static void stream_ready(uv_poll_t *poll, int status, int events)
{
    struct transport *t = poll->data;
    announce_start(t);
    if (t->silent || t->fd[HANDLE_STREAM] < 0)
        return;
    if ((status < 0 || events & UV_READABLE) && !drain_pipe(t, HANDLE_STREAM, READS_A_TURN)) {
        check_end(t);
        return;
    }
    if (t->fd[HANDLE_STREAM] < 0 || !(events & UV_WRITABLE) || !t->want_writable)
        return;
    t->want_writable = false;
    uv_poll_start(&t->poll[HANDLE_STREAM], stream_interest(t), stream_ready);
    t->events->writable(t->ctx);
}

static void stderr_ready(uv_poll_t *poll, int status, int events)
{
    struct transport *t = poll->data;
    announce_start(t);
    if (!drain_pipe(t, HANDLE_STDERR, READS_A_TURN))
        close_handle(t, HANDLE_STDERR);
}

size_t process_write(struct transport *t, const void *bytes, size_t len)
{
    if (t->fd[HANDLE_STREAM] < 0)
        return len;
    ssize_t n = send(t->fd[HANDLE_STREAM], bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        if (errno != EPIPE && errno != ECONNRESET)
            err_sys(&t->err, errno, "cannot write to the agent");
        (void)shutdown(t->fd[HANDLE_STREAM], SHUT_RDWR); /* reading finds the end, and what came before it */
        return len;
    }
    size_t taken = n > 0 ? (size_t)n : 0;
    if (taken < len && !t->want_writable) {
        t->want_writable = true;
        uv_poll_start(&t->poll[HANDLE_STREAM], stream_interest(t), stream_ready);
    }
    return taken;
}

void process_close(struct transport *t)
{
    if (t->silent)
        return;
    t->silent = true;
    if (t->ending && !t->exited && t->kills == 0)
        uv_timer_start(&t->timer, timer_fired, t->term_after_ms, 0);
    check_end(t);
}

const char *process_peer_address(struct transport *t)
{
    return t->peer_address;
}

void process_destroy(struct transport *t)
{
    free(t);
}

static int open_pair(int *ours, int *theirs, struct err *e)
{
    int pair[2], size = SOCKET_BUFFER;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "cannot make a socket pair");
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    *ours = pair[0];
    *theirs = pair[1];
    return 0;
}

/* Spawns the child; fd[] receives our ends. On failure nothing is left. */
static int launch_process(const struct process_spec *spec, int fd[HANDLE_COUNT], pid_t *pid, struct err *e)
{
    char path[PATH_MAX];
    int theirs = -1, noise[2] = {-1, -1}, rc = -1;
    fd[HANDLE_STREAM] = -1;
    if (spawn_find(spec->argv[0], getenv("PATH"), NULL, path, sizeof path, e) < 0)
        return -1;
    if (open_pair(&fd[HANDLE_STREAM], &theirs, e) < 0)
        return -1;
    if (pipe2(noise, O_CLOEXEC) < 0) {
        err_sys(e, errno, "cannot make a pipe");
    } else {
        struct spawn s = SPAWN_INIT;
        struct spawned child;
        s.path = path;
        s.argv = spec->argv;
        s.fds[0] = s.fds[1] = theirs;
        s.fds[2] = noise[1];
        s.new_session = true;
        rc = spawn_start(&s, &child, e);
        if (rc == 0) {
            fd[HANDLE_CHILD] = child.pidfd;
            *pid = child.pid;
        }
        close(noise[1]);
    }
    close(theirs);
    if (rc < 0) {
        close(fd[HANDLE_STREAM]);
        if (noise[0] >= 0)
            close(noise[0]);
        return -1;
    }
    fd[HANDLE_STDERR] = noise[0];
    return 0;
}

struct transport *process_start(uv_loop_t *loop, const struct process_spec *spec,
                                const struct transport_events *events, void *ctx, struct err *e)
{
    static const uv_poll_cb ready[HANDLE_COUNT] = {stream_ready, stderr_ready, child_exited};
    struct transport *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(e, ERR_MEMORY, "no memory for a connection");
        return NULL;
    }
    if (launch_process(spec, t->fd, &t->pid, e) < 0) {
        free(t);
        return NULL;
    }
    t->events = events;
    t->ctx = ctx;
    t->peer_address = spec->peer_address;
    t->term_after_ms = spec->term_after_ms;
    t->exit_after_ms = spec->exit_after_ms;
    t->lingers = spec->lingers;
    t->carrier = spec->carrier;
    t->exit_status = -1;
    for (int h = 0; h < HANDLE_COUNT; h++) {
        fcntl(t->fd[h], F_SETFL, fcntl(t->fd[h], F_GETFL) | O_NONBLOCK);
        t->poll[h].data = t;
        uv_poll_init(loop, &t->poll[h], t->fd[h]);
        uv_poll_start(&t->poll[h], UV_READABLE, ready[h]);
    }
    uv_timer_init(loop, &t->timer);
    t->timer.data = t;
    uv_timer_start(&t->timer, timer_fired, 0, 0);
    t->open_handles = HANDLE_COUNT + 1;
    return t;
}
