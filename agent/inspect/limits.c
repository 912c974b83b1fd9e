#include "agent/inspect/limits.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CAP_SYS_ADMIN_BIT    21
#define CAP_SYS_RESOURCE_BIT 24
/* Pipes of a worker, and what the session itself opens while it starts one. */
#define DESCRIPTORS_EACH 3
#define DESCRIPTORS_OWN  16
/* So few processes are nearly always to be had, and a clone that fails says why. To look costs a tenth of
 * what the whole start of two workers does. */
#define LIMITS_FEW 8
/* The engine, and what a moment needs. */
#define PROCESSES_OWN 4

/* ---- pure ---------------------------------------------------------------------------------------------- */

bool limit_is_near(const struct limit *l, uint32_t ranks)
{
    uint64_t need = l->descriptors ? (uint64_t)ranks * DESCRIPTORS_EACH : ranks;
    return l->limit != UINT64_MAX && (ranks == 0 || l->used + need > l->limit);
}

uint64_t limits_number(const char *text)
{
    return isdigit((unsigned char)*text) ? strtoull(text, NULL, 10) : UINT64_MAX;
}

uint64_t limits_tasks(const char *loadavg)
{
    const char *slash = strchr(loadavg, '/');
    return slash && isdigit((unsigned char)slash[1]) ? strtoull(slash + 1, NULL, 10) : 0;
}

/* The text after "NAME:" at the beginning of a line; NULL when there is no such line. */
static const char *find_field(const char *status, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = status; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            return line + len + 1;
    return NULL;
}

uint64_t limits_threads_of(const char *status, uint64_t uid)
{
    const char *owner = find_field(status, "Uid"), *threads = find_field(status, "Threads");
    return owner && threads && strtoull(owner, NULL, 10) == uid ? strtoull(threads, NULL, 10) : 0;
}

bool limits_exempt(const char *status)
{
    const char *effective = find_field(status, "CapEff");
    uint64_t caps = effective ? strtoull(effective, NULL, 16) : 0;
    return caps & (1ULL << CAP_SYS_ADMIN_BIT | 1ULL << CAP_SYS_RESOURCE_BIT);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static uint64_t read_number(const char *file)
{
    char *text = containment_read(file);
    uint64_t number = text ? limits_number(text) : UINT64_MAX;
    free(text);
    return number;
}

static void add_limit(struct limits *l, uint32_t ranks, const struct limit *limit)
{
    if (l->count < LIMITS_MAX && limit_is_near(limit, ranks))
        l->item[l->count++] = *limit;
}

static uint64_t open_descriptors(void)
{
    uint64_t count = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        count++;
    if (d)
        closedir(d);
    return count;
}

static void read_descriptors(struct limits *l, uint32_t ranks)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_max == RLIM_INFINITY)
        return;
    struct limit one = {.descriptors = true,
                        .limit = r.rlim_max,
                        .used = open_descriptors() + DESCRIPTORS_OWN,
                        .name = "RLIMIT_NOFILE, ulimit -Hn",
                        .hint = "raise the hard limit (ulimit -Hn, limits.conf or LimitNOFILE=), "
                                "or use more hosts"};
    add_limit(l, ranks, &one);
}

/* All threads that run for our user. */
static uint64_t count_own_tasks(void)
{
    uint64_t count = 0;
    char file[64];
    DIR *d = opendir("/proc");
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(file, sizeof file, "/proc/%.20s/status", entry->d_name);
        char *status = containment_read(file);
        count += status ? limits_threads_of(status, getuid()) : 0;
        free(status);
    }
    if (d)
        closedir(d);
    return count;
}

static bool is_exempt(void)
{
    char *status = containment_read("/proc/self/status");
    bool exempt = status && limits_exempt(status);
    free(status);
    return exempt;
}

/* To count our own costs a look at every process: only when all of the machine's could be too many. */
static void read_user(struct limits *l, uint32_t ranks, uint64_t tasks)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NPROC, &r) < 0 || r.rlim_cur == RLIM_INFINITY || is_exempt())
        return;
    struct limit one = {.limit = r.rlim_cur,
                        .used = tasks + PROCESSES_OWN,
                        .name = "RLIMIT_NPROC, ulimit -u",
                        .hint = "raise the limit on the user's processes (ulimit -u, limits.conf or "
                                "LimitNPROC=), or use more hosts"};
    if (!limit_is_near(&one, ranks))
        return;
    one.used = count_own_tasks() + PROCESSES_OWN;
    add_limit(l, ranks, &one);
}

static void read_kernel(struct limits *l, uint32_t ranks, uint64_t tasks)
{
    static const char *const names[][2] = {{"kernel.pid_max", "raise it with sysctl, or use more hosts"},
                                           {"kernel.threads-max", "raise it with sysctl, or use more hosts"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[64];
        snprintf(file, sizeof file, "/proc/sys/kernel/%s", strchr(names[i][0], '.') + 1);
        struct limit one = {.limit = read_number(file), .used = tasks + PROCESSES_OWN, .hint = names[i][1]};
        snprintf(one.name, sizeof one.name, "%s", names[i][0]);
        add_limit(l, ranks, &one);
    }
}

/* The cgroup whose pids.max this path is, and all above it. */
static void read_cgroups(struct limits *l, uint32_t ranks, char *path)
{
    for (;;) {
        char file[CONTAINMENT_PATH_MAX + 16];
        char *slash = strrchr(path, '/'); /* before pids.max */
        struct limit one = {.hint = "raise pids.max of that cgroup, or use more hosts"};
        if (!slash || slash == path)
            return;
        one.limit = read_number(path);
        *slash = '\0';
        snprintf(file, sizeof file, "%s/pids.current", path);
        one.used = read_number(file);
        snprintf(one.name, sizeof one.name, "pids.max of cgroup %s", path);
        if (one.used != UINT64_MAX) {
            one.used += PROCESSES_OWN;
            add_limit(l, ranks, &one);
        }
        slash = strrchr(path, '/');
        if (!slash || slash == path)
            return;
        snprintf(slash, (size_t)CONTAINMENT_PATH_MAX - (size_t)(slash - path), "/pids.max");
    }
}

static void read_processes(struct limits *l, uint32_t ranks)
{
    char path[CONTAINMENT_PATH_MAX];
    char *loadavg = containment_read("/proc/loadavg");
    const char *self, *mounts;
    bool known = containment_texts(&self, &mounts);
    uint64_t tasks = loadavg ? limits_tasks(loadavg) : 0;
    read_user(l, ranks, tasks);
    if (known && containment_place_v1(self, mounts, "pids", "pids.max", path, sizeof path) == 0)
        read_cgroups(l, ranks, path);
    if (known && containment_place(self, mounts, "pids.max", path, sizeof path) == 0)
        read_cgroups(l, ranks, path);
    read_kernel(l, ranks, tasks);
    free(loadavg);
}

void limits_read(struct limits *l, uint32_t ranks)
{
    l->count = 0;
    read_descriptors(l, ranks);
    if (ranks == 0 || ranks > LIMITS_FEW)
        read_processes(l, ranks);
}
