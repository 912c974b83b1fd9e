#include "agent/worker/rlimits.h"

#include <string.h>

void rlimits_take(struct rlimits *r, Hvd__ResourceLimit *const *wanted, size_t count,
                  void (*capped)(void *ctx, const char *name, uint64_t wanted, uint64_t hard), void *ctx)
{
    r->count = 0;
    for (size_t i = 0; i < count && r->count < RLIMITS_COUNT; i++) {
        const struct rlimit_name *name = rlimit_find(wanted[i]->name, strlen(wanted[i]->name));
        struct rlimit limit;
        if (!name || getrlimit((__rlimit_resource_t)name->resource, &limit) < 0)
            continue;
        rlim_t soft = wanted[i]->soft == UINT64_MAX ? RLIM_INFINITY : wanted[i]->soft;
        if (soft > limit.rlim_max)
            capped(ctx, name->name, wanted[i]->soft, limit.rlim_max);
        limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
        r->limit[r->count++] = (struct spawn_limit){name->resource, limit};
    }
}
