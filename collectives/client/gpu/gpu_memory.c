/* hvd_alloc_device: memory of a GPU that NCCL uses where it lies, without copies on its way.
 *
 * NCCL does so with memory that a communicator has registered, and takes it for granted that either all ranks
 * give such memory to an operation, at the same place of what they have registered, or none. Programs need
 * not do that: so each allocation has two addresses. The caller's is never registered. The second one, the
 * same memory mapped once more, is registered with a team's communicator when an operation of the team first
 * finds it in the allocation; and it is what NCCL is given when all ranks have said with the operation that
 * theirs can be, and at the same place (device_memory_mark), else the caller's. One thing of the two at a
 * time: an operation is in order with all else that uses the memory, by events.
 *
 *   hvd_alloc_device -> { an operation: registered there } -> hvd_free -> nothing uses it: told off, gone
 *
 * With --gpu-placement engine the engine does all this with its own mappings (engine/device_known.c).
 * Small memory, and all where there is no NCCL, or one without ncclMemAlloc, or a driver without mappings, is
 * plain memory of the driver, and no operation is different for it. */
#include "collectives/client/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/gpu/mapping.h"
#include "common/base/hash.h"

/* ncclMemAlloc takes 2 MiB of the GPU at least, and addresses for as much twice: too much for a bias. What is
 * as small as this NCCL sends about as fast from anywhere, and groups of such are packed. */
#define LEAST_BY_NCCL (64u << 10)

static _Atomic bool any; /* hvd_free has to look here */

/* ---- what there is ------------------------------------------------------------------------------------- */

/* How many begin at or before `at`; they are in ascending order. */
static size_t place_of(uintptr_t at)
{
    size_t low = 0, high = device.memories;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (device.memory[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct device_memory *around(const void *at)
{
    size_t i = place_of((uintptr_t)at);
    const struct device_memory *m = i > 0 ? &device.memory[i - 1] : NULL;

    return m && (uintptr_t)at - m->at < m->bytes ? m : NULL;
}

static int make_room(void)
{
    size_t room = device.memories_room ? 2 * device.memories_room : 16;
    struct device_memory *more;

    if (device.memories < device.memories_room)
        return HVD_SUCCESS;
    if (!(more = realloc(device.memory, room * sizeof *more)))
        return fail(HVD_ERR_MEMORY, "no memory");
    device.memory = more;
    device.memories_room = room;
    return HVD_SUCCESS;
}

static void insert(const struct device_memory *m)
{
    size_t i = place_of(m->at);

    memmove(&device.memory[i + 1], &device.memory[i], (device.memories - i) * sizeof *m);
    device.memory[i] = *m;
    device.memories++;
    atomic_store(&any, true);
}

static void remove_at(size_t i)
{
    device.freed -= device.memory[i].freed;
    device.memories--;
    memmove(&device.memory[i], &device.memory[i + 1], (device.memories - i) * sizeof device.memory[0]);
    atomic_store(&any, device.memories > 0);
}

/* ---- made ---------------------------------------------------------------------------------------------- */

/* This thread's, else the one that all share of the GPU that is this rank's by its number on the host. */
static struct device_context *own_context(struct err *e)
{
    struct pointer at = {.device = true};
    const struct driver *d = driver_open(e);
    cu_device gpu;
    int gpus = 0;

    if (!d)
        return NULL;
    if (d->cuCtxGetCurrent(&at.context) == CU_OK && at.context && d->cuCtxGetDevice(&gpu) == CU_OK) {
        at.ordinal = gpu;
        return device_context_find(&at, e);
    }
    at.context = NULL;
    if (driver_check(d, d->cuDeviceGetCount(&gpus), e, "counting GPUs") != 0)
        return NULL;
    if (gpus == 0) {
        err_set(e, ERR_SYSTEM, "there is no GPU");
        return NULL;
    }
    at.ordinal = (int)((uint32_t)client.local_rank % (uint32_t)gpus);
    return device_context_find(&at, e);
}

/* The same memory at another place. Without it NCCL is never told of it: no more than that. */
static void map_again(struct device_memory *m)
{
    const struct driver *d = device.driver;
    struct mapping_part all;
    cu_pointer base;

    if (driver_lacks(d, DRIVER_VMM) || !device.nccl->ncclCommRegister || !device.nccl->ncclCommDeregister ||
        d->cuMemGetAddressRange(&base, &m->mapped, (cu_pointer)m->at) != CU_OK ||
        d->cuMemRetainAllocationHandle(&all.allocation, (void *)m->at) != CU_OK)
        return;
    all.bytes = m->mapped;
    if (mapping_open(d, m->context->gpu, &all, 1, &m->second, NULL) != 0)
        m->second = 0;
    d->cuMemRelease(all.allocation);
}

static int zero(const struct device_memory *m, struct err *e)
{
    const struct driver *d = device.driver;
    cu_stream stream;
    int rc = driver_stream(d, &stream, e);

    if (rc != 0)
        return rc;
    rc = driver_check(d, d->cuMemsetD8Async((cu_pointer)m->at, 0, m->bytes, stream), e, "clearing memory");
    if (rc == 0)
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "clearing memory");
    d->cuStreamDestroy(stream);
    return rc;
}

/* Its context is current. */
static void give_back(const struct device_memory *m)
{
    if (m->second)
        mapping_close(device.driver, m->second, m->mapped);
    if (m->by_nccl)
        device.nccl->ncclMemFree((void *)m->at);
    else
        device.driver->cuMemFree((cu_pointer)m->at);
}

static int make(struct device_memory *m, struct err *e)
{
    const struct nccl *n = NULL;
    void *at = NULL;
    cu_pointer plain;

    if (m->bytes >= LEAST_BY_NCCL)
        n = device.nccl ? device.nccl : (device.nccl = nccl_open(&device.no_nccl));
    m->by_nccl = n && n->ncclMemAlloc && n->ncclMemFree && n->ncclMemAlloc(&at, m->bytes) == NCCL_OK;
    if (!m->by_nccl) {
        if (driver_check(device.driver, device.driver->cuMemAlloc(&plain, m->bytes), e,
                         "allocating %zu bytes on GPU %d", m->bytes, m->context->gpu) != 0)
            return -1;
        at = (void *)(uintptr_t)plain;
    }
    m->at = (uintptr_t)at;
    if (m->by_nccl)
        map_again(m);
    if (zero(m, e) == 0)
        return 0;
    give_back(m);
    return -1;
}

static void *allocate(size_t bytes)
{
    struct device_memory m = {.bytes = bytes ? bytes : 1};
    struct err e = ERR_INIT;
    int rc;

    if (make_room() != HVD_SUCCESS)
        return NULL;
    if (!(m.context = own_context(&e)) || device_enter(m.context, &e) != 0) {
        fail(HVD_ERR_SYSTEM, "no memory of a GPU: %s", e.text);
        return NULL;
    }
    rc = make(&m, &e);
    device_leave();
    if (rc != 0) {
        fail(HVD_ERR_MEMORY, "%s", e.text);
        return NULL;
    }
    insert(&m);
    return (void *)m.at;
}

void *hvd_alloc_device(size_t bytes)
{
    void *at;

    if (client_check() != HVD_SUCCESS)
        return NULL;
    device_look(); /* before device_lock, which then finds out whether this thread captures something */
    device_lock();
    device_memory_sweep();
    at = allocate(bytes);
    device_unlock();
    return at;
}

/* ---- of an operation ----------------------------------------------------------------------------------- */

static bool is_known(struct device_team *team, const struct device_memory *m)
{
    if (team->by_engine)
        return device_engine_knows(team, m);
    return m->second && communicator_register(team->communicator, (void *)(uintptr_t)m->second, m->mapped);
}

/* Continues the mark; 0: NCCL does not know that memory, or that is over. */
static uint64_t mark_one(const struct device_op *op, uint64_t mark, const void *at)
{
    const struct device_memory *m = mark ? around(at) : NULL;

    if (!m || m->freed || m->context->gpu != op->team->context->gpu || !is_known(op->team, m))
        return 0;
    return hash_number(mark, (uintptr_t)at - m->at) | 1;
}

uint64_t device_memory_mark(const struct device_op *op)
{
    const struct device_team *team = op->team;
    uint64_t mark = HASH_EMPTY;

    if (device.memories == 0 || team->fsm.state != TEAM_NCCL)
        return 0;
    for (size_t i = 0; i < op->operations && mark; i++) {
        const struct device_operation *o = &op->operation[i];
        if (o->kind != DEVICE_BROADCAST)
            mark = mark_one(op, mark, o->in);
        mark = mark_one(op, mark, o->out);
    }
    return mark;
}

static void *known_at(const void *at)
{
    const struct device_memory *m = around(at);

    return m ? (void *)(uintptr_t)(m->second + ((uintptr_t)at - m->at)) : NULL;
}

const struct device_operation *device_memory_known(struct device_op *op)
{
    struct device_operation *known = op->operation + op->room;

    for (size_t i = 0; i < op->operations; i++) {
        known[i] = op->operation[i];
        known[i].in = known_at(known[i].in);
        known[i].out = known_at(known[i].out);
    }
    return known;
}

/* ---- freed --------------------------------------------------------------------------------------------- */

static bool lies_in(const struct device_memory *m, const void *at)
{
    return (uintptr_t)at - m->at < m->bytes;
}

/* An operation that was not waited for, or that the next poll may go on with. */
static bool is_used(const struct device_memory *m)
{
    for (uint32_t slot = 0; slot < SHM_SLOTS && !client.solo; slot++) {
        const struct tensor *t = atomic_load(&client.by_slot[slot]);
        const struct device_op *op = t ? t->device : NULL;
        for (size_t i = 0; op && op->phase != DEVICE_IDLE && i < op->operations; i++)
            if (lies_in(m, op->operation[i].in) || lies_in(m, op->operation[i].out))
                return true;
    }
    return false;
}

/* It has an operation of the team that is not in a stream yet: its communicator cannot be told anything now.
 */
static bool engine_launches(const struct device_team *team)
{
    bool launches = false;

    for (uint32_t slot = 0; slot < SHM_SLOTS && !launches; slot++) {
        const struct tensor *t = atomic_load(&client.by_slot[slot]);
        const struct device_op *op = t ? t->device : NULL;
        launches = op && op->team == team && op->by_engine && op->phase == DEVICE_LAUNCHING;
    }
    return launches;
}

/* Nothing of ours that could use it is in a stream, and all communicators can be told. */
static bool is_passed(const struct device_memory *m)
{
    bool passed = true;

    for (const struct device_team *t = device.teams; t && passed; t = t->next) {
        if (!t->context || t->context->gpu != m->context->gpu || device_enter(t->context, NULL) != 0)
            continue;
        passed = device.driver->cuStreamQuery(t->stream) == CU_OK &&
                 (!t->communicator || communicator_state(t->communicator) != COMMUNICATOR_LAUNCHING) &&
                 (!t->by_engine || !engine_launches(t));
        device_leave();
    }
    return passed;
}

/* After a failure another rank may be in the middle of it: hvd_shutdown, which sees the streams end, does. */
static bool let_go(size_t i)
{
    const struct device_memory m = device.memory[i];
    bool closed;

    if (device.failed || is_used(&m) || !is_passed(&m) || device_enter(m.context, NULL) != 0)
        return false;
    for (struct device_team *t = device.teams; t; t = t->next) {
        if (t->communicator && m.second)
            communicator_deregister(t->communicator, (void *)(uintptr_t)m.second);
        device_engine_knows_no_more(t, &m);
    }
    device_export_forget((const void *)m.at);
    closed = m.by_nccl || device_export_close(0); /* a mapping needs no other one */
    if (closed)
        give_back(&m);
    device_leave();
    if (closed)
        remove_at(i);
    return closed;
}

void device_memory_sweep(void)
{
    for (size_t i = device.memories; device.freed > 0 && i-- > 0;)
        if (device.memory[i].freed)
            let_go(i);
}

/* Waits for the streams only when no operation uses it: one that does may want something else of this thread
 * first. */
static void free_at(size_t i)
{
    const struct device_memory m = device.memory[i];

    device.memory[i].freed = true;
    device.freed++;
    for (struct device_team *t = device.teams; t; t = t->next) {
        if (!t->context || t->context->gpu != m.context->gpu || is_used(&m))
            continue;
        device_team_settle(t, true);
    }
    device_memory_sweep();
}

bool device_memory_free(void *memory)
{
    bool found = false;
    size_t i;

    if (!atomic_load(&any))
        return false;
    device_lock();
    i = place_of((uintptr_t)memory);
    if (i > 0 && device.memory[i - 1].at == (uintptr_t)memory) {
        found = true;
        if (!device.memory[i - 1].freed)
            free_at(i - 1);
    }
    device_unlock();
    return found;
}

void device_memory_close(void)
{
    while (device.memories > 0) {
        const struct device_memory m = device.memory[device.memories - 1];
        if (device_enter(m.context, NULL) == 0) {
            give_back(&m);
            device_leave();
        }
        remove_at(device.memories - 1);
    }
    free(device.memory);
    device.memory = NULL;
    device.memories_room = 0;
}
