/* How long is it worth looking for the other ranks before this one sleeps? (pure)
 *
 * A hand-over between ranks that run takes a fraction of a microsecond, or a few when one gives its processor
 * to the other; a wake-up costs five to fifteen. But where somebody else keeps a processor busy, who gives
 * way gives it to him, for milliseconds, and who looks on holds the one that the missing rank could have
 * been moved to: a sleep frees it at once. Which of the two it is shows in how long looking took. So each
 * tensor learns it: after a slow look only each second, fourth, ... 1024th operation looks, until one was
 * quick. It is the operation's number that decides, so that all ranks look at the same one: who looks while
 * the others sleep finds that it is slow. */
#ifndef HVD_COLLECTIVES_CLIENT_SPIN_POLICY_H
#define HVD_COLLECTIVES_CLIENT_SPIN_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct patience {   /* zeros: look */
    bool hurt;      /* the last look was slow */
    uint8_t lapses; /* slow looks of late */
    uint8_t quick;  /* looks since the last one */
};

/* To be asked before the wait of an operation, which is counted from 1. */
bool patience_has(const struct patience *p, uint32_t operation);
/* What came of it: it was quick, or it was not and sleeping would have been as good. */
void patience_learn(struct patience *p, bool quick);

#endif
