#include "collectives/shm/patience.h"

#include "common/base/clock.h"

#define CHECK_NS    NSEC_PER_MSEC
#define PAUSE_MOST  (64 * NSEC_PER_MSEC)
#define STRANGER_NS NSEC_PER_SEC
#define CALM_CHECKS 16 /* that find nothing halve the pause, and the new place is good */

uint32_t spread_find(const uint32_t *processor, uint32_t ranks, uint32_t me, const cpu_set_t *allowed)
{
    uint32_t there[CPU_SETSIZE + 1] = {0}, here = processor[me], least = here;
    for (uint32_t i = 0; i < ranks; i++) {
        if (processor[i] == 0 || processor[i] > CPU_SETSIZE || (processor[i] == here && i > me))
            return 0;
        there[processor[i]]++;
    }
    for (uint32_t p = 1; p <= CPU_SETSIZE; p++)
        if (CPU_ISSET(p - 1, allowed) && there[p] < there[least])
            least = p;
    return there[least] + 2 <= there[here] ? least : 0;
}

static uint32_t rest(struct spread *s, uint64_t until, uint32_t to)
{
    s->next = until;
    s->calm = 0;
    return to;
}

uint32_t spread_advice(struct spread *s, uint64_t now, bool lost_slice, uint32_t here, uint32_t found)
{
    uint32_t from = s->from;
    if (from != 0 && lost_slice) {
        s->from = 0;
        return rest(s, now + STRANGER_NS, from);
    }
    if (found != 0) {
        s->from = lost_slice ? 0 : here; /* it lost slices here, too: strangers are everywhere */
        s->pause = s->pause < CHECK_NS ? CHECK_NS : s->pause * 2;
        s->pause = s->pause < PAUSE_MOST ? s->pause : PAUSE_MOST;
        return rest(s, now + s->pause, found);
    }
    s->next = now + CHECK_NS;
    if (++s->calm % CALM_CHECKS == 0) {
        s->from = 0;
        s->pause /= 2;
    }
    return 0;
}
