/* Memory of devices: a memfd, an address range that nobody may touch (what the caller gets), and a second
 * mapping of the memfd through which the double works. As with the driver, the address of freed memory is
 * given to the next allocation of that size, or to a larger one that lies where several were, memory is freed
 * only when all streams of the device are idle, and other processes open it by a handle. */
#include "tests/gpu/double/double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static uint64_t last_id;

enum { BEHIND = 0x5a };          /* fills the rest of an allocation's last page */
#define CHUNK ((size_t)64 << 20) /* of addresses, taken at once: allocations lie side by side */

/* Addresses to be used again. */
static struct hole {
    struct hole *next;
    uint64_t base;
    size_t size;
} * holes;

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* The first hole of that size, or the first one in which there is room. */
static struct hole **hole_for(size_t size)
{
    struct hole **larger = NULL, **link;

    for (link = &holes; *link && (*link)->size != size; link = &(*link)->next)
        if ((*link)->size > size && !larger)
            larger = link;
    return *link ? link : larger;
}

/* Neighbours become one. */
static void unreserve_locked(uint64_t base, size_t size)
{
    struct hole *hole = malloc(sizeof *hole), **link = &holes, *h;

    if (!hole)
        return;
    while ((h = *link)) {
        if (h->base + h->size != base && base + size != h->base) {
            link = &h->next;
            continue;
        }
        base = h->base < base ? h->base : base;
        size += h->size;
        *link = h->next;
        free(h);
    }
    *hole = (struct hole){holes, base, size};
    holes = hole;
}

static void unreserve(uint64_t base, size_t size)
{
    pthread_mutex_lock(&lock);
    unreserve_locked(base, size);
    pthread_mutex_unlock(&lock);
}

static uint64_t reserve(size_t size)
{
    size_t chunk = size > CHUNK ? size : CHUNK;
    struct hole **link, *hole;
    uint64_t base = 0;
    void *at;

    pthread_mutex_lock(&lock);
    if (!hole_for(size)) {
        at = mmap(NULL, chunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at != MAP_FAILED)
            unreserve_locked((uintptr_t)at, chunk);
    }
    if ((link = hole_for(size))) {
        hole = *link;
        base = hole->base;
        hole->base += size;
        hole->size -= size;
        if (hole->size == 0) {
            *link = hole->next;
            free(hole);
        }
    }
    pthread_mutex_unlock(&lock);
    return base;
}

struct range *double_range_new(enum range_kind kind, int device, uint64_t base, size_t size, char *alias)
{
    struct range *r = calloc(1, sizeof *r);

    if (!r)
        abort();
    r->kind = kind;
    r->device = device;
    r->base = base;
    r->size = size;
    r->alias = alias;
    r->access = EVERY_DEVICE;
    pthread_mutex_lock(&lock);
    r->id = ++last_id;
    r->next = ranges;
    ranges = r;
    pthread_mutex_unlock(&lock);
    return r;
}

struct context *double_range_context(const struct range *r)
{
    return r->context ? r->context : double_primary(r->device);
}

bool double_range_find(uint64_t address, size_t bytes, struct range *copy)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (struct range *r = ranges; r && !found; r = r->next)
        if (address >= r->base && address - r->base < r->size && bytes <= r->size - (address - r->base)) {
            *copy = *r;
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool double_range_take(uint64_t base, enum range_kind kind, struct range *copy)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (struct range **link = &ranges; *link && !found; link = found ? link : &(*link)->next)
        if ((*link)->base == base && (*link)->kind == kind) {
            struct range *r = *link;

            *copy = *r;
            *link = r->next;
            free(r);
            found = true;
        }
    pthread_mutex_unlock(&lock);
    if (found && copy->registered)
        double_misuse("memory is freed that %d communicators have registered", copy->registered);
    return found;
}

/* Until `keep` says no, for the one that is returned; under the lock. */
struct range *double_range_each(bool (*keep)(struct range *range, void *argument), void *argument)
{
    struct range *r;

    pthread_mutex_lock(&lock);
    for (r = ranges; r && keep(r, argument); r = r->next) {
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static bool has_access(const struct range *r, int device)
{
    return r->access >> device & r->access >> r->device & 1;
}

bool double_range_usable_by(int device, uint64_t address, size_t bytes, struct range *copy)
{
    struct range r;
    uint64_t has;

    if (!double_range_find(address, 1, copy) || !has_access(copy, device))
        return false;
    has = copy->size - (address - copy->base);
    for (r = *copy; has < bytes; has += r.size)
        if (r.kind != RANGE_MAPPED || !double_range_find(address + has, 1, &r) || r.kind != RANGE_MAPPED ||
            !has_access(&r, device) || r.device != copy->device ||
            r.alias != copy->alias + (r.base - copy->base))
            return false;
    return true;
}

bool double_range_usable(uint64_t address, size_t bytes, struct range *copy)
{
    return double_range_find(address, 1, copy) && double_range_usable_by(copy->device, address, bytes, copy);
}

char *double_reach(uint64_t address, size_t bytes)
{
    struct range r;

    return double_range_usable(address, bytes, &r) ? r.alias + (address - r.base) : NULL;
}

char *double_reach_or_break(struct context *context, uint64_t address, size_t bytes, const char *what)
{
    struct range r;

    if (double_range_usable_by(context->device, address, bytes, &r))
        return r.alias + (address - r.base);
    double_misuse("%s: %zu bytes at %#llx are no memory that device %d can use (any more)", what, bytes,
                  (unsigned long long)address, context->device);
    context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    return NULL;
}

/* Reports a write behind the end of an allocation, by a kernel or a copy of any process or of NCCL. Called
 * when the memory is freed. */
static void look_behind(const struct range *r)
{
    for (size_t i = r->asked; i < r->size; i++)
        if (r->alias[i] != BEHIND) {
            double_misuse("an allocation of %zu bytes was written to behind its end, at %zu", r->asked, i);
            return;
        }
}

/* ---- the interface: device memory ---- */
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct context *c;
    struct segment segment;
    struct range *r;
    size_t size = round_up(bytes, 4096);
    uint64_t base;

    ENTER_CONTEXT("cuMemAlloc_v2", c);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->used + size > (size_t)double_setting("HVD_DOUBLE_MEMORY", 1L << 32) || size < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    base = reserve(size);
    if (!base || !double_segment_new(&segment, size, false))
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->used += size;
    memset(segment.at, DIRT, size < DIRTY ? size : DIRTY);
    r = double_range_new(RANGE_DEVICE, c->device, base, size, segment.at);
    r->segment = segment;
    r->asked = bytes;
    r->context = c;
    memset(r->alias + bytes, BEHIND, size - bytes);
    *pointer = base;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct context *c;
    struct range r;

    ENTER_CONTEXT("cuMemFree_v2", c);
    if (!pointer)
        return CUDA_SUCCESS;
    if (!double_range_find(pointer, 1, &r) || r.base != pointer || r.kind != RANGE_DEVICE) {
        double_misuse("cuMemFree: %#llx is not the start of an allocation", pointer);
        return CUDA_ERROR_INVALID_VALUE;
    }
    double_streams_drain(double_range_context(&r));
    if (!double_range_take(pointer, RANGE_DEVICE, &r))
        return CUDA_ERROR_INVALID_VALUE;
    look_behind(&r);
    if (double_segment_is_held(&r.segment))
        double_trace("freed-while-open");
    double_range_context(&r)->used -= r.size;
    double_segment_close(&r.segment);
    unreserve(r.base, r.size);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
    struct range r;

    ENTER("cuMemGetAddressRange_v2");
    if (!double_range_find(pointer, 1, &r) || r.kind == RANGE_REGISTERED)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = r.base;
    if (size)
        *size = r.size;
    return CUDA_SUCCESS;
}

/* ---- memory of the host ---- */
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    struct context *c;
    size_t size = round_up(bytes, 4096);
    void *at;

    ENTER_CONTEXT("cuMemHostAlloc", c);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    double_range_new(RANGE_PINNED, c->device, (uintptr_t)at, size, at);
    *pointer = at;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *pointer)
{
    struct context *c;
    struct range r;

    ENTER_CONTEXT("cuMemFreeHost", c);
    if (!double_range_find((uintptr_t)pointer, 1, &r) || r.base != (uintptr_t)pointer ||
        r.kind != RANGE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    double_streams_drain(c);
    if (double_range_take((uintptr_t)pointer, RANGE_PINNED, &r))
        munmap(pointer, r.size);
    return CUDA_SUCCESS;
}

struct overlap {
    uint64_t base, end;
};

/* Whole pages are registered, and none twice. */
static struct overlap pages_of(uint64_t base, size_t size)
{
    return (struct overlap){base / 4096 * 4096, round_up(base + size, 4096)};
}

static bool apart(struct range *range, void *argument)
{
    const struct overlap *o = argument;
    struct overlap has = pages_of(range->base, range->size);
    return o->end <= has.base || has.end <= o->base;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    struct context *c;
    struct overlap o = pages_of((uintptr_t)pointer, bytes);

    ENTER_CONTEXT("cuMemHostRegister_v2", c);
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (double_range_each(apart, &o))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    double_range_new(RANGE_REGISTERED, c->device, (uintptr_t)pointer, bytes, pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *pointer)
{
    struct context *c;
    struct range r;

    ENTER_CONTEXT("cuMemHostUnregister", c);
    return double_range_take((uintptr_t)pointer, RANGE_REGISTERED, &r)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* ---- memory of other processes ---- */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct range r;
    struct segment_name name;

    ENTER("cuIpcGetMemHandle");
    if (!double_range_find(pointer, 1, &r) || r.kind != RANGE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    double_segment_tell(&r.segment, &name);
    name.device = double_device_physical(r.device);
    name.id = 0;
    name.base = r.base;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &name, sizeof name);
    return CUDA_SUCCESS;
}

static bool not_opened(struct range *range, void *argument)
{
    const struct segment_name *name = argument;

    if (range->kind != RANGE_IPC || memcmp(&range->from, name, sizeof *name) != 0)
        return true;
    range->opened++;
    return false;
}

/* Memory of one process of which something that was at these addresses is open still. */
static bool elsewhere(struct range *range, void *argument)
{
    const struct segment_name *name = argument, *from = &range->from;

    return range->kind != RANGE_IPC || from->pid != name->pid || from->device != name->device ||
           from->base + from->size <= name->base || name->base + name->size <= from->base;
}

/* The same handle opened again is the same address, to be closed as often. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    struct context *c;
    struct segment_name name;
    struct segment segment;
    struct range *r;
    uint64_t base;

    ENTER_CONTEXT("cuIpcOpenMemHandle_v2", c);
    memcpy(&name, &handle, sizeof name);
    if (flags != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (name.pid == getpid()) {
        double_misuse("cuIpcOpenMemHandle: the handle is one of this process");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    r = double_range_each(not_opened, &name);
    if (r) {
        *pointer = r->base;
        return CUDA_SUCCESS;
    }
    if (double_range_each(elsewhere, &name))
        return CUDA_ERROR_ALREADY_MAPPED;
    if (!double_segment_open(&segment, &name, name.size) || !double_segment_hold(&segment))
        return CUDA_ERROR_INVALID_VALUE;
    base = reserve(segment.size);
    if (!base)
        return CUDA_ERROR_MAP_FAILED;
    r = double_range_new(RANGE_IPC, c->device, base, segment.size, segment.at);
    r->segment = segment;
    r->from = name;
    r->opened = 1;
    r->access = 1u << c->device; /* the manual promises no more */
    *pointer = base;
    return CUDA_SUCCESS;
}

static bool still_opened(struct range *range, void *argument)
{
    const uint64_t *base = argument;
    return range->kind != RANGE_IPC || range->base != *base || --range->opened == 0;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    struct context *c;
    struct range r;
    uint64_t base = pointer;

    ENTER_CONTEXT("cuIpcCloseMemHandle", c);
    if (!double_range_find(pointer, 1, &r) || r.base != pointer || r.kind != RANGE_IPC)
        return CUDA_ERROR_INVALID_VALUE;
    if (double_range_each(still_opened, &base))
        return CUDA_SUCCESS;
    double_streams_drain(c);
    if (double_range_take(pointer, RANGE_IPC, &r)) {
        double_segment_close(&r.segment);
        unreserve(r.base, r.size);
    }
    return CUDA_SUCCESS;
}
