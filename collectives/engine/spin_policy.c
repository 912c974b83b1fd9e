#include "collectives/engine/spin_policy.h"

#define WAIT_FIRST 10
#define WAIT_MOST  640
#define SHARE      50 /* one part in so many is no contention */

void spin_policy_update(struct spin_policy *c, uint64_t now, uint64_t delay, bool worked)
{
    uint64_t waited = delay - c->delay, time = now - c->at;
    bool known = delay != UINT64_MAX && c->at > 0;
    c->at = now;
    c->delay = delay;
    if (!known) {
        c->spin = false;
    } else if (c->spin && waited > time / SHARE) {
        c->spin = false;
        c->quiet = 0;
        c->wait = c->wait < WAIT_MOST ? c->wait * 2 : WAIT_MOST;
    } else if (!c->spin && worked) {
        c->wait = c->wait ? c->wait : WAIT_FIRST;
        c->spin = ++c->quiet >= c->wait;
    }
}
