/* Counting operations, for hvdctl: some ten instructions each, in a line of memory of this rank's own
 * (shm/counts.h). */
#ifndef HVD_CLIENT_COUNTS_H
#define HVD_CLIENT_COUNTS_H

#include "collectives/client/internal.h"

/* Its address tells threads apart, without a call. */
extern _Thread_local char counting_thread __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* By a thread that is not, or not yet, the one whose counts are its own. */
void count_apart(struct shm_counts *counts, const struct tensor *t, uint64_t ns) __attribute__((cold));

static inline void count_add(_Atomic uint64_t *word, uint64_t n)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n, memory_order_relaxed);
}

/* An operation begins; its tensor's `sequence` and `bytes` are set. */
static inline void count_begins(struct tensor *t)
{
    t->timed = t->bytes >= SHM_TIMED_BYTES ? 1 : shm_stands_for(t->sequence);
    if (__builtin_expect(t->timed, 0))
        t->since = clock_now();
}

/* It has ended well. */
static inline void count_ended(const struct tensor *t)
{
    struct shm_counts *counts = &client.mailbox->counts;
    struct shm_count *c = &counts->own[t->op.kind];
    uint64_t ns = __builtin_expect(t->timed, 0) ? (clock_now() - t->since) * t->timed : 0;

    if (__builtin_expect(atomic_load_explicit(&client.counts, memory_order_relaxed) != &counting_thread, 0)) {
        count_apart(counts, t, ns);
        return;
    }
    count_add(&c->operations, 1);
    count_add(&c->bytes, t->bytes);
    if (__builtin_expect(ns, 0))
        count_add(&c->ns, ns);
}

#endif
