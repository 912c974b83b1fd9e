/* How much a host may say on hvdrun's terminal beside what its workers write: notices, its agent's stderr,
 * where it waits. HOST_WORDS lines at first, and HOST_WORDS_AGAIN more every minute; what it says beyond that
 * is counted, and the number told when there is room again, and at its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HOST_WORDS       300
#define HOST_WORDS_AGAIN 20

/* Zeroes at the beginning. */
struct host_words {
    uint64_t since;   /* when there was more room last */
    uint32_t room;    /* lines */
    uint64_t dropped; /* since it was told */
};

/* True when a line may be shown. */
bool host_words_take(struct host_words *w, const char *label, uint64_t now);
void host_words_end(struct host_words *w, const char *label);
