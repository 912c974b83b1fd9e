#include "collectives/shm/patience.h"

#include "common/base/clock.h"

#define CHECK_NS    NSEC_PER_MSEC
#define RANKS_FEW   16 /* more check more rarely */
#define PAUSE_MOST  (64 * NSEC_PER_MSEC)
#define STRANGER_NS NSEC_PER_SEC
#define CALM_CHECKS 16 /* that find nothing halve the pause, and the new place is good */

struct places {
    uint16_t ranks[CPU_SETSIZE + 1]; /* on each processor */
    uint16_t last[CPU_SETSIZE + 1];  /* the last one of them */
};

/* false: a processor is unknown. */
static bool count_ranks(struct places *p, const uint16_t *processor, uint32_t ranks)
{
    *p = (struct places){0};
    for (uint32_t i = 0; i < ranks; i++) {
        if (processor[i] == 0 || processor[i] > CPU_SETSIZE)
            return false;
        p->ranks[processor[i]]++;
        p->last[processor[i]] = (uint16_t)i;
    }
    return true;
}

/* The fewest ranks on an allowed processor, and how many such processors there are. */
static uint32_t find_least(const struct places *p, const cpu_set_t *allowed, uint32_t *number)
{
    uint32_t least = UINT16_MAX;
    for (uint32_t i = 1; i <= CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i - 1, allowed) || p->ranks[i] > least)
            continue;
        *number = p->ranks[i] < least ? 1 : *number + 1;
        least = p->ranks[i];
    }
    return least;
}

uint32_t spread_find(const uint16_t *processor, uint32_t ranks, uint32_t me, const cpu_set_t *allowed)
{
    struct places p;
    uint32_t number = 0, before = 0;
    if (!count_ranks(&p, processor, ranks))
        return SPREAD_UNKNOWN;
    if (p.last[processor[me]] != me)
        return 0;
    uint32_t least = find_least(&p, allowed, &number);
    if (number == 0 || p.ranks[processor[me]] < least + 2)
        return 0;
    for (uint32_t i = 1; i <= CPU_SETSIZE; i++) /* those that leave, too, and come before me */
        before += p.ranks[i] >= least + 2 && p.last[i] < me;
    before %= number;
    for (uint32_t i = 1; i <= CPU_SETSIZE; i++)
        if (CPU_ISSET(i - 1, allowed) && p.ranks[i] == least && before-- == 0)
            return i;
    return 0;
}

static uint32_t rest_until(struct spread *s, uint64_t until, uint32_t to)
{
    s->next = until;
    s->calm = 0;
    return to;
}

uint32_t spread_advice(struct spread *s, uint64_t now, bool lost_slice, uint32_t ranks, uint32_t here,
                       uint32_t found)
{
    uint32_t from = s->from;
    if (from != 0 && lost_slice) {
        s->from = 0;
        return rest_until(s, now + STRANGER_NS, from);
    }
    if (found != 0 && found != SPREAD_UNKNOWN) {
        s->from = lost_slice ? 0 : here; /* it lost slices here, too: strangers are everywhere */
        s->pause = s->pause < CHECK_NS ? CHECK_NS : s->pause * 2;
        s->pause = s->pause < PAUSE_MOST ? s->pause : PAUSE_MOST;
        return rest_until(s, now + s->pause, found);
    }
    s->next = now + CHECK_NS * (1 + ranks / RANKS_FEW);
    if (found == 0 && ++s->calm % CALM_CHECKS == 0) {
        s->from = 0;
        s->pause /= 2;
    }
    return 0;
}
