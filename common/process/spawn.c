#include "common/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <paths.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/close_range.h>

extern char **environ;

static struct rlimit childrens_limit;
static bool limit_was_raised;

static void __attribute__((noreturn)) child_fail(const struct spawn *s, int report_fd, enum spawn_step step)
{
    struct spawn_failure f = {s->id, step, errno};
    ssize_t ignored = write(report_fd, &f, sizeof f);
    (void)ignored;
    _exit(127);
}

/* Puts the given descriptors at 0, 1, 2 (and 3) and closes all others but `report_fd`, which execve closes.
 */
static int child_descriptors(const struct spawn *s, int *report_fd)
{
    int want[4] = {s->fds[0], s->fds[1], s->fds[2], s->extra_fd};
    int last = s->extra_fd >= 0 ? 4 : 3;
    int null = -1;
    /* First out of the way of the targets, so that no dup2 below overwrites a source. */
    *report_fd = fcntl(*report_fd, F_DUPFD_CLOEXEC, 8);
    if (*report_fd < 0)
        return -1;
    for (int i = 0; i < last; i++) {
        if (want[i] < 0 && null < 0)
            null = open(_PATH_DEVNULL, O_RDWR | O_CLOEXEC);
        if (want[i] < 0 && null < 0)
            return -1;
        want[i] = fcntl(want[i] < 0 ? null : want[i], F_DUPFD_CLOEXEC, 8);
        if (want[i] < 0)
            return -1;
    }
    for (int i = 0; i < last; i++)
        if (dup2(want[i], i) < 0)
            return -1;
    close_range((unsigned)last, ~0U, CLOSE_RANGE_CLOEXEC);
    return 0;
}

static void child_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    /* Only what a program of ours ignores or handles; a user's `nohup` (SIGHUP ignored) is kept. */
    static const int ours[] = {SIGPIPE, SIGXFSZ, SIGINT,  SIGTERM, SIGQUIT, SIGCHLD,
                               SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        signal(ours[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void __attribute__((noreturn)) child_main(const struct spawn *s, int report_fd, pid_t parent)
{
    child_signals();
    if (s->new_session)
        setsid();
    else if (s->new_group)
        setpgid(0, 0);
    if (s->die_with_us) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127); /* the parent died before the line above */
    }
    if (s->cpus && syscall(SYS_sched_setaffinity, 0, s->cpus_size, s->cpus) < 0)
        child_fail(s, report_fd, SPAWN_BIND);
    if (s->dir && chdir(s->dir) < 0)
        child_fail(s, report_fd, SPAWN_CHDIR);
    if (child_descriptors(s, &report_fd) < 0)
        child_fail(s, report_fd, SPAWN_DESCRIPTORS);
    if (s->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
        child_fail(s, report_fd, SPAWN_DESCRIPTORS);
    if (limit_was_raised)
        setrlimit(RLIMIT_NOFILE, &childrens_limit);
    for (size_t i = 0; i < s->limit_count; i++)
        setrlimit((__rlimit_resource_t)s->limits[i].resource, &s->limits[i].limit);
    if (s->stop_at_exec && ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        child_fail(s, report_fd, SPAWN_STOP);
    execve(s->path, s->argv, s->envp ? s->envp : environ);
    child_fail(s, report_fd, SPAWN_EXEC);
}

struct child {
    const struct spawn *s;
    int report_fd;
    pid_t parent;
};

/* For a kernel that does not put the child there. */
static void enter_cgroup(const struct child *c)
{
    int fd = openat(c->s->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        child_fail(c->s, c->report_fd, SPAWN_CGROUP);
    close(fd);
}

static void __attribute__((noreturn)) child_start(const struct child *c)
{
    child_main(c->s, c->report_fd, c->parent);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SPAWN_COPIES_MEMORY
#endif
#endif
#if !defined(SPAWN_COPIES_MEMORY) &&                                                                         \
    (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__))
#define SPAWN_COPIES_MEMORY
#endif

/* Does as CLONE_CLEAR_SIGHAND: handlers go, ignored signals stay ignored. */
static void drop_handlers(void)
{
    struct sigaction action;
    for (int number = 1; number < NSIG; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            signal(number, SIG_DFL);
}

static long clone_with_flags(unsigned long flags, const struct clone_args *args, const struct child *child)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, args->pidfd, 0, 0);
    if (pid == 0) {
        drop_handlers();
        if (child->s->cgroup_fd >= 0)
            enter_cgroup(child);
        child_start(child);
    }
    return pid;
}

/* In a sandbox of systemd that restricts namespaces there is no clone3, because it cannot look into its
 * arguments. Emulators of another processor (qemu) know no CLONE_PIDFD either: a child that is not waited for
 * keeps its number, so the descriptor may come later. */
static long clone_the_old_way(const struct clone_args *args, const struct child *child)
{
    long pid = clone_with_flags(CLONE_PIDFD, args, child);
    if (pid >= 0 || errno != EINVAL)
        return pid;
    pid = clone_with_flags(0, args, child);
    if (pid > 0)
        *(int *)(uintptr_t)args->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return pid;
}

static long clone_a_copy(struct clone_args *args, const struct child *child)
{
    long pid = syscall(SYS_clone3, args, sizeof *args);
    if (pid == 0)
        child_start(child);
    return pid;
}

#ifdef SPAWN_COPIES_MEMORY
#define clone_and_start clone_a_copy
#else
/* To copy our page tables for a child that executes another program at once costs a quarter of the whole
 * start, and more with every page of ours. So the child borrows our memory, on a stack of its own, and we
 * stand still until its execve (as vfork does). No C function can return twice there; hence these
 * instructions. With a sanitizer, or on another processor, the pages are
 * copied. */
static long clone_and_start(struct clone_args *args, const struct child *child)
{
    static char stack[32 * 1024]
        __attribute__((aligned(64))); /* used by one child at a time: we stand still meanwhile */
    register const struct child *argument __asm__("r12") = child;
    register void (*function)(const struct child *) __asm__("r13") = child_start;
    long pid = SYS_clone3;
    args->flags |= CLONE_VM | CLONE_VFORK;
    args->stack = (uint64_t)(uintptr_t)stack;
    args->stack_size = sizeof stack;
    __asm__ volatile("syscall\n\t"
                     "testq %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xorl %%ebp, %%ebp\n\t"
                     "movq %%r12, %%rdi\n\t"
                     "callq *%%r13\n"
                     "1:"
                     : "+a"(pid)
                     : "D"(args), "S"(sizeof *args), "r"(argument), "r"(function)
                     : "rcx", "r11", "memory", "cc");
    if (pid < 0) {
        errno = (int)-pid;
        pid = -1;
    }
    return pid;
}
#endif

static pid_t clone_child(const struct child *child, int *pidfd)
{
    const int cgroup_fd = child->s->cgroup_fd;
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_CLEAR_SIGHAND | (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = cgroup_fd >= 0 ? (uint64_t)cgroup_fd : 0,
    };
    /* A traced child stops at any signal; we would stand still with it. */
    long pid = child->s->stop_at_exec ? clone_a_copy(&args, child) : clone_and_start(&args, child);
    if (pid < 0 && errno == ENOSYS)
        pid = clone_the_old_way(&args, child);
    return (pid_t)pid;
}

/* We trace the child up to its execve, at which it stops. From there it is stopped like by SIGSTOP, and
 * not traced any more: a debugger can take it, or SIGCONT lets it go on. One that ended first is left to be
 * reaped. */
static void stop_after_exec(pid_t pid)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) < 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED)
            return;
        /* As the kernel says it of an execve; else a signal from outside came before. */
        bool executed = info.si_status == SIGTRAP;
        if (ptrace(executed ? PTRACE_DETACH : PTRACE_CONT, pid, NULL,
                   (void *)(intptr_t)(executed ? SIGSTOP : info.si_status)) < 0 ||
            executed)
            return;
    }
}

/* Waits until the child has executed its program or said why not. */
static int wait_for_exec(const struct spawn *s, int fd, struct spawned *out, struct err *e)
{
    struct spawn_failure f;
    ssize_t n = -1;
    do
        n = read(fd, &f, sizeof f);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return 0;
    waitpid(out->pid, NULL, 0);
    close(out->pidfd);
    if (n != (ssize_t)sizeof f)
        return err_sys(e, n < 0 ? errno : EIO, "cannot start %s", s->path);
    return spawn_failure_err(&f, s, e);
}

void spawn_raise_descriptor_limit(rlim_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (wanted > limit.rlim_max)
        wanted = limit.rlim_max;
    if (limit.rlim_cur >= wanted)
        return;
    if (!limit_was_raised)
        childrens_limit = limit;
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        limit_was_raised = true;
}

int spawn_inherited_limit(int resource, struct rlimit *limit)
{
    if (resource == RLIMIT_NOFILE && limit_was_raised) {
        *limit = childrens_limit;
        return 0;
    }
    return getrlimit((__rlimit_resource_t)resource, limit);
}

/* Of clone3, by its errno. */
static int say_why_not(const struct spawn *s, int errnum, struct err *e)
{
    if (errnum == EAGAIN)
        return err_sys(e, errnum,
                       "cannot start %s (RLIMIT_NPROC, a cgroup's pids.max, kernel.pid_max or threads-max)",
                       s->path);
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", s->cgroup_fd);
    char cgroup[PATH_MAX];
    ssize_t n = s->cgroup_fd >= 0 ? readlink(link, cgroup, sizeof cgroup) : -1;
    if (n > 0 && (errnum == ENOENT || errnum == ENODEV))
        return err_sys(e, errnum, "cannot start %s in cgroup %.*s", s->path, (int)n, cgroup);
    return err_sys(e, errnum, "cannot start %s: clone3", s->path);
}

int spawn_start(const struct spawn *s, struct spawned *out, struct err *e)
{
    int report[2] = {-1, -1};
    pid_t parent = getpid();
    if (s->report_fd < 0 && pipe2(report, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot start %s: pipe", s->path);
    sigset_t all;
    /* A handler of ours must not run in the child before child_signals() took it away. */
    sigfillset(&all);
    sigset_t before;
    sigprocmask(SIG_SETMASK, &all, &before);
    out->pidfd = -1;
    struct child child = {s, s->report_fd < 0 ? report[1] : s->report_fd, parent};
    out->pid = clone_child(&child, &out->pidfd);
    int saved = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (report[1] >= 0)
        close(report[1]);
    int rc = 0;
    if (s->stop_at_exec && out->pid > 0)
        stop_after_exec(out->pid);
    if (out->pid < 0)
        rc = say_why_not(s, saved, e);
    else if (report[0] >= 0)
        rc = wait_for_exec(s, report[0], out, e);
    if (report[0] >= 0)
        close(report[0]);
    return rc;
}

int spawn_failure_err(const struct spawn_failure *f, const struct spawn *s, struct err *e)
{
    if (f->step == SPAWN_CHDIR)
        return err_set(e, ERR_HOST, "cannot change to working directory %s: %s", s->dir, strerror(f->errnum));
    if (f->step == SPAWN_BIND)
        return err_set(e, ERR_HOST, "cannot bind rank %u to its processors: %s", f->id, strerror(f->errnum));
    if (f->step == SPAWN_STOP)
        return err_set(e, ERR_HOST, "cannot stop rank %u before its first instruction: ptrace: %s", f->id,
                       strerror(f->errnum));
    if (f->step == SPAWN_CGROUP)
        return err_set(e, ERR_SYSTEM, "cannot put %s into the job's cgroup: %s", s->path,
                       strerror(f->errnum));
    if (f->step != SPAWN_EXEC)
        return err_set(e, ERR_SYSTEM, "cannot prepare descriptors for %s: %s", s->path, strerror(f->errnum));
    if (f->errnum == ENOENT && access(s->path, F_OK) == 0)
        return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: its interpreter or loader does not exist",
                       s->path);
    if (f->errnum == ENOENT || f->errnum == ENOTDIR)
        return err_set(e, ERR_NOT_FOUND, "command not found: %s", s->path);
    return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: %s", s->path, strerror(f->errnum));
}

/* 1: an executable file; 0: nothing there; -1: something there that cannot be executed, *e filled. */
static int examine_program(const char *path, const char *command, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: %s", command, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: it is a directory", command);
    if (access(path, X_OK) < 0)
        return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: %s", command, strerror(errno));
    return 1;
}

static int find_with_slash(const char *command, const char *dir, char *out, size_t size, struct err *e)
{
    bool relative = command[0] != '/' && dir;
    int n = relative ? snprintf(out, size, "%s/%s", dir, command) : snprintf(out, size, "%s", command);
    if (n < 0 || (size_t)n >= size)
        return err_set(e, ERR_NOT_FOUND, "command not found: its path is too long");
    int found = examine_program(out, command, e);
    if (found == 0)
        return err_set(e, ERR_NOT_FOUND, "command not found: %s", command);
    return found < 0 ? -1 : 0;
}

int spawn_find(const char *command, const char *path, const char *dir, char *out, size_t size, struct err *e)
{
    struct err unusable = ERR_INIT;
    if (!command[0])
        return err_set(e, ERR_NOT_FOUND, "command not found: its name is empty");
    if (strchr(command, '/'))
        return find_with_slash(command, dir, out, size, e);
    if (!path)
        path = "/usr/local/bin:/usr/bin:/bin";
    for (const char *p = path;; p++) {
        size_t len = strcspn(p, ":");
        const char *in = len ? p : ".";
        int inlen = len ? (int)len : 1;
        int n = in[0] != '/' && dir ? snprintf(out, size, "%s/%.*s/%s", dir, inlen, in, command)
                                    : snprintf(out, size, "%.*s/%s", inlen, in, command);
        struct err one = ERR_INIT;
        int found = n > 0 && (size_t)n < size ? examine_program(out, command, &one) : 0;
        if (found > 0)
            return 0;
        if (found < 0 && !unusable.code)
            unusable = one;
        p += len;
        if (!*p)
            break;
    }
    if (unusable.code)
        return *e = unusable, -1;
    return err_set(e, ERR_NOT_FOUND, "command not found: %s (PATH is %s)", command, path);
}
