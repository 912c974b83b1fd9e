/* Memory of hvd_alloc_device: memory of a GPU that NCCL uses where it lies, without copies on its way.
 *
 * NCCL does so with memory that a communicator has registered. NCCL takes for granted that either all ranks
 * give registered memory to an operation, at the same place of the registered memory, or none does.
 * Programs need not do so. So each allocation has two addresses. The caller's address is never registered.
 * The second address, the same memory mapped once more, is registered with a team's communicator when an
 * operation of the team first finds its elements in the allocation. NCCL gets the second address if all
 * ranks have said with the operation that theirs is registered, at the same place (gpu_memory_mark); else
 * the caller's. The two addresses are never in use at once: events put an operation in order with all other
 * users of the memory.
 *
 *   hvd_alloc_device -> { an operation: registered } -> hvd_free -> no user left: deregistered, freed
 *
 * With --gpu-placement engine the engine does all this with its own mappings. Small allocations are plain
 * memory of the driver. So are all allocations without NCCL, with an NCCL without ncclMemAlloc, or with a
 * driver without mappings. Operations do not differ for plain memory. */
#include "collectives/client/gpu/gpu_memory.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/client/gpu/gpu_engine.h"
#include "collectives/gpu/mapping.h"
#include "common/base/hash.h"

static struct gpu_memory *allocation; /* by ascending address */
static size_t allocations, allocations_capacity, freed;
static _Atomic bool any; /* hvd_free has to look here */

/* ---- the table ----------------------------------------------------------------------------------------- */

/* The number of allocations that begin at or before `at`. */
static size_t find_position(uintptr_t at)
{
    size_t low = 0, high = allocations;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocation[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct gpu_memory *find_around(const void *at)
{
    size_t i = find_position((uintptr_t)at);
    const struct gpu_memory *m = i > 0 ? &allocation[i - 1] : NULL;
    return m && (uintptr_t)at - m->at < m->bytes ? m : NULL;
}

int gpu_memory_reserve(void)
{
    bool grown = grow_array((void **)&allocation, &allocations_capacity, allocations, sizeof *allocation);
    return grown ? HVD_SUCCESS : fail(HVD_ERR_MEMORY, "no memory");
}

void gpu_memory_add(const struct gpu_memory *m)
{
    size_t i = find_position(m->at);
    memmove(&allocation[i + 1], &allocation[i], (allocations - i) * sizeof *m);
    allocation[i] = *m;
    allocations++;
    atomic_store(&any, true);
}

static void remove_at(size_t i)
{
    freed -= allocation[i].freed;
    allocations--;
    memmove(&allocation[i], &allocation[i + 1], (allocations - i) * sizeof allocation[0]);
    atomic_store(&any, allocations > 0);
}

bool gpu_memory_any(void)
{
    return atomic_load(&any);
}

struct gpu_memory *gpu_memory_at(const void *at)
{
    size_t i = find_position((uintptr_t)at);
    return i > 0 && allocation[i - 1].at == (uintptr_t)at ? &allocation[i - 1] : NULL;
}

void gpu_memory_mark_freed(struct gpu_memory *m)
{
    m->freed = true;
    freed++;
}

/* Its context is current. */
void gpu_memory_give_back(const struct gpu_memory *m)
{
    if (m->second)
        mapping_close(gpu_state.driver, m->second, m->mapped);
    if (m->by_nccl)
        gpu_state.nccl->ncclMemFree((void *)m->at);
    else
        gpu_state.driver->cuMemFree((cu_pointer)m->at);
}

/* ---- use by an operation ------------------------------------------------------------------------------- */

static bool is_registered(struct gpu_team *team, const struct gpu_memory *m)
{
    if (team->by_engine)
        return gpu_engine_registered(team, m);
    return m->second && communicator_register(team->communicator, (void *)(uintptr_t)m->second, m->mapped);
}

/* Continues the mark; 0: NCCL has not registered the memory, or the mark was 0. */
static uint64_t mark_one(const struct gpu_op *op, uint64_t mark, const void *at)
{
    const struct gpu_memory *m = mark ? find_around(at) : NULL;
    if (!m || m->freed || m->context->gpu != op->team->context->gpu || !is_registered(op->team, m))
        return 0;
    return hash_number(mark, (uintptr_t)at - m->at) | 1;
}

uint64_t gpu_memory_mark(const struct gpu_op *op)
{
    const struct gpu_team *team = op->team;
    uint64_t mark = HASH_EMPTY;
    if (allocations == 0 || team->fsm.state != TEAM_NCCL)
        return 0;
    for (size_t i = 0; i < op->pieces.number && mark; i++) {
        const struct gpu_operation *o = &op->pieces.piece[i];
        if (o->kind != GPU_BROADCAST)
            mark = mark_one(op, mark, o->in);
        mark = mark_one(op, mark, o->out);
    }
    return mark;
}

static void *registered_at(const void *at)
{
    const struct gpu_memory *m = find_around(at);
    return m ? (void *)(uintptr_t)(m->second + ((uintptr_t)at - m->at)) : NULL;
}

const struct gpu_operation *gpu_memory_registered(struct gpu_op *op)
{
    struct gpu_operation *known = op->pieces.piece + op->pieces.capacity;
    for (size_t i = 0; i < op->pieces.number; i++) {
        known[i] = op->pieces.piece[i];
        known[i].in = registered_at(known[i].in);
        known[i].out = registered_at(known[i].out);
    }
    return known;
}

/* ---- freed --------------------------------------------------------------------------------------------- */

static bool lies_in(const struct gpu_memory *m, const void *at)
{
    return (uintptr_t)at - m->at < m->bytes;
}

/* The operations that were not waited for, or that the next poll may go on with. */
bool gpu_memory_is_used(const struct gpu_memory *m)
{
    for (uint32_t slot = 0; slot < SHM_SLOTS && !client.solo; slot++) {
        const struct tensor *t = atomic_load(&client.tensors.by_slot[slot]);
        const struct gpu_op *op = t ? t->gpu : NULL;
        for (size_t i = 0; op && op->phase != GPU_IDLE && i < op->pieces.number; i++)
            if (lies_in(m, op->pieces.piece[i].in) || lies_in(m, op->pieces.piece[i].out))
                return true;
    }
    return false;
}

/* The engine has an operation of the team that is not in a stream yet: its communicator cannot deregister
 * now. */
static bool engine_launches(const struct gpu_team *team)
{
    bool launches = false;
    for (uint32_t slot = 0; slot < SHM_SLOTS && !launches; slot++) {
        const struct tensor *t = atomic_load(&client.tensors.by_slot[slot]);
        const struct gpu_op *op = t ? t->gpu : NULL;
        launches = op && op->team == team && op->by_engine && op->phase == GPU_LAUNCHING;
    }
    return launches;
}

/* The streams are empty of operations that could use the memory, and all communicators can deregister. */
static bool is_passed(const struct gpu_memory *m)
{
    bool passed = true;
    for (const struct gpu_team *t = gpu_state.teams; t && passed; t = t->next) {
        if (!t->context || t->context->gpu != m->context->gpu || gpu_enter(t->context, NULL) != 0)
            continue;
        passed = gpu_state.driver->cuStreamQuery(t->stream) == CU_OK &&
                 (!t->communicator || communicator_state(t->communicator) != COMMUNICATOR_LAUNCHING) &&
                 (!t->by_engine || !engine_launches(t));
        gpu_leave();
    }
    return passed;
}

/* After a failure another rank may still use the memory: hvd_shutdown frees it, after the streams have
 * ended. */
static bool let_go(size_t i)
{
    const struct gpu_memory m = allocation[i];
    if (gpu_state.failed || gpu_memory_is_used(&m) || !is_passed(&m) || gpu_enter(m.context, NULL) != 0)
        return false;
    for (struct gpu_team *t = gpu_state.teams; t; t = t->next) {
        if (t->communicator && m.second)
            communicator_deregister(t->communicator, (void *)(uintptr_t)m.second);
        gpu_engine_deregister(t, &m);
    }
    gpu_export_forget((const void *)m.at);
    bool closed = m.by_nccl || gpu_export_close(0); /* a mapping needs no other one */
    if (closed)
        gpu_memory_give_back(&m);
    gpu_leave();
    if (closed)
        remove_at(i);
    return closed;
}

void gpu_memory_sweep(void)
{
    for (size_t i = allocations; freed > 0 && i-- > 0;)
        if (allocation[i].freed)
            let_go(i);
}

void gpu_memory_close(void)
{
    while (allocations > 0) {
        const struct gpu_memory m = allocation[allocations - 1];
        if (gpu_enter(m.context, NULL) == 0) {
            gpu_memory_give_back(&m);
            gpu_leave();
        }
        remove_at(allocations - 1);
    }
    free(allocation);
    allocation = NULL;
    allocations_capacity = 0;
}
