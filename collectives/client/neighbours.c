/* Ranks of a host that has more ranks than processors. Those on one processor are neighbours.
 *
 * Each rank says in its mailbox on which processor it last waited. So a rank that waits for others knows
 * whether one of them may need this processor. Then only a yield brings the operation on. If none does, the
 * others run now, on other processors: looks find their arrival sooner than yields do. */
#include <sched.h>

#include "collectives/client/core.h"
#include "collectives/client/operation.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/patience.h"

static uint32_t this_processor(void)
{
    return (uint32_t)(sched_getcpu() + 1);
}

static uint32_t processor_of(uint32_t local)
{
    return atomic_load_explicit(&region_mailbox(&client.region, local)->processor, memory_order_relaxed);
}

/* Others read the word often, so it is written only when it changes. */
static void note_processor(uint32_t here)
{
    if (atomic_load_explicit(&client.mailbox->processor, memory_order_relaxed) != here)
        atomic_store_explicit(&client.mailbox->processor, here, memory_order_relaxed);
}

/* ---- the others ---------------------------------------------------------------------------------------- */

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
    if (v->seen < v->team->members)
        return is_missing_here(v);
    return v->streamed || v->chunks.number >= v->team->members || !tensor_all_taken(v);
}

/* ---- moves --------------------------------------------------------------------------------------------- */

static _Thread_local struct spread spread;

/* The kernel moves a thread that may not run where it is. Then the thread may run everywhere again. */
static void go_to(uint32_t processor, const cpu_set_t *allowed)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor - 1, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        (void)sched_setaffinity(0, sizeof *allowed, allowed);
    note_processor(this_processor());
}

static void check_place(uint64_t now, bool lost_slice, uint32_t here)
{
    uint32_t processor[SHM_MEMBERS_MAX], ranks = client.region.members;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    for (uint32_t i = 0; i < ranks; i++)
        processor[i] = processor_of(i);
    uint32_t found = spread_find(processor, ranks, (uint32_t)client.local_rank, &allowed);
    uint32_t to = spread_advice(&spread, now, lost_slice, here, found);
    if (to != 0)
        go_to(to, &allowed);
}

void neighbours_begin_wait(uint64_t now, bool lost_slice)
{
    uint32_t here = this_processor();
    note_processor(here);
    if (spread_is_due(&spread, now, lost_slice))
        check_place(now, lost_slice, here);
}
