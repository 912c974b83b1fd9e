/* Tensors that wait for ranks, and for how long (pure: time is an argument).
 *
 * The owner looks at every tensor now and then and says how far its members are (stall_seen). A tensor whose
 * members have been apart at the same place for warn_ns is told once, and once more after give_up_ns; when it
 * moves, it counts anew. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "collectives/shm/layout.h"

struct stall {
    uint64_t warn_ns, give_up_ns; /* 0: never */
    struct {
        uint64_t since; /* 0: all members are together */
        uint32_t operation;
        bool warned, given_up;
    } slot[SHM_SLOTS];
};

/* How often to look: a quarter of the shorter time, 100 ms to 1 s; 0: not at all. */
uint64_t stall_period(const struct stall *s);

enum stall_news { STALL_NONE, STALL_WARN, STALL_GIVE_UP };

/* `operation` is the furthest one that a member has arrived at; together: nobody waits for anybody. */
enum stall_news stall_seen(struct stall *s, uint32_t slot, uint32_t operation, bool together, uint64_t now);

/* "rank 3 on b and ranks 4 to 7, 9 on c", built host by host in the order of ranks. Hosts that do not fit
 * are counted. */
struct stall_ranks {
    char text[300];
    size_t length;
    uint32_t hosts, cut;
};
/* Those of a host's ranks that are missing, whose bit in `missing` is set. */
void stall_ranks_add(struct stall_ranks *r, const char *host, const uint32_t *rank, uint32_t ranks,
                     const uint8_t *missing, const char *remark);
/* Ends the list. Returns its text. */
const char *stall_ranks_end(struct stall_ranks *r);
