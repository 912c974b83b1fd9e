#include "agent/worker/processors.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/containment.h"

#define MILLI 1000

/* ---- pure ---------------------------------------------------------------------------------------------- */

uint64_t processors_quota_v1(const char *quota, const char *period)
{
    if (!isdigit((unsigned char)*quota) || !isdigit((unsigned char)*period)) /* -1: there is none */
        return PROCESSORS_UNLIMITED;
    uint64_t may = strtoull(quota, NULL, 10), of = strtoull(period, NULL, 10);
    return of == 0 || may > UINT64_MAX / MILLI ? PROCESSORS_UNLIMITED : may * MILLI / of;
}

uint64_t processors_quota(const char *max)
{
    const char *period = max + strcspn(max, " ");
    return processors_quota_v1(max, period + strspn(period, " "));
}

static const struct cpus *set_of(const struct cpus *allowed, const struct cpus *bound, size_t i)
{
    return bound && cpus_meet(&bound[i], &bound[i]) ? &bound[i] : allowed;
}

/* A set is that of the ranks that can go nowhere else. The largest one of all is looked at too, by `allowed`.
 */
static bool is_crowded(const struct cpus *allowed, const struct cpus *bound, size_t ranks,
                       const struct cpus *set)
{
    size_t inside = 0;
    for (size_t i = 0; i < ranks; i++)
        inside += cpus_within(set_of(allowed, bound, i), set);
    return inside > cpus_count(set);
}

bool processors_overlap(const struct cpus *allowed, const struct cpus *bound, size_t ranks)
{
    bool crowded = is_crowded(allowed, bound, ranks, allowed);
    for (size_t i = 0; bound && i < ranks && !crowded; i++)
        crowded = is_crowded(allowed, bound, ranks, set_of(allowed, bound, i));
    return crowded;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t read_quota(const char *cgroup, bool v1)
{
    char file[CONTAINMENT_PATH_MAX + 32];
    uint64_t quota = PROCESSORS_UNLIMITED;
    snprintf(file, sizeof file, "%s/%s", cgroup, v1 ? "cpu.cfs_quota_us" : "cpu.max");
    char *text = containment_read(file), *period = NULL;
    if (text && v1) {
        snprintf(file, sizeof file, "%s/cpu.cfs_period_us", cgroup);
        period = containment_read(file);
    }
    if (text && (period || !v1))
        quota = v1 ? processors_quota_v1(text, period) : processors_quota(text);
    free(text);
    free(period);
    return quota;
}

/* That of the cgroup in which `path` lies, and of all above it. */
static uint64_t read_quotas(char *path, bool v1)
{
    uint64_t quota = PROCESSORS_UNLIMITED;
    for (char *slash = strrchr(path, '/'); slash && slash != path; slash = strrchr(path, '/')) {
        *slash = '\0';
        quota = least_of(quota, read_quota(path, v1));
    }
    return quota;
}

static uint64_t find_quota(void)
{
    char path[CONTAINMENT_PATH_MAX];
    const char *self, *mounts;
    uint64_t quota = PROCESSORS_UNLIMITED;
    if (!containment_texts(&self, &mounts))
        return quota;
    if (containment_place(self, mounts, "cpu.max", path, sizeof path) == 0)
        quota = read_quotas(path, false);
    if (containment_place_v1(self, mounts, "cpu", "cpu.cfs_quota_us", path, sizeof path) == 0)
        quota = least_of(quota, read_quotas(path, true));
    return quota;
}

bool processors_are_short(const struct cpus *bound, size_t ranks)
{
    struct cpus allowed = {0};
    if (ranks < 2) /* it waits for nobody here */
        return false;
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)(void *)&allowed) == 0 &&
        processors_overlap(&allowed, bound, ranks))
        return true;
    uint64_t quota = find_quota();
    return quota != PROCESSORS_UNLIMITED && (uint64_t)ranks * MILLI > quota;
}
