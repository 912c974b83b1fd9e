/* Processor time of the cgroups of a process: how long their limits have held its processes back, and their
 * weights beside others. */
#include "agent/inspect/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/containment.h"
#include "common/base/clock.h"
#include "common/base/file.h"

uint64_t throttle_parse(const char *text)
{
    unsigned long long n;
    const char *us = strstr(text, "throttled_usec "), *ns = strstr(text, "throttled_time ");
    if (us && sscanf(us, "throttled_usec %llu", &n) == 1)
        return n / 1000;
    return ns && sscanf(ns, "throttled_time %llu", &n) == 1 ? n / NSEC_PER_MSEC : 0;
}

unsigned weight_parse(const char *text, unsigned usual)
{
    unsigned long weight;
    if (sscanf(text, "%lu", &weight) != 1 || weight >= usual)
        return 100;
    return weight * 100 >= usual ? (unsigned)(weight * 100 / usual) : 1; /* 0: of cpu.idle */
}

/* ---- all cgroups of a process -------------------------------------------------------------------------- */

/* A file of each of them, and what is known so far. */
struct walk {
    const char *name, *name_v1; /* of the file in each version of cgroups */
    void (*note)(struct walk *w, const char *text, bool v1);
    uint64_t most;
    unsigned least;
};

/* The cgroup of that file and all above it. */
static void read_upwards(struct walk *w, char *path, bool v1)
{
    for (char *slash = strrchr(path, '/'); slash && slash != path; slash = strrchr(path, '/')) {
        char file[CONTAINMENT_PATH_MAX + 16], text[2048];
        *slash = '\0'; /* before the file's name, then before the cgroup's */
        snprintf(file, sizeof file, "%s/%s", path, v1 ? w->name_v1 : w->name);
        if (file_read(file, 0, text, sizeof text) > 0)
            w->note(w, text, v1);
    }
}

static void walk_cgroups(struct walk *w, pid_t pid)
{
    static char *mounts; /* kept: where cgroups are mounted does not change while a session lives */
    char file[64], path[CONTAINMENT_PATH_MAX];
    snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
    char *own = containment_read(file);
    if (!mounts)
        mounts = containment_read("/proc/self/mountinfo");
    if (own && mounts && containment_place(own, mounts, w->name, path, sizeof path) == 0)
        read_upwards(w, path, false);
    if (own && mounts && containment_place_v1(own, mounts, "cpu", w->name_v1, path, sizeof path) == 0)
        read_upwards(w, path, true); /* one of both versions has the processors */
    free(own);
}

static void note_throttled(struct walk *w, const char *text, bool v1)
{
    uint64_t ms = throttle_parse(text);
    (void)v1;
    w->most = ms > w->most ? ms : w->most;
}

uint64_t throttled_ms(pid_t pid)
{
    struct walk w = {.name = "cpu.stat", .name_v1 = "cpu.stat", .note = note_throttled};
    walk_cgroups(&w, pid);
    return w.most;
}

static void note_weight(struct walk *w, const char *text, bool v1)
{
    unsigned percent = weight_parse(text, v1 ? 1024 : 100);
    w->least = percent < w->least ? percent : w->least;
}

unsigned cgroup_weight(pid_t pid)
{
    struct walk w = {.name = "cpu.weight", .name_v1 = "cpu.shares", .note = note_weight, .least = 100};
    walk_cgroups(&w, pid);
    return w.least < 100 ? w.least : 0;
}
