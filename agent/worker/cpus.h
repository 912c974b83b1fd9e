/* A set of logical processors by the kernel's numbers, as sched_setaffinity takes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPUS_MAX 8192 /* the kernel's own most */

struct cpus {
    uint64_t word[CPUS_MAX / 64];
};

static inline void cpus_add(struct cpus *set, uint32_t cpu)
{
    if (cpu < CPUS_MAX)
        set->word[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static inline bool cpus_has(const struct cpus *set, uint32_t cpu)
{
    return cpu < CPUS_MAX && (set->word[cpu / 64] >> cpu % 64 & 1);
}

/* to |= from */
void cpus_join(struct cpus *to, const struct cpus *from);
/* to &= from; false: nothing is left. */
bool cpus_keep(struct cpus *to, const struct cpus *from);
bool cpus_meet(const struct cpus *a, const struct cpus *b);
/* Is all of `a` in `b`? */
bool cpus_within(const struct cpus *a, const struct cpus *b);
size_t cpus_count(const struct cpus *set);
/* "0-3,8" */
const char *cpus_text(const struct cpus *set, char *text, size_t size);
