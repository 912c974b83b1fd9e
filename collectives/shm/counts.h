/* A member's counts of its operations that have ended well. The engine sums them up when the session asks.
 *
 * Each word has one writer: the thread of the member that counted first. Its other
 * threads add, by atomic adds, to words that they share. A time is taken of each large
 * operation and of some of the small ones, which then stand for those between. */
#ifndef HVD_COLLECTIVES_SHM_COUNTS_H
#define HVD_COLLECTIVES_SHM_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "collectives/shm/op.h"

struct shm_count {
    _Atomic uint64_t operations;
    _Atomic uint64_t bytes; /* that the member gave; of a broadcast, those of the tensor */
    _Atomic uint64_t ns;    /* from the call to its result */
};

struct shm_counts {
    _Alignas(64) struct shm_count own[SHM_KINDS];
    _Alignas(64) struct shm_count others[SHM_KINDS];
};

#define SHM_TIMED_BYTES (64u << 10) /* operations as large are timed each */

/* How many of a tensor's small operations the time of its `sequence`th stands for; 0: it is not taken. In
 * sum as many as there were, whenever `sequence` is a power of two or a multiple of 64. */
static inline uint8_t shm_stands_for(uint32_t sequence)
{
    if (__builtin_expect(sequence % 64 != 0 && (sequence >= 64 || (sequence & (sequence - 1)) != 0), 1))
        return 0;
    return sequence > 64 ? 64 : (uint8_t)((sequence + 1) / 2);
}

#endif
