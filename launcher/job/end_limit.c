#include "launcher/job/end_limit.h"

#include "common/base/clock.h"

#define PATIENCE_MS  8000
#define EACH_HOST_MS 50
#define WELL_TIMES   4

void end_limit_begin(struct end_limit *l, uint64_t now, uint64_t grace_ms, uint32_t hosts, bool well)
{
    uint64_t ms = PATIENCE_MS + (uint64_t)hosts * EACH_HOST_MS;
    l->patience = ms * (well ? WELL_TIMES : 1) * NSEC_PER_MSEC;
    l->deadline = now + grace_ms * NSEC_PER_MSEC + l->patience;
}

void end_limit_progress(struct end_limit *l, uint64_t now)
{
    if (now + l->patience > l->deadline)
        l->deadline = now + l->patience;
}

uint64_t end_limit_left(const struct end_limit *l, uint64_t now)
{
    return now < l->deadline ? (l->deadline - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 0;
}
