/* Decides when silence means death: pure, time is an argument.
 *
 * A deadline is believed only after a fresh look. The process that counts may itself have been stopped or
 * frozen: a look that comes much later than the interval starts the count anew. And the peer's messages may
 * lie unread: an overdue peer is in DOUBT first, then the owner reads whatever waits. Only a second look in a
 * row without news says DEAD. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct heartbeat {
    uint64_t limit;  /* nanoseconds of silence */
    uint64_t last;   /* when the peer was last heard */
    uint64_t looked; /* when heartbeat_look was last called */
    bool doubted;    /* the last look found it overdue */
    bool suspended;  /* silence is expected: the peer said that it stops */
};

enum heartbeat_verdict { HEARTBEAT_ALIVE, HEARTBEAT_DOUBT, HEARTBEAT_DEAD };

void heartbeat_start(struct heartbeat *h, uint64_t limit, uint64_t now);
void heartbeat_seen(struct heartbeat *h, uint64_t now);
void heartbeat_suspend(struct heartbeat *h, bool suspended, uint64_t now);
/* How often to look (and to send something oneself): a quarter of the limit. */
uint64_t heartbeat_interval(const struct heartbeat *h);
/* In how many milliseconds to look: after that interval, or when the deadline has passed. */
uint64_t heartbeat_next_ms(const struct heartbeat *h, uint64_t now);
/* After DOUBT: read what waits, then look again at once. */
enum heartbeat_verdict heartbeat_look(struct heartbeat *h, uint64_t now);
