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
    struct flight_record *r = t->op.record = flight_take(&t->op.recorded);
    atomic_store_explicit(&r->number, 0, memory_order_relaxed);
    flight_fence();
    r->slot = t->slot;
    r->operation = operation;
    r->set = t->op.what.set;
    r->kind = t->op.what.kind;
    r->type = t->op.what.dtype;
    r->count = t->op.what.count;
    r->bytes = t->op.bytes;
    r->began = flight_ticks();
    atomic_store_explicit(&r->status, FLIGHT_PENDING, memory_order_relaxed);
    atomic_store_explicit(&r->number, t->op.recorded, memory_order_release);
}

/* It has ended; `status` is set. So many others may have begun meanwhile that the record is theirs. */
static inline void flight_ended(const struct tensor *t)
{
    struct flight_record *r = t->op.record;
    if (__builtin_expect(!r || atomic_load_explicit(&r->number, memory_order_relaxed) != t->op.recorded, 0))
        return;
    atomic_store_explicit(&r->ended, flight_ticks(), memory_order_relaxed);
    atomic_store_explicit(&r->status, t->op.status, memory_order_release);
}
