#include "launcher/host/host_clock.h"

#define FAR   (INT64_MAX / 4) /* a bound for any clock */
#define DRIFT 10000           /* a clock of two gains or loses at most one ns in so many */

void host_clock_same(struct host_clock *c)
{
    *c = (struct host_clock){.known = true, .fixed = true};
}

void host_clock_fix(struct host_clock *c)
{
    c->fixed = true;
}

static bool is_far(uint64_t offset)
{
    return (int64_t)offset > FAR || (int64_t)offset < -FAR;
}

void host_clock_saw(struct host_clock *c, uint64_t theirs, uint64_t after, uint64_t now)
{
    if (c->fixed || now < after || is_far(after - theirs) || is_far(now - theirs))
        return;
    int64_t drift = (int64_t)((now - after) / DRIFT); /* since that instant, which may be an old one */
    int64_t low = (int64_t)(after - theirs) - drift, high = (int64_t)(now - theirs) + drift;
    drift = now > c->at ? (int64_t)((now - c->at) / DRIFT) : 0;
    int64_t old_low = c->low - drift, old_high = c->high + drift;
    /* Bounds that exclude each other: its clock has jumped, and only the new ones hold. */
    if (c->known && low <= old_high && high >= old_low) {
        low = old_low > low ? old_low : low;
        high = old_high < high ? old_high : high;
    }
    *c = (struct host_clock){.known = true, .low = low, .high = high, .at = now};
}

uint64_t host_clock_ours(const struct host_clock *c, uint64_t theirs)
{
    return theirs + (uint64_t)(c->low + (c->high - c->low) / 2);
}

uint64_t host_clock_error(const struct host_clock *c)
{
    return c->known ? (uint64_t)(c->high - c->low) / 2 : UINT64_MAX;
}
