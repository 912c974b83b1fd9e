/* How long the hosts of a job may take to end, after the grace period of the workers. Pure: time is an
 * argument.
 *
 * Hundreds of agents on few processors take their time, and a fixed limit cannot tell that from one that
 * hangs. So the limit grows with the number of hosts and starts anew whenever one of them has got further.
 * When all ranks have ended well, nothing is lost by more patience: a host that has died is noticed by its
 * silence. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct end_limit {
    uint64_t patience; /* ns without progress */
    uint64_t deadline;
};

/* `hosts` have still to end. `well`: all ranks have ended, and none failed. */
void end_limit_begin(struct end_limit *l, uint64_t now, uint64_t grace_ms, uint32_t hosts, bool well);
/* A host has got further, or the reader of its output has. */
void end_limit_progress(struct end_limit *l, uint64_t now);
/* Milliseconds until the next look; 0: the time is over. */
uint64_t end_limit_left(const struct end_limit *l, uint64_t now);
