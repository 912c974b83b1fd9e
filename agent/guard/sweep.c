/* While session or guard live, they are asked to end the job, which gives the workers their grace; what is
 * left after it, or when they are dead, is killed.
 *
 * Two ways to find a worker whose supervisors are dead: the job's cgroup, and HVD_JOB in its environment,
 * which its children inherit. A process that cleaned its environment and was in no cgroup is not found:
 * nothing tells it from the user's others. */
#include "agent/guard/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/guard/job_dir.h"
#include "agent/guard/job_record.h"
#include "agent/worker/containment.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define SWEEP_MS       5000 /* for all that comes after the grace */
#define GUARD_MS       2500 /* of it, for the guard to clear away a killed session */
#define EXTRA_MS       1000 /* a session may take so long beyond its grace */
#define SUPERVISED_MAX 64   /* sessions of one job on one host: more than one only in tests */

/* ---- those who still supervise ------------------------------------------------------------------------- */

struct supervised {
    size_t count;
    struct pollfd fd[2 * SUPERVISED_MAX]; /* pidfds: of a session, of its guard; -1: dead */
    uint32_t grace_ms;                    /* the longest */
};

static void hold_supervisors(void *ctx, int directory)
{
    struct supervised *s = ctx;
    struct job_note note;
    if (s->count + 2 > 2 * SUPERVISED_MAX || job_note_read(directory, &note) < 0)
        return;
    s->fd[s->count] = (struct pollfd){.fd = job_note_hold(&note.session), .events = POLLIN};
    s->fd[s->count + 1] = (struct pollfd){.fd = job_note_hold(&note.guard), .events = POLLIN};
    s->count += 2;
    if (note.grace_ms > s->grace_ms)
        s->grace_ms = note.grace_ms;
}

/* The signal to every session (first 0) or guard (1); one that was stopped goes on, and can act on it. */
static void signal_to(struct supervised *s, size_t first, int number)
{
    for (size_t i = first; i < s->count; i += 2) {
        if (s->fd[i].fd < 0)
            continue;
        (void)syscall(SYS_pidfd_send_signal, s->fd[i].fd, number, NULL, 0);
        (void)syscall(SYS_pidfd_send_signal, s->fd[i].fd, SIGCONT, NULL, 0);
    }
}

/* True when all have ended. */
static bool wait_for_them(struct supervised *s, uint64_t deadline)
{
    for (;;) {
        bool living = false;
        for (size_t i = 0; i < s->count; i++) {
            if (s->fd[i].fd >= 0 && s->fd[i].revents) {
                close(s->fd[i].fd);
                s->fd[i].fd = -1;
            }
            living |= s->fd[i].fd >= 0;
        }
        uint64_t now = clock_now();
        if (!living || now >= deadline)
            return !living;
        uint64_t ms = (deadline - now) / NSEC_PER_MSEC + 1;
        (void)poll(s->fd, (nfds_t)s->count, ms < 60000 ? (int)ms : 60000);
    }
}

/* A guard whose session is uninterruptible stays: it clears away what that leaves when it goes. */
static void kill_guards(struct supervised *s)
{
    for (size_t i = 0; i < s->count; i += 2)
        if (s->fd[i].fd < 0 && s->fd[i + 1].fd >= 0)
            (void)syscall(SYS_pidfd_send_signal, s->fd[i + 1].fd, SIGKILL, NULL, 0);
}

/* Returns the number of them that cannot be ended. */
static unsigned end_supervised(const char *job, bool now, uint64_t *deadline)
{
    struct supervised s = {0};
    unsigned left = 0;
    uint64_t patience = 0;
    job_dir_each(job, hold_supervisors, &s);
    signal_to(&s, 1, SIGCONT);
    signal_to(&s, 0, SIGTERM);
    if (!now && s.count > 0)
        patience = ((uint64_t)s.grace_ms + EXTRA_MS) * NSEC_PER_MSEC;
    bool ended = wait_for_them(&s, clock_now() + patience);
    *deadline = clock_now() + SWEEP_MS * NSEC_PER_MSEC;
    if (!ended) { /* the guard ends what the session leaves */
        signal_to(&s, 0, SIGKILL);
        ended = wait_for_them(&s, clock_now() + GUARD_MS * NSEC_PER_MSEC);
    }
    if (!ended) {
        kill_guards(&s);
        (void)wait_for_them(&s, clock_now() + EXTRA_MS * NSEC_PER_MSEC);
    }
    for (size_t i = 0; i < s.count; i++) {
        if (s.fd[i].fd < 0)
            continue;
        left++;
        close(s.fd[i].fd);
    }
    if (left > 0)
        log_error("%u supervising processes of the job cannot be killed", left);
    return left;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

/* Has the process `NAME=value` in its environment? A zombie has none. */
static bool has_variable(int proc, const char *variable)
{
    int fd = openat(proc, "environ", O_RDONLY | O_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    char *entry = NULL;
    size_t size = 0;
    bool found = false;
    while (f && !found && getdelim(&entry, &size, '\0', f) > 0)
        found = strcmp(entry, variable) == 0;
    free(entry);
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return found;
}

/* Kills one process if it is of the job. It is held by its pidfd meanwhile, so another that takes over its
 * number is safe. */
static bool kill_if_ours(pid_t pid, const char *variable, bool name_it)
{
    char path[64];
    struct stat st;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ours = proc >= 0 && fstat(proc, &st) == 0 && st.st_uid == geteuid() && has_variable(proc, variable);
    if (ours && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0 && name_it)
        log_error("process %d cannot be killed", (int)pid);
    if (proc >= 0)
        close(proc);
    close(pidfd);
    return ours;
}

static unsigned kill_by_variable(const char *variable, bool name_them)
{
    DIR *d = opendir("/proc");
    unsigned found = 0;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && pid != getpid())
            found += kill_if_ours((pid_t)pid, variable, name_them);
    }
    if (d)
        closedir(d);
    return found;
}

int sweep_job(const char *job, bool now)
{
    struct err e = ERR_INIT;
    char variable[128];
    uint64_t deadline;
    if (job_dir_check_name(job, &e) < 0) {
        fprintf(stderr, "hvdagent: %s\n", e.text);
        return 2;
    }
    snprintf(variable, sizeof variable, "HVD_JOB=%s", job);
    unsigned supervising = end_supervised(job, now, &deadline);
    containment_sweep(job, true);
    /* A killed process needs a moment to go, and one that was forking may have left a child. They are not our
     * children, so there is no event. */
    int wait_ms = 1;
    unsigned left = kill_by_variable(variable, false);
    while (left > 0 && clock_now() < deadline) {
        (void)poll(NULL, 0, wait_ms);
        wait_ms = wait_ms < 100 ? 2 * wait_ms : 100;
        left = kill_by_variable(variable, false);
    }
    if (left > 0)
        (void)kill_by_variable(variable, true);
    containment_sweep(job, true);
    job_dir_sweep(job, supervising > 0);
    return left > 0 || supervising > 0;
}
