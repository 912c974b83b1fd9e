#include "agent/inspect/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"

#define CPUS_MAX 4096u

/* false: the file is not there, or holds no number. */
static bool read_number(const char *cpus, unsigned cpu, const char *file, uint64_t *out)
{
    char path[256], text[32], *end;
    snprintf(path, sizeof path, "%s/cpu%u/%s", cpus, cpu, file);
    if (file_read(path, 0, text, sizeof text) <= 0)
        return false;
    *out = strtoull(text, &end, 10);
    return end != text && text[0] != '-';
}

/* The time is read only where there were events: most processors have none. */
static void add_counts(struct heat *h, const char *cpus, unsigned cpu, const char *part)
{
    char file[64];
    uint64_t events = 0, ms = 0;
    snprintf(file, sizeof file, "thermal_throttle/%s_throttle_count", part);
    if (!read_number(cpus, cpu, file, &events) || events == 0)
        return;
    snprintf(file, sizeof file, "thermal_throttle/%s_throttle_total_time_ms", part);
    h->ms = read_number(cpus, cpu, file, &ms) && ms > h->ms ? ms : h->ms;
    h->events += events;
}

struct heat heat_look(const char *cpus)
{
    struct heat h = {0};
    char path[256];
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++) {
        snprintf(path, sizeof path, "%s/cpu%u/thermal_throttle", cpus, cpu);
        if (access(path, F_OK) < 0)
            break; /* behind the last one; or the kernel counts nothing, and this is the first */
        add_counts(&h, cpus, cpu, "core");
        add_counts(&h, cpus, cpu, "package");
    }
    return h;
}

struct heat heat_of_job(void)
{
    static struct heat first;
    static bool looked;
    struct heat now = heat_look(HEAT_CPUS);
    first = looked ? first : now;
    looked = true;
    return (struct heat){now.events > first.events ? now.events - first.events : 0,
                         now.ms > first.ms ? now.ms - first.ms : 0};
}

unsigned heat_frequency(const char *cpus, unsigned cpu)
{
    uint64_t now, most;
    if (!read_number(cpus, cpu, "cpufreq/scaling_cur_freq", &now) ||
        !read_number(cpus, cpu, "cpufreq/cpuinfo_max_freq", &most) || most == 0)
        return 0;
    uint64_t percent = now < most ? now * 100 / most : 100;
    return percent > 0 ? (unsigned)percent : 1;
}
