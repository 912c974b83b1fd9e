#include "agent/inspect/usage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/worker/descendants.h"
#include "agent/inspect/stacks_proc.h"

#define PROCESSES_MAX 256 /* of a worker that are looked at */

/* -1 when it has gone. */
static int read_proc(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    return 0;
}

static struct usage usage_of_one(pid_t pid)
{
    char text[1024];
    struct inspected_process p;
    struct usage u = {0};
    unsigned long pages = 0;
    if (read_proc(pid, "stat", text, sizeof text) < 0 || !inspect_parse_stat(text, sysconf(_SC_CLK_TCK), &p))
        return u;
    u.state = p.state;
    u.cpu_ms = p.cpu_ms;
    if (read_proc(pid, "statm", text, sizeof text) == 0 && sscanf(text, "%*u %lu", &pages) == 1)
        u.memory_kib = (uint64_t)pages * ((uint64_t)sysconf(_SC_PAGESIZE) / 1024);
    return u;
}

struct usage usage_of(pid_t pid)
{
    pid_t list[PROCESSES_MAX] = {pid};
    struct usage sum = usage_of_one(pid);
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        size_t n = descendants_children(list[i], list + count, PROCESSES_MAX - count);
        for (size_t k = count; k < count + n; k++) {
            struct usage u = usage_of_one(list[k]);
            sum.cpu_ms += u.cpu_ms;
            sum.memory_kib += u.memory_kib;
        }
        count += n;
    }
    return sum;
}
