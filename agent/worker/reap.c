#include "agent/worker/reap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The system call has one parameter more than libc's waitid. */
static int wait_any(siginfo_t *info, struct rusage *usage)
{
    return (int)syscall(SYS_waitid, P_ALL, 0, info, WEXITED | WNOHANG, usage);
}

static uint64_t to_microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

void reap_now(struct reap *r)
{
    for (;;) {
        siginfo_t info = {0};
        struct rusage usage = {0};
        if (wait_any(&info, &usage) < 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        if (info.si_pid == 0)
            return;
        struct reaped child = {.pid = info.si_pid,
                               .core_dumped = info.si_code == CLD_DUMPED,
                               .peak_kib = (uint64_t)usage.ru_maxrss,
                               .user_us = to_microseconds(usage.ru_utime),
                               .system_us = to_microseconds(usage.ru_stime)};
        if (info.si_code == CLD_EXITED)
            child.status = (uint32_t)info.si_status & 255;
        else
            child.signal = (uint32_t)info.si_status;
        r->events->ended(r->ctx, &child);
    }
}

static void on_signals(uv_poll_t *poll, int status, int events)
{
    struct reap *r = poll->data;
    struct signalfd_siginfo info[16];
    bool child = false;
    ssize_t n;
    int asked = 0;
    while ((n = read(r->fd, info, sizeof info)) > 0) {
        for (size_t i = 0; i < (size_t)n / sizeof *info; i++) {
            if (info[i].ssi_signo == SIGCHLD)
                child = true;
            else
                asked = (int)info[i].ssi_signo;
        }
    }
    if (child) {
        reap_now(r);
        r->events->batch(r->ctx);
    }
    if (asked)
        r->events->asked_to_end(r->ctx, asked);
}

int reap_open(struct reap *r, uv_loop_t *loop, const struct reap_events *events, void *ctx, struct err *e)
{
    static const int taken[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&set, taken[i]);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would take the exit statuses away */
    sigprocmask(SIG_SETMASK, &set, NULL);
    *r = (struct reap){.events = events, .ctx = ctx};
    r->fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (r->fd < 0)
        return err_sys(e, errno, "cannot receive signals");
    int rc = uv_poll_init(loop, &r->poll, r->fd);
    if (rc < 0) {
        close(r->fd);
        return err_set(e, ERR_SYSTEM, "cannot watch signals: %s", uv_strerror(rc));
    }
    r->poll.data = r;
    uv_poll_start(&r->poll, UV_READABLE, on_signals);
    return 0;
}

void reap_close(struct reap *r)
{
    uv_close((uv_handle_t *)&r->poll, NULL);
    close(r->fd);
    r->fd = -1;
}
