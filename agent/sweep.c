/* Two ways to find a worker whose supervisors are dead: the job's cgroup, and HVD_JOB in its environment,
 * which its children inherit. A process that cleaned its environment and was in no cgroup is not found:
 * nothing tells it from the user's others. */
#include "agent/sweep.h"

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

#include "agent/job_dir.h"
#include "agent/supervisor/containment.h"
#include "common/clock.h"
#include "common/log.h"

#define SWEEP_MS 5000

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

int sweep_job(const char *job)
{
    struct err e = ERR_INIT;
    char variable[128];
    uint64_t deadline = clock_now() + SWEEP_MS * NSEC_PER_MSEC;
    if (job_dir_check_name(job, &e) < 0) {
        fprintf(stderr, "hvdagent: %s\n", e.text);
        return 2;
    }
    snprintf(variable, sizeof variable, "HVD_JOB=%s", job);
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
    job_dir_sweep(job);
    return left > 0;
}
