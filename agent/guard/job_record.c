#include "agent/guard/job_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/file.h"

#define FILE_NAME "supervisors"
#define TEXT_MAX  200
#define PROGRAM   "hvdagent"

/* A few bytes of a file that the kernel or we wrote at once; false when there are none or too many. */
static bool read_text(int at, const char *name, char *text, size_t size)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool ours = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
    ssize_t n = ours ? read(fd, text, size) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0 || (size_t)n >= size)
        return false;
    text[n] = '\0';
    return true;
}

/* The 22nd field of its stat is the start; the second, in parentheses, is its name. 0: there is no such
 * hvdagent of ours. */
static uint64_t start_of(pid_t pid)
{
    char path[64], text[1024];
    uint64_t started = 0;
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool there = proc >= 0 && fstat(proc, &st) == 0 && st.st_uid == geteuid() &&
                 read_text(proc, "stat", text, sizeof text);
    if (proc >= 0)
        close(proc);
    const char *name = there ? strchr(text, '(') : NULL;
    const char *rest = name ? strrchr(name, ')') : NULL;
    if (!rest || strncmp(name + 1, PROGRAM ")", sizeof PROGRAM) != 0)
        return 0;
    int n = sscanf(rest + 1,
                   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                   &started);
    return n == 1 ? started : 0;
}

int job_note_write(int directory, pid_t guard, uint32_t grace_ms, struct err *e)
{
    char text[TEXT_MAX];
    pid_t session = getpid();
    int n = snprintf(text, sizeof text, "guard %d %" PRIu64 "\nsession %d %" PRIu64 "\ngrace %" PRIu32 "\n",
                     (int)guard, start_of(guard), (int)session, start_of(session), grace_ms);
    int fd = openat(directory, FILE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write_all(fd, text, (size_t)n) == 0;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    return good ? 0 : err_sys(e, saved, "cannot write %s in the job's directory", FILE_NAME);
}

int job_note_read(int directory, struct job_note *note)
{
    char text[TEXT_MAX];
    int guard = 0, session = 0;
    memset(note, 0, sizeof *note);
    if (!read_text(directory, FILE_NAME, text, sizeof text) ||
        sscanf(text, "guard %d %" SCNu64 " session %d %" SCNu64 " grace %" SCNu32, &guard,
               &note->guard.started, &session, &note->session.started, &note->grace_ms) != 5)
        return -1;
    note->guard.pid = guard;
    note->session.pid = session;
    return 0;
}

int job_note_hold(const struct job_note_process *p)
{
    if (p->pid <= 1 || p->started == 0)
        return -1;
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd >= 0 && start_of(p->pid) == p->started)
        return fd; /* looked at after it was opened, so it is of this process */
    if (fd >= 0)
        close(fd);
    return -1;
}
