#include "agent/inspect/usage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/inspect/stacks_proc.h"
#include "agent/worker/descendants.h"
#include "common/base/clock.h"
#include "common/base/file.h"

#define PROCESSES_MAX 256 /* of a worker that are looked at */
#define DELAY_MS      200 /* without a processor: before that, no weight is to blame */

/* False when it has gone. */
static bool read_proc(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    return file_read(path, 0, text, size) > 0;
}

static struct usage usage_of_one(pid_t pid)
{
    char text[1024];
    struct inspected_process p;
    struct usage u = {0};
    unsigned long pages = 0;
    if (!read_proc(pid, "stat", text, sizeof text) || !inspect_parse_stat(text, sysconf(_SC_CLK_TCK), &p))
        return u;
    u.state = p.state;
    u.cpu_ms = p.cpu_ms;
    u.nice = p.nice;
    u.policy = p.policy;
    u.cpu = p.cpu;
    if (read_proc(pid, "statm", text, sizeof text) && sscanf(text, "%*u %lu", &pages) == 1)
        u.memory_kib = (uint64_t)pages * ((uint64_t)sysconf(_SC_PAGESIZE) / 1024);
    unsigned long long delay_ns;
    if (read_proc(pid, "schedstat", text, sizeof text) && sscanf(text, "%*u %llu", &delay_ns) == 1)
        u.delay_ms = delay_ns / NSEC_PER_MSEC;
    const char *reads = read_proc(pid, "io", text, sizeof text) ? strstr(text, "\nread_bytes: ") : NULL;
    unsigned long long read_bytes;
    if (reads && sscanf(reads, " read_bytes: %llu", &read_bytes) == 1)
        u.read_kib = read_bytes / 1024;
    return u;
}

struct usage usage_of(pid_t pid)
{
    pid_t list[PROCESSES_MAX] = {pid};
    struct usage sum = usage_of_one(pid);
    size_t count = 1;
    sum.throttled_ms = sum.state ? throttled_ms(pid) : 0;
    sum.weight = sum.state && sum.delay_ms >= DELAY_MS ? cgroup_weight(pid) : 0;
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
