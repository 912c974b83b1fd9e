#include "collectives/shm/ring.h"

bool ring_put(struct shm_ring *r, uint32_t slot)
{
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&r->head, memory_order_acquire) >= SHM_SLOTS)
        return false;
    r->slot[tail % SHM_SLOTS] = slot;
    atomic_store(&r->tail, tail + 1);
    return true;
}

bool ring_put_once(struct shm_ring *r, uint32_t slot, uint32_t *at)
{
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), head = atomic_load(&r->head);
    if (*at - head < tail - head && r->slot[*at % SHM_SLOTS] == slot)
        return true;
    *at = tail;
    return ring_put(r, slot);
}

int ring_take(struct shm_ring *r, uint32_t *slot)
{
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint32_t held = atomic_load(&r->tail) - head;
    if (held == 0)
        return 0;
    if (held > SHM_SLOTS)
        return -1;
    *slot = *(volatile uint32_t *)&r->slot[head % SHM_SLOTS];
    atomic_store(&r->head, head + 1); /* then what the slot is about is looked at: see ring_put_once */
    return *slot < SHM_SLOTS ? 1 : -1;
}

bool ring_empty(const struct shm_ring *r)
{
    return atomic_load(&r->tail) == atomic_load_explicit(&r->head, memory_order_relaxed);
}
