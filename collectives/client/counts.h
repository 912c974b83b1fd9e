/* Counting operations, for hvdctl: some ten instructions each, in a line of memory of this rank's own
 * (shm/layout.h). */
#pragma once

#include "collectives/client/operation.h"

/* Tells threads apart without a call, and without a thread's variable of this library's own: one that is
 * found as fast needs room that a library which is loaded late may not get. */
static inline const void *this_thread(void)
{
    return __builtin_thread_pointer();
}

/* For a thread that does not own the rank's counts. */
static inline __attribute__((cold)) void count_apart(struct shm_counts *counts, const struct tensor *t,
                                                     uint64_t ns)
{
    struct shm_count *c = &counts->others[t->op.what.kind];

    atomic_fetch_add_explicit(&c->operations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes, t->op.bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->ns, ns, memory_order_relaxed);
}

/* The thread that calls hvd_init owns them. */
static inline void counts_own(void)
{
    atomic_store_explicit(&client.recording.thread, this_thread(), memory_order_relaxed);
}

static inline void count_add(_Atomic uint64_t *word, uint64_t n)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n, memory_order_relaxed);
}

/* An operation begins; its tensor's `sequence` and `bytes` are set. */
static inline void count_begins(struct tensor *t)
{
    t->op.timed = t->op.bytes >= SHM_TIMED_BYTES ? 1 : shm_stands_for(t->sequence);
    if (__builtin_expect(t->op.timed, 0))
        t->op.since = clock_now();
}

/* It has ended well. */
static inline void count_ended(const struct tensor *t)
{
    struct shm_counts *counts = &client.mailbox->counts;
    struct shm_count *c = &counts->own[t->op.what.kind];
    uint64_t ns = __builtin_expect(t->op.timed, 0) ? (clock_now() - t->op.since) * t->op.timed : 0;

    if (__builtin_expect(
            atomic_load_explicit(&client.recording.thread, memory_order_relaxed) != this_thread(), 0)) {
        count_apart(counts, t, ns);
        return;
    }
    count_add(&c->operations, 1);
    count_add(&c->bytes, t->op.bytes);
    if (__builtin_expect(ns, 0))
        count_add(&c->ns, ns);
}
