#include "collectives/shm/order.h"

struct order order_start(uint32_t head)
{
    return (struct order){.head = head, .slot = head}; /* by that slot's link 0 */
}

/* Nobody can be at a later operation of the slot while one member is at this one. */
bool order_claim(const struct region *r, uint32_t slot, uint32_t operation)
{
    _Atomic uint64_t *claim = &region_slot(r, slot)->claim;
    uint64_t seen = atomic_load(claim);
    return (uint32_t)(seen >> 32) != operation &&
           atomic_compare_exchange_strong(claim, &seen, shm_tagged(operation, 1));
}

static _Atomic uint64_t *link_of(const struct region *r, uint32_t slot, uint32_t time)
{
    return &region_slot(r, slot)->next[time & 1];
}

bool order_append(const struct region *r, uint32_t head, uint32_t slot)
{
    uint32_t time = atomic_fetch_add(&region_slot(r, slot)->listed, 1) + 1;
    uint64_t before = atomic_exchange(&region_slot(r, head)->last, shm_tagged(time, slot));
    uint32_t before_slot = before ? (uint32_t)before : head, before_time = (uint32_t)(before >> 32);
    if (before_slot >= SHM_SLOTS)
        return false;
    atomic_store(link_of(r, before_slot, before_time), shm_tagged(before_time, slot));
    return true;
}

/* No slot that follows is 0, which is the barrier's: so a word of zeros is no link. */
int order_next(const struct order *o, const struct region *r, uint32_t *slot)
{
    uint64_t link = atomic_load(link_of(r, o->slot, o->time));
    if ((uint32_t)(link >> 32) != o->time || (uint32_t)link == 0)
        return 0;
    *slot = (uint32_t)link;
    return *slot < SHM_SLOTS ? 1 : -1;
}

void order_take(struct order *o, uint32_t slot, uint32_t time)
{
    o->slot = slot;
    o->time = time;
}
