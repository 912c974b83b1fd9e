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
/* A yield took `ns`, until now. */
void patience_learn(struct patience *p, uint64_t now, uint64_t ns);
/* A wait ended with a yield, now: its first, or a later one. For ranks that could have a processor each. */
void patience_handed(struct patience *p, uint64_t now, bool first);
/* How the next wait begins. Advice is given once. */
enum patience_advice patience_advice(struct patience *p);
