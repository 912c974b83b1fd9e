/* How a rank or an engine waits for processes that are about to answer. (pure)
 *
 * A hand-over between processes that run takes a fraction of a microsecond, or two when one of them yields
 * its processor to the other. A sleep lets the processor go idle; to be woken takes five to fifteen, on a
 * virtual machine up to a hundred. So a waiting thread yields between looks for long before it sleeps.
 *
 * But where another process wants the processor, that process gets a yielded processor for a slice, which is
 * milliseconds. So each thread learns: after a yield that took so long, the thread yields no more for a
 * while. Each next while is twice as long; quick yields make it shorter again.
 *
 * Ranks that could have a processor each may lie on one. Then each wait ends with its first yield. The kernel
 * leaves such ranks where they are, since they never sleep. So after some such waits the thread sleeps once:
 * it is woken on an idle processor, if there is one. If that did not help, the thread moves by itself.
 *
 * A rank that shares its processor with a stranger is away for a slice of 3 to 4 ms at a time. If the other
 * rank slept meanwhile, that rank's processor would go idle. Then the kernel would bring both ranks together
 * there. So a rank with a processor of its own yields for longer than a slice before the rank sleeps. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum patience_advice { PATIENCE_YIELD, PATIENCE_SLEEP, PATIENCE_MOVE };

/* Of a thread. Zeros: it yields. Times are those of clock_now(), in ns. */
struct patience {
    uint64_t until; /* no yields before */
    uint64_t span;  /* of the last such while; 0: none was needed lately */
    uint32_t quick; /* yields since the last slow one */

    uint32_t handed;       /* waits in a row that ended with their first yield */
    uint64_t apart, pause; /* no advice for their sake before `apart`; the next time `pause` later */
    uint32_t cures;        /* how often there was such advice */
    bool advised;
};

/* Does it pay to yield? */
static inline bool patience_has(const struct patience *p, uint64_t now)
{
    return now >= p->until;
}
/* Has a yield given a slice away lately? */
static inline bool patience_lost_slice(const struct patience *p)
{
    return p->span > 0;
}
/* A yield took `ns`, until now. */
void patience_learn(struct patience *p, uint64_t now, uint64_t ns);
/* A wait ended with a yield, now: its first, or a later one. For ranks that could have a processor each. */
void patience_handed(struct patience *p, uint64_t now, bool first);
/* How the next wait begins. Advice is given once. */
enum patience_advice patience_advice(struct patience *p);

/* ---- spread.c ------------------------------------------------------------------------------------------ */

/* How ranks that wait spread over the processors of a host that has more ranks than processors.
 *
 * An operation lasts as long as the processor with the most ranks needs. The kernel does not move a thread
 * that has just run, so it leaves three ranks on one of two processors, and one on the other, for long. The
 * ranks know each other's processors, so one of them moves to where two ranks fewer are.
 *
 * A rank may then lose slices to a stranger, and have lost none before. It goes back and stays for long.
 * Ranks that share a processor lose less than ranks that wait for a stranger's slices.
 *
 * Processors count from 1 here. 0: unknown, as of a rank that has not waited yet. */

/* Of a thread; zeros at first. Times are those of clock_now(), in ns. */
struct spread {
    uint64_t next;  /* no check before */
    uint64_t pause; /* after the last move */
    uint32_t calm;  /* checks in a row that found nothing */
    uint32_t from;  /* the processor before the last move; 0: the thread has settled since */
};

/* Is a check due? lost_slice: a yield of this thread has given a whole slice away lately. */
static inline bool spread_is_due(const struct spread *s, uint64_t now, bool lost_slice)
{
    return now >= s->next || (s->from != 0 && lost_slice);
}
/* processor[ranks]: of each rank of the host. Returns one of the allowed processors with the fewest ranks, if
 * rank `me` is the last one on a processor that has two ranks more. Ranks that leave at the same time get
 * different ones, as far as there are. 0: the rank stays. SPREAD_UNKNOWN: a processor is unknown. */
#define SPREAD_UNKNOWN UINT32_MAX
uint32_t spread_find(const uint16_t *processor, uint32_t ranks, uint32_t me, const cpu_set_t *allowed);
/* A check by one of `ranks`: the processor that the thread goes to from `here`; 0: it stays. found: of
 * spread_find. More ranks check more rarely, as each looks at all. */
uint32_t spread_advice(struct spread *s, uint64_t now, bool lost_slice, uint32_t ranks, uint32_t here,
                       uint32_t found);
