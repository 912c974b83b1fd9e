/* The counts of threads other than the first one to count. */
#include "collectives/client/counts.h"

void count_apart(struct shm_counts *counts, const struct tensor *t, uint64_t ns)
{
    const void *nobody = NULL;
    bool first = atomic_compare_exchange_strong(&client.counts, &nobody, this_thread());
    struct shm_count *c = first ? &counts->own[t->op.kind] : &counts->others[t->op.kind];

    atomic_fetch_add_explicit(&c->operations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes, t->bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->ns, ns, memory_order_relaxed);
}
