/* Memory of this rank's GPUs that the engine opens as well: each allocation once, kept until it has gone.
 *
 * The driver numbers allocations, and never gives a number twice. What lies at an address is asked each time,
 * so that memory which was freed and allocated again is noticed: the engine lets the old one go, and opens
 * the new one. A buffer may lie in several (gpu_span.c): all of them are asked about. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/gpu/gpu.h"
#include "collectives/gpu/pointer.h"
#include "common/base/hash.h"

/* 0: the driver does not say. */
static uint64_t ask(unsigned attribute, const void *at)
{
    unsigned long long answer = 0;
    cu_result result = device.driver->cuPointerGetAttribute(&answer, attribute, (cu_pointer)(uintptr_t)at);

    return result == CU_OK ? answer : 0;
}

/* The allocation's number; 0: the driver has none. Two numbers make it: the buffer's may be that of the
 * addresses alone, and the block's is that of the memory that is mapped there. They are asked for one by one:
 * the call that asks for several has the block's not in its list. */
static uint64_t buffer_id(const void *at)
{
    uint64_t id = ask(CU_POINTER_BUFFER_ID, at), block = ask(CU_POINTER_MEMORY_BLOCK_ID, at);

    return id || block ? hash_number(hash_number(HASH_EMPTY, id), block) | 1 : 0;
}

/* The last allocation that begins at or before `at`, one behind it; they are in ascending order. */
static size_t place_of(const struct device_context *c, uintptr_t at)
{
    size_t low = 0, high = c->exports;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->exported[middle].base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool device_export_close(uint32_t number)
{
    struct worker_message m = {.type = WORKER_DEVICE_FORGET, .id = number};

    if (number || device.closing)
        device.closing = rpc(&m, -1, NULL, NULL) == HVD_SUCCESS && m.id > 0;
    return !device.closing;
}

static void forget(struct device_context *c, size_t i)
{
    device_spans_forget(c, &c->exported[i]);
    if (c->exported[i].number)
        device_export_close(c->exported[i].number);
    memmove(&c->exported[i], &c->exported[i + 1], (c->exports - i - 1) * sizeof c->exported[0]);
    c->exports--;
}

/* What is known of it, if that still lies there. */
static struct device_export *known(struct device_context *c, uintptr_t at, uint64_t id)
{
    size_t i;

    while ((i = place_of(c, at)) > 0) {
        struct device_export *x = &c->exported[i - 1];
        if (at - x->base >= x->bytes)
            return NULL;
        if (x->id == id)
            return x;
        forget(c, i - 1);
    }
    return NULL;
}

void device_export_forget(const void *at)
{
    for (struct device_context *c = device.contexts; c; c = c->next) {
        size_t i = place_of(c, (uintptr_t)at);
        if (i > 0 && c->exported[i - 1].base == (uintptr_t)at)
            forget(c, i - 1);
    }
}

void device_export_forget_all(void)
{
    for (struct device_context *c = device.contexts; c; c = c->next)
        c->exports = c->spans = 0;
    device.closing = false;
}

/* One allocation may lie where several were before. The driver opens none over what it has open of the same
 * process. */
static void forget_within(struct device_context *c, uintptr_t base, uint64_t bytes)
{
    for (size_t i = place_of(c, base + bytes - 1);
         i > 0 && c->exported[i - 1].base + c->exported[i - 1].bytes > base; i--)
        forget(c, i - 1);
}

static struct device_export *remember(struct device_context *c, const struct device_export *x)
{
    size_t i = place_of(c, x->base);

    if (c->exports == c->exports_room) {
        size_t room = c->exports_room ? 2 * c->exports_room : 64;
        struct device_export *more = realloc(c->exported, room * sizeof *more);
        if (!more)
            return NULL;
        c->exported = more;
        c->exports_room = room;
    }
    memmove(&c->exported[i + 1], &c->exported[i], (c->exports - i) * sizeof *x);
    c->exported[i] = *x;
    c->exports++;
    return &c->exported[i];
}

/* ---- to the engine ------------------------------------------------------------------------------------- */

static bool by_handle(const struct pointer_range *range, struct worker_device *q)
{
    struct cu_ipc_memory handle;

    if (device.driver->cuIpcGetMemHandle(&handle, (cu_pointer)range->base) != CU_OK)
        return false;
    memcpy(q->handle, &handle, sizeof q->handle);
    return true;
}

/* A descriptor of the allocation that is mapped there; -1: there is none. */
static int descriptor_of(const struct pointer_range *range)
{
    const struct driver *d = device.driver;
    cu_allocation allocation;
    int fd = -1;

    if (d->cuMemRetainAllocationHandle(&allocation, (void *)range->base) != CU_OK)
        return -1;
    if (d->cuMemExportToShareableHandle(&fd, allocation, CU_HANDLE_FD, 0) != CU_OK)
        fd = -1;
    d->cuMemRelease(allocation);
    return fd;
}

/* The engine's number; 0: it cannot have it. false: not yet. */
static bool give(const struct device_context *c, const struct pointer_range *range, uint32_t *number)
{
    struct worker_message m = {.type = WORKER_DEVICE_MEMORY};
    struct worker_device q = {.gpu = c->engine.gpu, .bytes = range->bytes};
    int fd = -1, status;

    *number = 0;
    if (range->exported == POINTER_BY_FD && (fd = descriptor_of(range)) < 0)
        return true;
    if (range->exported == POINTER_BY_IPC && !by_handle(range, &q))
        return true;
    memcpy(m.text, &q, sizeof q);
    status = rpc(&m, fd, NULL, NULL);
    if (fd >= 0)
        close(fd);
    *number = status == HVD_SUCCESS ? m.id : 0;
    return status != HVD_SUCCESS || *number;
}

/* Memory that is mapped may be replaced by other memory at its addresses, and only the block's number says
 * so. */
static bool is_safe(const struct pointer_range *range, const void *at)
{
    return range->exported == POINTER_BY_IPC ||
           (range->exported == POINTER_BY_FD && ask(CU_POINTER_MEMORY_BLOCK_ID, at) != 0);
}

/* The allocation there, new or known; NULL: the driver does not tell, or the engine cannot have it yet. */
static const struct device_export *find(struct device_context *c, const void *at)
{
    uint64_t id = buffer_id(at);
    const struct device_export *x = id ? known(c, (uintptr_t)at, id) : NULL;
    struct pointer_range range;
    struct err e = ERR_INIT;

    if (x || !id || pointer_range(at, &range, &e) != 0)
        return x;
    forget_within(c, range.base, range.bytes);
    struct device_export new = {.base = range.base, .bytes = range.bytes, .id = id};
    if (is_safe(&range, at) && !give(c, &range, &new.number))
        return NULL;
    return remember(c, &new);
}

bool device_export(struct device_context *c, const void *at, uint64_t bytes, uint32_t *memory,
                   uint64_t *offset)
{
    const struct device_export *x = find(c, at);
    uintptr_t base, end;
    size_t pieces = 1;

    *memory = 0;
    *offset = 0;
    if (!x)
        return false;
    base = x->base;
    end = base + x->bytes;
    for (; x->number && end - (uintptr_t)at < bytes; pieces++) {
        if (!(x = find(c, (const void *)end)) || x->base != end)
            return false;
        end += x->bytes;
    }
    if (x->number) {
        *offset = (uintptr_t)at - base;
        *memory = pieces == 1 ? x->number : device_span(c, &c->exported[place_of(c, base) - 1], pieces);
    }
    return *memory != 0;
}
