/* `hvdagent wait`: a host without sshd waits for hvdrun.
 *
 *   listening -> a connection: a process of its own serves it (serve.c) -> listening ...
 *
 * The end: a command has ended, no other one runs, and none comes for --linger seconds; or nobody with the
 * key came within --limit seconds; or SIGTERM, which goes on to the commands. A stranger costs a process for
 * 10 s at most, and there are 64 processes at most: then the oldest stranger has to go. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/reach/carrier.h"
#include "agent/reach/reach.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/net/net.h"

#define PROCESSES_MAX  64
#define STRANGERS_TOLD 20
#define PROBE_S        15

/* With the processes that serve connections. */
struct shared {
    _Atomic uint32_t strangers;
    _Atomic bool known[PROCESSES_MAX]; /* no stranger */
};

struct waiter {
    const struct reach_options *o;
    int listener[2], listeners, signals;
    uint8_t secret[TLS_SECRET_SIZE];
    pid_t process[PROCESSES_MAX]; /* 0: none */
    uint64_t since[PROCESSES_MAX];
    struct shared *shared;
    uint32_t processes;
    int status;       /* of the last command; -1: none has come */
    uint64_t ends_at; /* unless something happens before */
    int terminated;   /* by this signal */
};

/* ---- connections --------------------------------------------------------------------------------------- */

static int listen_on(struct waiter *w, const char *text, struct err *e)
{
    union net_address address;
    if (net_parse(text, w->o->port, &address, e) < 0)
        return -1;
    int fd = net_listen(&address, SOMAXCONN, e);
    if (fd >= 0)
        w->listener[w->listeners++] = fd;
    return fd < 0 ? -1 : 0;
}

/* A host may lack either kind of addresses. If IPv4 fails, a line says so: the port may be taken. */
static int listen_here(struct waiter *w, struct err *e)
{
    struct err ignored = ERR_INIT;
    if (w->o->address)
        return listen_on(w, w->o->address, e);
    int v4 = listen_on(w, "0.0.0.0", e), v6 = listen_on(w, "::", &ignored);
    if (v4 < 0 && v6 == 0)
        log_warning("%s; listening with IPv6 alone", e->text);
    return v4 < 0 && v6 < 0 ? -1 : 0;
}

static void close_listeners(const struct waiter *w)
{
    for (int i = 0; i < w->listeners; i++)
        close(w->listener[i]);
}

static _Noreturn void serve_connection(struct waiter *w, uint32_t at, int fd)
{
    struct err e = ERR_INIT;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    close_listeners(w);
    close(w->signals);
    if (net_set_quiet_options(fd, PROBE_S, &e) < 0)
        log_debug("%s", e.text);
    err_clear(&e);
    int status = wait_serve(fd, w->secret, &w->shared->known[at], &e);
    if (status == REACH_STRANGER && atomic_fetch_add(&w->shared->strangers, 1) < STRANGERS_TOLD)
        log_warning("a connection was refused: %s", e.text);
    _exit(status == REACH_STRANGER ? 1 : status);
}

static void accept_connection(struct waiter *w, int listener)
{
    union net_address peer;
    uint32_t at = 0;
    int fd = net_accept(listener, &peer);
    if (fd < 0)
        return;
    while (at < PROCESSES_MAX && w->process[at])
        at++;
    if (at < PROCESSES_MAX)
        atomic_store(&w->shared->known[at], false);
    pid_t pid = at < PROCESSES_MAX ? fork() : -1;
    if (pid == 0)
        serve_connection(w, at, fd);
    if (pid > 0) {
        w->process[at] = pid;
        w->since[at] = clock_now();
        w->processes++;
    }
    close(fd);
}

/* So that the next one has room. */
static void end_oldest_stranger(const struct waiter *w)
{
    uint32_t oldest = PROCESSES_MAX;
    for (uint32_t i = 0; i < PROCESSES_MAX; i++)
        if (w->process[i] && !atomic_load(&w->shared->known[i]) &&
            (oldest == PROCESSES_MAX || w->since[i] < w->since[oldest]))
            oldest = i;
    if (oldest < PROCESSES_MAX)
        kill(w->process[oldest], SIGKILL);
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

static void forget_process(struct waiter *w, pid_t pid, int status)
{
    uint32_t at = 0;
    while (at < PROCESSES_MAX && w->process[at] != pid)
        at++;
    if (at == PROCESSES_MAX)
        return; /* a container's first process gets orphans */
    w->process[at] = 0;
    w->processes--;
    if (!atomic_load(&w->shared->known[at]))
        return;
    w->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    w->ends_at = clock_now() + w->o->linger_s * NSEC_PER_SEC;
}

static void take_signals(struct waiter *w)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;
    while (read(w->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        w->terminated = (int)info.ssi_signo;
        for (uint32_t i = 0; i < PROCESSES_MAX; i++)
            if (w->process[i])
                kill(w->process[i], SIGTERM);
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        forget_process(w, pid, status);
}

static bool is_over(const struct waiter *w, uint64_t now)
{
    return w->processes == 0 && (w->terminated || now >= w->ends_at);
}

static void wait_for_commands(struct waiter *w)
{
    uint64_t now;
    while (!is_over(w, now = clock_now())) {
        bool more = w->processes < PROCESSES_MAX && !w->terminated;
        if (w->processes == PROCESSES_MAX)
            end_oldest_stranger(w);
        struct pollfd p[3] = {{.fd = w->signals, .events = POLLIN},
                              {.fd = more ? w->listener[0] : -1, .events = POLLIN},
                              {.fd = more && w->listeners > 1 ? w->listener[1] : -1, .events = POLLIN}};
        bool due = w->processes == 0 && now < w->ends_at;
        poll(p, 3, due ? (int)((w->ends_at - now) / NSEC_PER_MSEC) + 1 : -1);
        if (p[0].revents)
            take_signals(w);
        for (int i = 0; i < w->listeners; i++)
            if (p[1 + i].revents)
                accept_connection(w, w->listener[i]);
    }
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int judge_end(const struct waiter *w)
{
    if (w->terminated)
        return 128 + w->terminated;
    uint32_t strangers = atomic_load(&w->shared->strangers);
    if (strangers > STRANGERS_TOLD)
        log_warning("%u connections were refused", strangers);
    if (w->status < 0)
        log_error("no hvdrun with the key came within %u s", w->o->limit_s);
    else if (w->status > 0)
        log_error("the last command ended with status %d", w->status);
    return w->status != 0;
}

int wait_main(int argc, char **argv)
{
    struct reach_options o;
    struct err e = ERR_INIT;
    struct waiter *w = secret_new(sizeof *w);
    if (!w) {
        log_error("no memory");
        return 1;
    }
    int rc = reach_options_read(&o, true, argc, argv, &e);
    if (rc == 0)
        rc = carrier_read_key(o.key_file, w->secret, &e);
    w->shared = mmap(NULL, sizeof *w->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rc == 0 && w->shared == MAP_FAILED)
        rc = err_sys(&e, errno, "no memory");
    w->o = &o;
    w->status = -1;
    if (rc < 0 || listen_here(w, &e) < 0) {
        log_error("%s", e.text);
        secret_free(w, sizeof *w);
        return err_exit_status(&e);
    }
    w->signals = open_signals();
    signal(SIGPIPE, SIG_IGN);
    w->ends_at = clock_now() + o.limit_s * NSEC_PER_SEC;
    wait_for_commands(w);
    int status = judge_end(w);
    close_listeners(w);
    close(w->signals);
    secret_free(w, sizeof *w);
    return status;
}
