/* Ranks of a host that has more ranks than processors. Those on one processor are neighbours.
 *
 * Each rank says in its mailbox on which processor it last waited. So a rank that waits for others knows
 * whether one of them may need this processor. Then only a yield brings the operation on. Otherwise the
 * others probably run now, on other processors: looks find their arrival sooner than yields do.
 *
 * This holds for operations of all ranks of the host. In an operation of some of them, nobody knows what the
 * other ranks do. */
#include <sched.h>

#include "collectives/client/core.h"
#include "collectives/client/operation.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/patience.h"

#define RANKS_MANY 32 /* with more, a look takes too long: it reads a line of each */

static uint32_t this_processor(void)
{
    return (uint32_t)(sched_getcpu() + 1);
}

static uint32_t processor_of(uint32_t local)
{
    return atomic_load_explicit(&region_mailbox(&client.region, local)->processor, memory_order_relaxed);
}

/* Others read the word often, so it is written only when it changes. */
void neighbours_note_processor(void)
{
    uint32_t here = this_processor();
    if (atomic_load_explicit(&client.mailbox->processor, memory_order_relaxed) != here)
        atomic_store_explicit(&client.mailbox->processor, here, memory_order_relaxed);
}

static bool has_all_ranks(const struct tensor_view *v)
{
    return v->team->members == client.region.members;
}

/* ---- looks --------------------------------------------------------------------------------------------- */

/* A member that has not arrived may wait for this processor. */
static bool is_missing_here(const struct tensor_view *v)
{
    uint32_t here = this_processor();
    for (uint32_t i = v->seen; i < v->team->members; i++) {
        if (i == v->me || atomic_load(&tensor_entry(v, i)->sequence) == v->sequence)
            continue;
        uint32_t there = processor_of(v->team->local[i]);
        if (there == 0 || there == here)
            return true;
    }
    return false;
}

bool neighbours_need_processor(const struct tensor_view *v)
{
    if (!has_all_ranks(v) || v->team->members > RANKS_MANY)
        return true;
    if (v->seen < v->team->members)
        return is_missing_here(v);
    return v->streamed || v->chunks.number >= v->team->members || !tensor_all_taken(v);
}

/* ---- moves --------------------------------------------------------------------------------------------- */

static _Thread_local struct spread spread;

/* While a rank sleeps, its processor is unknown: the kernel may wake the rank elsewhere. */
static uint32_t find_emptier(uint32_t here, const cpu_set_t *allowed)
{
    uint16_t processor[SHM_MEMBERS_MAX];
    for (uint32_t i = 0; i < client.region.members; i++) {
        uint32_t there = processor_of(i);
        if (doorbell_has_sleeper(region_mailbox(&client.region, i)) || there > UINT16_MAX)
            return SPREAD_UNKNOWN;
        processor[i] = (uint16_t)there;
    }
    processor[client.local_rank] = (uint16_t)here;
    return spread_find(processor, client.region.members, (uint32_t)client.local_rank, allowed);
}

static void check_place(uint64_t now, bool lost_slice)
{
    uint32_t here = this_processor();
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    if (spread.from != 0 && !CPU_ISSET(spread.from - 1, &allowed))
        spread.from = 0;
    uint32_t found = find_emptier(here, &allowed);
    uint32_t to = spread_advice(&spread, now, lost_slice, client.region.members, here, found);
    if (to == 0)
        return;
    doorbell_move_to(to - 1, &allowed);
    neighbours_note_processor();
}

void neighbours_begin_wait(const struct tensor_view *v, uint64_t now, bool lost_slice)
{
    if (has_all_ranks(v) && spread_is_due(&spread, now, lost_slice))
        check_place(now, lost_slice);
}
