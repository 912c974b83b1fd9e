/* Limits of processor time: how long the cgroups of a process have held its processes back. */
#include "agent/inspect/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/containment.h"
#include "common/base/clock.h"
#include "common/base/file.h"

#define STAT "cpu.stat"

uint64_t throttle_parse(const char *text)
{
    unsigned long long n;
    const char *us = strstr(text, "throttled_usec "), *ns = strstr(text, "throttled_time ");
    if (us && sscanf(us, "throttled_usec %llu", &n) == 1)
        return n / 1000;
    return ns && sscanf(ns, "throttled_time %llu", &n) == 1 ? n / NSEC_PER_MSEC : 0;
}

/* The cgroup of that file and all above it. */
static uint64_t find_most(char *path)
{
    uint64_t most = 0;
    for (char *slash = strrchr(path, '/'); slash && slash != path; slash = strrchr(path, '/')) {
        char file[CONTAINMENT_PATH_MAX + sizeof STAT], text[2048];
        *slash = '\0'; /* before the file's name, then before the cgroup's */
        snprintf(file, sizeof file, "%s/%s", path, STAT);
        uint64_t ms = file_read(file, 0, text, sizeof text) > 0 ? throttle_parse(text) : 0;
        most = ms > most ? ms : most;
    }
    return most;
}

uint64_t throttled_ms(pid_t pid)
{
    static char *mounts; /* kept: where cgroups are mounted does not change while a session lives */
    char file[64], path[CONTAINMENT_PATH_MAX];
    uint64_t most = 0, old = 0;
    snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
    char *own = containment_read(file);
    if (!mounts)
        mounts = containment_read("/proc/self/mountinfo");
    if (own && mounts && containment_place(own, mounts, STAT, path, sizeof path) == 0)
        most = find_most(path);
    if (own && mounts && containment_place_v1(own, mounts, "cpu", STAT, path, sizeof path) == 0)
        old = find_most(path); /* one of both versions has the processors */
    free(own);
    return most > old ? most : old;
}
