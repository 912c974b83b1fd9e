/* Memory of this rank's GPUs that the engine opens as well: each allocation once, until it is freed.
 *
 * The driver numbers allocations, and never gives a number twice. The driver is asked each time for the
 * number at an address: so libhvd notices memory that was freed and allocated again. The engine then closes
 * the old allocation and opens the new one. All allocations under a buffer are asked about. */
#include "collectives/client/gpu/gpu_engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/gpu/gpu_memory.h"
#include "collectives/client/rpc.h"
#include "collectives/shm/numbers.h"
#include "common/base/hash.h"

/* An allocation by the driver's number (`id`) and the engine's (`number`; 0: the engine cannot have it). */
struct gpu_export {
    uintptr_t base;
    uint64_t bytes, id;
    uint32_t number;
};

/* Several allocations, one behind the other, as one more memory of the engine. */
struct gpu_span {
    uintptr_t base;
    uint64_t bytes;
    uint32_t number; /* 0: the engine cannot have it */
};

/* ---- allocations --------------------------------------------------------------------------------------- */

/* 0: the driver does not say. */
static uint64_t ask_driver(unsigned attribute, const void *at)
{
    unsigned long long answer = 0;
    cu_result result = gpu_state.driver->cuPointerGetAttribute(&answer, attribute, (cu_pointer)(uintptr_t)at);
    return result == CU_OK ? answer : 0;
}

/* The allocation's number; 0: the driver has none. Two numbers make it: the buffer's may be that of the
 * addresses alone, and the block's is that of the memory that is mapped there. They are asked for one by one:
 * the call that asks for several has the block's not in its list. */
static uint64_t buffer_id(const void *at)
{
    uint64_t id = ask_driver(CU_POINTER_BUFFER_ID, at), block = ask_driver(CU_POINTER_MEMORY_BLOCK_ID, at);
    return id || block ? hash_number(hash_number(HASH_EMPTY, id), block) | 1 : 0;
}

/* The number of allocations that begin at or before `at`. */
static size_t export_position(const struct gpu_context *c, uintptr_t at)
{
    size_t low = 0, high = c->exports.number;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->exports.item[middle].base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool gpu_export_close(uint32_t number)
{
    struct worker_message m = {.type = WORKER_DEVICE_FORGET, .id = number};
    if (number || gpu_state.closing)
        gpu_state.closing = rpc(&m, -1, NULL, NULL) == HVD_SUCCESS && m.id > 0;
    return !gpu_state.closing;
}

/* ---- several allocations under one buffer -------------------------------------------------------------- */

/* A buffer may lie in several allocations that are mapped one behind the other, as in segments that grow.
 * The engine has each allocation by itself, and maps the allocations under a buffer once more, one behind
 * the other. Such a span has exactly the allocations of a buffer: when one of them goes, nothing uses the
 * span any more and the span goes too. Buffers in the same allocations share one span. */

/* How many are before (base, bytes) in their order. */
static size_t span_position(const struct gpu_context *c, uintptr_t base, uint64_t bytes)
{
    size_t low = 0, high = c->exports.spans;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct gpu_span *s = &c->exports.span[middle];
        if (s->base < base || (s->base == base && s->bytes < bytes))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The engine's number; 0: it cannot have it. */
static uint32_t give_span(const struct gpu_context *c, const struct gpu_export *piece, size_t n)
{
    struct worker_message m = {.type = WORKER_DEVICE_SPAN};
    struct worker_device q = {.gpu = c->exports.engine.gpu};
    uint32_t *number = malloc(n * sizeof *number);
    int status = HVD_ERR_MEMORY;
    for (size_t i = 0; number && i < n; i++)
        number[i] = piece[i].number;
    int fd = number ? numbers_write(number, n) : -1;
    if (fd >= 0) {
        memcpy(m.text, &q, sizeof q);
        status = rpc(&m, fd, NULL, NULL);
        close(fd);
    }
    free(number);
    return status == HVD_SUCCESS ? m.id : 0;
}

static uint32_t find_span(struct gpu_context *c, const struct gpu_export *piece, size_t n)
{
    uintptr_t base = piece[0].base;
    uint64_t bytes = piece[n - 1].base + piece[n - 1].bytes - base;
    size_t i = span_position(c, base, bytes);
    if (i < c->exports.spans && c->exports.span[i].base == base && c->exports.span[i].bytes == bytes)
        return c->exports.span[i].number;
    if (!grow_array((void **)&c->exports.span, &c->exports.spans_capacity, c->exports.spans,
                    sizeof *c->exports.span))
        return 0;
    memmove(&c->exports.span[i + 1], &c->exports.span[i], (c->exports.spans - i) * sizeof *c->exports.span);
    c->exports.span[i] = (struct gpu_span){.base = base, .bytes = bytes, .number = give_span(c, piece, n)};
    c->exports.spans++;
    return c->exports.span[i].number;
}

static void forget_spans(struct gpu_context *c, const struct gpu_export *piece)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->exports.spans; i++) {
        const struct gpu_span *s = &c->exports.span[i];
        if (s->base + s->bytes <= piece->base || piece->base + piece->bytes <= s->base)
            c->exports.span[kept++] = *s;
        else if (s->number)
            gpu_export_close(s->number);
    }
    c->exports.spans = kept;
}

/* ---- known allocations --------------------------------------------------------------------------------- */

static void forget_export(struct gpu_context *c, size_t i)
{
    forget_spans(c, &c->exports.item[i]);
    if (c->exports.item[i].number)
        gpu_export_close(c->exports.item[i].number);
    memmove(&c->exports.item[i], &c->exports.item[i + 1],
            (c->exports.number - i - 1) * sizeof c->exports.item[0]);
    c->exports.number--;
}

/* The known allocation, if it still lies there. Forgets older allocations at the address. */
static struct gpu_export *find_known(struct gpu_context *c, uintptr_t at, uint64_t id)
{
    size_t i;
    while ((i = export_position(c, at)) > 0) {
        struct gpu_export *x = &c->exports.item[i - 1];
        if (at - x->base >= x->bytes)
            return NULL;
        if (x->id == id)
            return x;
        forget_export(c, i - 1);
    }
    return NULL;
}

void gpu_export_forget(const void *at)
{
    for (struct gpu_context *c = gpu_state.contexts; c; c = c->next) {
        size_t i = export_position(c, (uintptr_t)at);
        if (i > 0 && c->exports.item[i - 1].base == (uintptr_t)at)
            forget_export(c, i - 1);
    }
}

void gpu_export_forget_all(void)
{
    for (struct gpu_context *c = gpu_state.contexts; c; c = c->next)
        c->exports.number = c->exports.spans = 0;
    gpu_state.closing = false;
}

/* One allocation may lie where several were before. The driver opens none over what it has open of the same
 * process. */
static void forget_within(struct gpu_context *c, uintptr_t base, uint64_t bytes)
{
    for (size_t i = export_position(c, base + bytes - 1);
         i > 0 && c->exports.item[i - 1].base + c->exports.item[i - 1].bytes > base; i--)
        forget_export(c, i - 1);
}

static struct gpu_export *remember_export(struct gpu_context *c, const struct gpu_export *x)
{
    size_t i = export_position(c, x->base);
    if (!grow_array((void **)&c->exports.item, &c->exports.capacity, c->exports.number, sizeof *x))
        return NULL;
    memmove(&c->exports.item[i + 1], &c->exports.item[i], (c->exports.number - i) * sizeof *x);
    c->exports.item[i] = *x;
    c->exports.number++;
    return &c->exports.item[i];
}

/* ---- to the engine ------------------------------------------------------------------------------------- */

static bool get_handle(const struct pointer_range *range, struct worker_device *q)
{
    struct cu_ipc_memory handle;
    if (gpu_state.driver->cuIpcGetMemHandle(&handle, (cu_pointer)range->base) != CU_OK)
        return false;
    memcpy(q->handle, &handle, sizeof q->handle);
    return true;
}

/* A descriptor of the allocation that is mapped there; -1: there is none. */
static int descriptor_of(const struct pointer_range *range)
{
    const struct driver *d = gpu_state.driver;
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
static bool give_allocation(const struct gpu_context *c, const struct pointer_range *range, uint32_t *number)
{
    struct worker_message m = {.type = WORKER_DEVICE_MEMORY};
    struct worker_device q = {.gpu = c->exports.engine.gpu, .bytes = range->bytes};
    int fd = range->exported == POINTER_BY_FD ? descriptor_of(range) : -1;
    *number = 0;
    if (range->exported == POINTER_BY_FD && fd < 0)
        return true;
    if (range->exported == POINTER_BY_IPC && !get_handle(range, &q))
        return true;
    memcpy(m.text, &q, sizeof q);
    int status = rpc(&m, fd, NULL, NULL);
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
           (range->exported == POINTER_BY_FD && ask_driver(CU_POINTER_MEMORY_BLOCK_ID, at) != 0);
}

/* The allocation there, new or known; NULL: the driver does not know it, or the engine cannot open it yet. */
static const struct gpu_export *find_allocation(struct gpu_context *c, const void *at)
{
    uint64_t id = buffer_id(at);
    const struct gpu_export *x = id ? find_known(c, (uintptr_t)at, id) : NULL;
    struct pointer_range range;
    struct err e = ERR_INIT;
    if (x || !id || pointer_range(at, &range, &e) != 0)
        return x;
    forget_within(c, range.base, range.bytes);
    struct gpu_export new = {.base = range.base, .bytes = range.bytes, .id = id};
    if (is_safe(&range, at) && !give_allocation(c, &range, &new.number))
        return NULL;
    return remember_export(c, &new);
}

bool gpu_export(struct gpu_context *c, const void *at, uint64_t bytes, uint32_t *memory, uint64_t *offset)
{
    const struct gpu_export *x = find_allocation(c, at);
    size_t pieces = 1;
    *memory = 0;
    *offset = 0;
    if (!x)
        return false;
    uintptr_t base = x->base;
    uintptr_t end = base + x->bytes;
    for (; x->number && end - (uintptr_t)at < bytes; pieces++) {
        x = find_allocation(c, (const void *)end);
        if (!x || x->base != end)
            return false;
        end += x->bytes;
    }
    if (x->number) {
        *offset = (uintptr_t)at - base;
        *memory =
            pieces == 1 ? x->number : find_span(c, &c->exports.item[export_position(c, base) - 1], pieces);
    }
    return *memory != 0;
}

/* ---- registered with the engine's communicators -------------------------------------------------------- */

static bool remember_registration(struct gpu_team *team, uintptr_t at, bool registered)
{
    struct gpu_registration *more =
        realloc(team->registrations.item, (team->registrations.number + 1) * sizeof *more);
    if (!more)
        return false; /* the next operation asks again */
    team->registrations.item = more;
    more[team->registrations.number++] = (struct gpu_registration){at, registered};
    return registered;
}

bool gpu_engine_registered(struct gpu_team *team, const struct gpu_memory *m)
{
    struct worker_message q = {.type = WORKER_DEVICE_KNOW, .set = team->team->id};
    for (size_t i = 0; i < team->registrations.number; i++)
        if (team->registrations.item[i].at == m->at)
            return team->registrations.item[i].registered;
    uint64_t offset;
    if (!m->by_nccl || !gpu_export(team->context, (const void *)m->at, m->bytes, &q.id, &offset) ||
        offset != 0 || rpc(&q, -1, NULL, NULL) != HVD_SUCCESS)
        return remember_registration(team, m->at, false);
    return q.id != SHM_DEVICE_ASK_LATER && remember_registration(team, m->at, q.id == SHM_DEVICE_KNOWN);
}

void gpu_engine_deregister(struct gpu_team *team, const struct gpu_memory *m)
{
    for (size_t i = team->registrations.number; i-- > 0;)
        if (team->registrations.item[i].at == m->at)
            team->registrations.item[i] = team->registrations.item[--team->registrations.number];
}
