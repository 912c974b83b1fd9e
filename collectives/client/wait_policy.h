/* How long a rank looks for other ranks, and how long for the engine's answer. (pure)
 *
 * The other ranks. A hand-over between ranks that run takes a fraction of a microsecond, or a few when one of
 * them yields its processor to the other; a wake-up costs five to fifteen. But where another process keeps a
 * processor busy, that process gets a yielded processor, for milliseconds; and a rank that spins holds the
 * processor that the missing rank could have been moved to. A sleep frees the processor at once. The time
 * that looking took shows which of the two is better. So each tensor learns: after a slow look only each
 * second, fourth, ... 1024th operation looks, until a look was quick. The operation's number decides, so
 * that all ranks look at the same operation: a rank that looks while the others sleep finds looking slow.
 *
 * The engine. Its loop answers in the turn that reads the question, and beats ten times a second. While the
 * beat moves the answer is on its way, however long a busy machine takes. A beat that stands still means that
 * the engine was stopped. Time is counted in slices that this process has waited itself: a job that was
 * stopped and continued as a whole has waited one slice. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct patience {   /* zeros: look */
    bool hurt;      /* the last look was slow */
    uint8_t lapses; /* recent slow looks */
    uint8_t quick;  /* looks since the last slow look */
};

/* Asked before the wait of an operation. Operations are counted from 1. */
bool patience_has(const struct patience *p, uint32_t operation);
/* The outcome of looking: it was quick, or sleeping would have been as good. */
void patience_learn(struct patience *p, bool quick);

#define OVERDUE_QUIET 15  /* slices, of one second, without a beat */
#define OVERDUE_MOST  240 /* slices in all: a driver that begins with all GPUs of a host takes seconds each */

struct overdue {
    uint32_t beat; /* when the question was asked */
    unsigned slices, quiet;
};

/* Called after each slice without an answer. true: the engine has stopped. `blind`: the beat tells nothing,
 * because it is not mapped yet (the session ends an engine that does not begin), or because a thread beside
 * the loop answers. `failed`: the job has failed. */
bool overdue_after(struct overdue *o, uint32_t beat, bool blind, bool failed);
