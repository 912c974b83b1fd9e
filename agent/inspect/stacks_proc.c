#include "agent/inspect/stacks_proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/worker/descendants.h"
#include "common/base/file.h"

#define CHILDREN_MAX  16
#define DEPTH_MAX     16
#define ANCESTORS_MAX 64

bool inspect_parse_stat(const char *text, long ticks, struct inspected_process *out)
{
    uint64_t user, system;
    int64_t child_user, child_system; /* of children that were waited for */
    /* The name stands in parentheses and may hold anything, parentheses too: the last one counts. */
    const char *open = strchr(text, '('), *end = strrchr(text, ')');
    if (!open || !end || end < open || ticks <= 0)
        return false;
    out->policy = out->cpu = 0; /* stand behind the others, and are missing in none but a cut text */
    if (sscanf(end + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64
               " %*d %d %*d %*d %" SCNu64 " %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u"
               " %*d %u %*u %u",
               &out->state, &user, &system, &child_user, &child_system, &out->nice, &out->start, &out->cpu,
               &out->policy) < 7)
        return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - open - 1), open + 1);
    out->cpu_ms = (user + system + (uint64_t)(child_user + child_system)) * 1000 / (uint64_t)ticks;
    return true;
}

const char *inspect_state_word(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "uninterruptible";
    case 'T':
        return "stopped";
    case 't':
        return "traced";
    case 'I':
        return "idle";
    case 'Z':
    case 'X':
    case 'x':
        return "ended";
    default:
        return "in an unknown state";
    }
}

/* The system calls in which programs are found when they hang. */
static const struct {
    long number;
    const char *name;
    bool for_children;
} calls[] = {
    {SYS_wait4, "wait4", true},
    {SYS_waitid, "waitid", true},
    {SYS_rt_sigsuspend, "rt_sigsuspend", true},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait", true},
    {SYS_read, "read", false},
    {SYS_write, "write", false},
    {SYS_readv, "readv", false},
    {SYS_writev, "writev", false},
    {SYS_pread64, "pread64", false},
    {SYS_pwrite64, "pwrite64", false},
    {SYS_openat, "openat", false},
    {SYS_fsync, "fsync", false},
    {SYS_fdatasync, "fdatasync", false},
    {SYS_ioctl, "ioctl", false},
    {SYS_flock, "flock", false},
    {SYS_fcntl, "fcntl", false},
    {SYS_ppoll, "ppoll", false},
    {SYS_pselect6, "pselect6", false},
    {SYS_epoll_pwait, "epoll_pwait", false},
    {SYS_futex, "futex", false},
    {SYS_nanosleep, "nanosleep", false},
    {SYS_clock_nanosleep, "clock_nanosleep", false},
    {SYS_recvfrom, "recvfrom", false},
    {SYS_recvmsg, "recvmsg", false},
    {SYS_sendto, "sendto", false},
    {SYS_sendmsg, "sendmsg", false},
    {SYS_connect, "connect", false},
    {SYS_accept, "accept", false},
    {SYS_accept4, "accept4", false},
    {SYS_restart_syscall, "a call that a stop has interrupted", false},
    {SYS_clone, "clone", true}, /* vfork waits until the child executes a program */
#ifdef SYS_clone3
    {SYS_clone3, "clone3", true},
#endif
#ifdef SYS_vfork
    {SYS_vfork, "vfork", true},
#endif
#ifdef SYS_poll
    {SYS_poll, "poll", false},
    {SYS_select, "select", false},
    {SYS_epoll_wait, "epoll_wait", false},
    {SYS_pause, "pause", false},
    {SYS_open, "open", false},
#endif
};

bool inspect_parse_wait(const char *syscall_text, const char *wchan, char *out, size_t size)
{
    char name[32] = "", *end;
    char function[48] = "";
    bool for_children = false;
    long number = strtol(syscall_text, &end, 10);
    if (end != syscall_text && *end == ' ' && number >= 0)
        snprintf(name, sizeof name, "system call %ld", number);
    for (size_t i = 0; name[0] && i < sizeof calls / sizeof *calls; i++) {
        if (calls[i].number != number)
            continue;
        snprintf(name, sizeof name, "%s", calls[i].name);
        for_children = calls[i].for_children;
    }
    if (wchan[0] && strcmp(wchan, "0") != 0)
        snprintf(function, sizeof function, "%.*s", (int)strcspn(wchan, ".\n"), wchan); /* f.isra.0 is f */
    if (!name[0])
        for_children = strcmp(function, "do_wait") == 0;
    if (name[0] && function[0])
        snprintf(out, size, "%s (%s)", name, function);
    else
        snprintf(out, size, "%s%s", name, function);
    return for_children;
}

/* Empty when it cannot be read. */
static void read_file(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    (void)file_read(path, 0, text, size);
}

bool inspect_read(pid_t pid, struct inspected_process *out, bool *for_children)
{
    char text[1024], wchan[64];
    *out = (struct inspected_process){.pid = pid, .call = -1};
    *for_children = false;
    read_file(pid, "stat", text, sizeof text);
    if (!inspect_parse_stat(text, sysconf(_SC_CLK_TCK), out) || out->state == 'Z' || out->state == 'X')
        return false;
    if (out->state != 'S' && out->state != 'D')
        return true; /* it waits for nothing that would be a system call's */
    read_file(pid, "syscall", text, sizeof text);
    read_file(pid, "wchan", wchan, sizeof wchan);
    *for_children = inspect_parse_wait(text, wchan, out->waits, sizeof out->waits);
    unsigned long long argument[2];
    if (sscanf(text, "%ld %llx %llx", &out->call, &argument[0], &argument[1]) == 3) {
        out->argument[0] = argument[0];
        out->argument[1] = argument[1];
    }
    return true;
}

static uint64_t read_swapped(pid_t pid)
{
    char text[4096];
    unsigned long long kib = 0;
    read_file(pid, "status", text, sizeof text);
    const char *at = strstr(text, "\nVmSwap:");
    return at && sscanf(at, "\nVmSwap: %llu", &kib) == 1 ? kib : 0;
}

static size_t find_processes(pid_t pid, struct inspected_process *out, size_t max, unsigned depth)
{
    pid_t child[CHILDREN_MAX];
    bool for_children;
    size_t found = 0;
    if (max == 0 || !inspect_read(pid, out, &for_children))
        return 0;
    struct inspected_process self = *out;
    size_t count = for_children && depth < DEPTH_MAX ? descendants_children(pid, child, CHILDREN_MAX) : 0;
    for (size_t i = 0; i < count; i++)
        found += find_processes(child[i], out + found, max - found, depth + 1);
    if (found > 0)
        return found;
    *out = self;
    out->swapped_kib = read_swapped(pid);
    return 1;
}

size_t inspect_find(pid_t worker, struct inspected_process *out, size_t max)
{
    return find_processes(worker, out, max, 0);
}

/* 0: it has gone. */
static pid_t read_parent(pid_t pid)
{
    char text[1024];
    int parent = 0;
    read_file(pid, "stat", text, sizeof text);
    const char *end = strrchr(text, ')');
    return end && sscanf(end, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* It sleeps, and not until its children end. */
static bool has_other_business(pid_t pid)
{
    struct inspected_process p;
    bool for_children;
    return inspect_read(pid, &p, &for_children) && p.state == 'S' && !for_children;
}

/* Is the process the worker, or below it? *leads: all on the way sleep only until their children end. */
static bool is_below(pid_t process, pid_t worker, bool *leads)
{
    pid_t at = process;
    *leads = true;
    for (int depth = 0; at > 1 && at != worker && depth < ANCESTORS_MAX; depth++) {
        at = read_parent(at);
        *leads = *leads && !(at > 1 && has_other_business(at));
    }
    return at == worker;
}

pid_t inspect_root(pid_t worker, pid_t caller)
{
    bool leads;
    return caller > 1 && kill(caller, 0) == 0 && !is_below(caller, worker, &leads) ? caller : worker;
}

pid_t inspect_subject(pid_t worker, pid_t caller)
{
    struct inspected_process p;
    bool leads;
    if (caller <= 1 || !inspect_read(caller, &p, &leads)) /* it is a zombie, perhaps */
        return worker;
    return is_below(caller, worker, &leads) && leads ? worker : caller;
}
