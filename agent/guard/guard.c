#include "agent/guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guard/heartbeat.h"
#include "agent/worker/descendants.h"
#include "common/protocol/agent_exit.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define FIRST_LIMIT_MS 60000 /* until the launcher said its own */
#define CLEAN_UP_MS    5000
#define GAVE_UP_MS     200 /* the same, after the session's own CLEAN_UP_MS */
#define LATER_MS       60000
#define LEFTOVERS_MAX  16

int guard_take_lease(struct guard *g, const struct guard_lease *lease, struct err *e)
{
    g->lease = *lease;
    g->status_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (g->status_fd < 0 || dup2(STDIN_FILENO, STDOUT_FILENO) < 0)
        return err_sys(e, errno, "cannot take the connection over");
    return 0;
}

int guard_fork(struct guard *g, struct err *e)
{
    g->page = mmap(NULL, sizeof *g->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (g->page == MAP_FAILED)
        return err_sys(e, errno, "cannot map a page");
    g->page->limit_ms = FIRST_LIMIT_MS;
    /* Our own pidfd, opened before the fork: the session can never watch another process by mistake. */
    g->pid = getpid();
    g->pidfd = (int)syscall(SYS_pidfd_open, g->pid, 0);
    if (g->pidfd < 0)
        return err_sys(e, errno, "cannot watch processes (Linux 5.7 or later is needed): pidfd_open");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)setsid(); /* out of the terminal's group; fails when we lead a group, and then the signals below are
                       ignored */
    fcntl(g->pidfd, F_SETFD, FD_CLOEXEC);
    g->session = fork();
    if (g->session < 0)
        return err_sys(e, errno, "cannot fork");
    if (g->session > 0)
        return 1;
    (void)setsid();
    if (g->status_fd >= 0)
        close(g->status_fd);
    return 0;
}

void guard_beat(struct guard *g)
{
    atomic_fetch_add_explicit(&g->page->beat, 1, memory_order_relaxed);
}

uint64_t guard_moves(const struct guard *g)
{
    return atomic_load_explicit(&g->page->guard_beat, memory_order_relaxed);
}

bool guard_lives(const struct guard *g)
{
    struct pollfd p = {.fd = g->pidfd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

void guard_wake(struct guard *g)
{
    (void)syscall(SYS_pidfd_send_signal, g->pidfd, SIGCONT, NULL, 0);
}

void guard_limit(struct guard *g, uint32_t limit_ms)
{
    if (atomic_exchange(&g->page->limit_ms, limit_ms) == limit_ms)
        return;
    /* It sleeps by the old limit: this one only wakes it. */
    (void)syscall(SYS_pidfd_send_signal, g->pidfd, SIGCHLD, NULL, 0);
}

void guard_gives_up(struct guard *g)
{
    atomic_store(&g->page->gave_up, true);
}

void guard_owns_cgroup(struct guard *g, const char *path)
{
    atomic_store(&g->page->has_cgroup, false);
    snprintf(g->page->cgroup, sizeof g->page->cgroup, "%s", path);
    atomic_store(&g->page->has_cgroup, path[0] != '\0');
}

void guard_owns_directory(struct guard *g, const char *path)
{
    atomic_store(&g->page->has_directory, false);
    snprintf(g->page->directory, sizeof g->page->directory, "%s", path);
    atomic_store(&g->page->has_directory, path[0] != '\0');
}

/* ---- the guard's side ---------------------------------------------------------------------------------- */

static void leave_channel(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) { /* the launcher waits until nobody holds its end */
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        return;
    }
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (null > STDERR_FILENO)
        close(null);
}

/* Signals come as readable bytes. Those that would end us end the session instead, which ends the job in
 * order. */
static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    static const int taken[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&set, taken[i]);
    static const int ignored[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static bool drain_signals(int fd)
{
    struct signalfd_siginfo info;
    bool end = false;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info)
        end = end || info.ssi_signo != SIGCHLD;
    return end;
}

/* Known from the child itself too: without a descriptor left there is no pidfd, and SIGCHLD or the next look
 * at the heartbeat wakes us. */
static bool session_has_ended(const struct guard *g)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)g->session, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* Waits until the session has ended (true) or has stopped beating (false). */
static bool watch_session(struct guard *g, int signals, int session)
{
    struct heartbeat h = {0};
    uint32_t limit_ms = 0;
    uint64_t beat = 0;
    int again_ms = -1;
    for (;;) {
        uint64_t now = clock_now();
        atomic_fetch_add_explicit(&g->page->guard_beat, 1, memory_order_relaxed);
        if (limit_ms != g->page->limit_ms) {
            limit_ms = g->page->limit_ms;
            heartbeat_start(&h, limit_ms * NSEC_PER_MSEC, now);
        }
        struct pollfd p[2] = {{.fd = session, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        int wait_ms = again_ms >= 0 ? again_ms : (int)(heartbeat_interval(&h) / NSEC_PER_MSEC);
        int n = poll(p, 2, wait_ms);
        if ((n > 0 && p[0].revents) || session_has_ended(g))
            return true;
        if (n > 0 && p[1].revents && drain_signals(signals))
            kill(g->session, SIGTERM);
        uint64_t latest = atomic_load(&g->page->beat);
        if (latest != beat) {
            beat = latest;
            heartbeat_seen(&h, clock_now());
        }
        enum heartbeat_verdict verdict = heartbeat_look(&h, clock_now());
        if (verdict == HEARTBEAT_DEAD)
            return false;
        again_ms = verdict == HEARTBEAT_DOUBT ? 100 : -1;
    }
}

/* The session's exit status, or what AGENT_EXIT_SIGNAL says of its end; 125 when it does not end at all. */
static int reap_session(struct guard *g, int session)
{
    siginfo_t info = {0};
    struct pollfd p = {.fd = session, .events = POLLIN};
    (void)poll(&p, 1, CLEAN_UP_MS);
    if (waitid(P_PID, (id_t)g->session, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0) {
        log_error("the session (pid %d) cannot be killed", (int)g->session);
        return 125;
    }
    if (info.si_code == CLD_EXITED)
        return info.si_status;
    log_info("the session was killed by signal %d (%s)", info.si_status, strsignal(info.si_status));
    return AGENT_EXIT_SIGNAL + info.si_status;
}

static void name_leftovers(enum log_level level)
{
    struct descendant left[LEFTOVERS_MAX];
    size_t n = descendants_list(left, LEFTOVERS_MAX);
    for (size_t i = 0; i < n; i++)
        log_at(level, "process %d (%s) cannot be killed, its state is %c", (int)left[i].pid, left[i].name,
               left[i].state);
}

/* The children of a process that dies become ours, so every SIGCHLD is followed by another walk until no
 * child is left. */
static void kill_rest(struct guard *g, int signals)
{
    bool named = atomic_load(&g->page->gave_up);
    uint64_t deadline = clock_now() + (named ? GAVE_UP_MS : CLEAN_UP_MS) * NSEC_PER_MSEC;
    for (;;) {
        siginfo_t info = {0};
        while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
            info.si_pid = 0;
        if (!descendants_any(NULL))
            return;
        if (g->page->has_cgroup)
            containment_kill(g->page->cgroup);
        (void)descendants_signal(SIGKILL, NULL);
        if (clock_now() > deadline)
            break;
        struct pollfd p = {.fd = signals, .events = POLLIN};
        (void)poll(&p, 1, 100);
        (void)drain_signals(signals);
    }
    name_leftovers(named ? LOG_INFO : LOG_ERROR);
}

/* Nobody waits for what ignores SIGKILL, but when it has gone after all, its cgroup can go too: a process of
 * its own sees to that, for a while. Later the next agent of this user does. */
static void remove_cgroup_later(const char *path)
{
    sigset_t none;
    if (fork() != 0)
        return;
    leave_channel();
    dup2(STDIN_FILENO, STDERR_FILENO); /* sshd waits for whoever holds it */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)containment_remove(path, LATER_MS);
    _exit(0);
}

static void remove_cgroup(const char *path, bool gave_up)
{
    containment_kill(path);
    if (containment_remove(path, gave_up ? 0 : 1000) == 0)
        return;
    if (gave_up)
        remove_cgroup_later(path);
    else
        log_error("cannot remove the cgroup %s; the next agent here will try again", path);
}

static void tell_status(const struct guard *g, int status)
{
    uint8_t code = (uint8_t)status;
    if (g->status_fd >= 0 && write(g->status_fd, &code, 1) < 0)
        log_debug("nobody waits for the guard's status");
}

int guard_main(struct guard *g)
{
    leave_channel();
    close(g->pidfd);
    int signals = open_signals();
    int session = (int)syscall(SYS_pidfd_open, g->session, 0);
    bool stuck = !watch_session(g, signals, session);
    if (stuck) {
        log_info("the session has not moved for %u ms: killing it", g->page->limit_ms);
        kill(g->session, SIGKILL);
    }
    int status = reap_session(g, session);
    if (stuck && status == AGENT_EXIT_SIGNAL + SIGKILL)
        status = AGENT_EXIT_STUCK;
    kill_rest(g, signals);
    if (g->page->has_cgroup)
        remove_cgroup(g->page->cgroup, atomic_load(&g->page->gave_up));
    if (g->page->has_directory)
        job_dir_remove(g->page->directory);
    close(session);
    close(signals);
    tell_status(g, status);
    return status;
}
