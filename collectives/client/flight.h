/* Recording operations, for who looks when a job hangs or has failed: some thirty instructions for both ends
 * of an operation, in a line of memory of its own (common/status/flight.h). */
#pragma once

#include "collectives/client/counts.h"
#include "common/status/flight.h"

/* Asks the engine for this process's rings, and says whose they are. Without them nothing is recorded. */
void flight_open(void);

/* The thread that owns the rank's counts (counts.h) has the first ring for itself. */
static inline struct flight_record *flight_take(uint32_t *number)
{
    struct flight_ring *ring = client.recording.ring;
    if (__builtin_expect(
            atomic_load_explicit(&client.recording.thread, memory_order_relaxed) == this_thread(), 1)) {
        *number = atomic_load_explicit(&ring->operations, memory_order_relaxed) + 1;
        atomic_store_explicit(&ring->operations, *number, memory_order_relaxed);
    } else {
        ring++;
        *number = atomic_fetch_add_explicit(&ring->operations, 1, memory_order_relaxed) + 1;
    }
    return &ring->record[*number % FLIGHT_RECORDS];
}

/* The `operation`th of its tensor begins; its `what` and `bytes` are set. */
static inline void flight_begins(struct tensor *t, uint32_t operation)
{
    t->op.record = NULL;
    if (__builtin_expect(!client.recording.ring, 0))
        return;
    t->op.record = flight_take(&t->op.recorded);
    flight_write_begin(t->op.record, t->op.recorded,
                       (struct flight_what){.slot = t->slot,
                                            .operation = operation,
                                            .set = t->op.what.set,
                                            .kind = t->op.what.kind,
                                            .type = t->op.what.dtype,
                                            .count = t->op.what.count,
                                            .bytes = t->op.bytes});
}

/* It has ended; `status` is set. */
static inline void flight_ended(const struct tensor *t)
{
    flight_write_end(t->op.record, t->op.recorded, t->op.status);
}
