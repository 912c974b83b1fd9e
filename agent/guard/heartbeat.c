#include "agent/guard/heartbeat.h"

#include "common/base/clock.h"

void heartbeat_start(struct heartbeat *h, uint64_t limit, uint64_t now)
{
    *h = (struct heartbeat){.limit = limit, .last = now, .looked = now};
}

void heartbeat_seen(struct heartbeat *h, uint64_t now)
{
    h->last = now;
    h->doubted = false;
}

void heartbeat_suspend(struct heartbeat *h, bool suspended, uint64_t now)
{
    h->suspended = suspended;
    heartbeat_seen(h, now);
}

uint64_t heartbeat_interval(const struct heartbeat *h)
{
    return h->limit / 4;
}

uint64_t heartbeat_next_ms(const struct heartbeat *h, uint64_t now)
{
    uint64_t interval = heartbeat_interval(h) / NSEC_PER_MSEC;
    uint64_t due = h->last + h->limit, left = due > now ? (due - now) / NSEC_PER_MSEC + 1 : 1;
    return h->suspended || interval < left ? interval : left;
}

enum heartbeat_verdict heartbeat_look(struct heartbeat *h, uint64_t now)
{
    bool overslept = now - h->looked > 2 * heartbeat_interval(h);
    h->looked = now;
    if (overslept)
        heartbeat_seen(h, now);
    if (h->suspended || now - h->last <= h->limit) {
        h->doubted = false;
        return HEARTBEAT_ALIVE;
    }
    if (!h->doubted) {
        h->doubted = true;
        return HEARTBEAT_DOUBT;
    }
    return HEARTBEAT_DEAD;
}
