/* The monotonic clock of a host against ours. Pure: no clock is read here.
 *
 * An instant that a host dates lies between two of ours: after we sent the question, and before we heard the
 * answer. Each such pair bounds the offset that is added to the host's times. All pairs together bound it
 * best, whichever way a message was slow; the middle of what is left is taken. Clocks drift: the bounds move
 * apart as they age, so that new ones count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct host_clock {
    bool known, fixed; /* fixed: nothing more is learned */
    int64_t low, high; /* of what is to be added to the host's times to get ours */
    uint64_t at;       /* when they were so */
};

/* It is ours. */
void host_clock_same(struct host_clock *c);
/* From now on it counts as it is known now. */
void host_clock_fix(struct host_clock *c);
/* At the host's time `theirs` ours was not before `after`, nor after `now`. */
void host_clock_saw(struct host_clock *c, uint64_t theirs, uint64_t after, uint64_t now);
/* A host's time on our clock. */
uint64_t host_clock_ours(const struct host_clock *c, uint64_t theirs);
/* The most that it may be wrong by, ns. */
uint64_t host_clock_error(const struct host_clock *c);
