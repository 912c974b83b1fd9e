/* Memory in two steps, as PyTorch's expandable segments have it: physical allocations (cuMemCreate), reserved
 * addresses, and mappings of the ones into the others. Allocations travel to other processes as file
 * descriptors; the bytes behind the memory's end say which device it is of. A mapping cannot be used before
 * cuMemSetAccess. Mappings that lie one behind the other can be used as one: what the double itself reaches
 * lies likewise, in addresses that are reserved beside the caller's. */
#include "tests/gpu/double/double.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY (2u << 20)
#define TRAILER     4096

struct trailer {
    uint64_t magic;
    int32_t device;
};
#define TRAILER_MAGIC 0x68766476u

struct allocation {
    struct segment segment;
    CUmemGenericAllocationHandle handle;
    size_t size;
    int device, holds; /* handles given out, and mappings */
    unsigned types;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct allocation *get(CUmemGenericAllocationHandle handle)
{
    return double_handle_get(HANDLE_ALLOCATION, (void *)(uintptr_t)handle);
}

static void let_go(struct allocation *a)
{
    bool last;

    pthread_mutex_lock(&lock);
    last = --a->holds == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    double_handle_drop(HANDLE_ALLOCATION, (void *)(uintptr_t)a->handle);
    double_primary(a->device)->used -= a->size;
    double_segment_close(&a->segment);
}

static CUmemGenericAllocationHandle give_out(const struct segment *segment, int device, unsigned types)
{
    struct allocation *a = calloc(1, sizeof *a);

    if (!a)
        abort();
    *a = (struct allocation){
        .segment = *segment, .size = segment->size - TRAILER, .device = device, .holds = 1, .types = types};
    a->handle = (uintptr_t)double_handle_new(HANDLE_ALLOCATION, a);
    double_primary(device)->used += a->size;
    return a->handle;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    struct segment segment;
    struct trailer trailer = {TRAILER_MAGIC, 0};
    struct context *c;

    ENTER("cuMemCreate");
    if (!size || size % GRANULARITY || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->location.id < 0 ||
        prop->location.id >= double_device_count())
        return CUDA_ERROR_INVALID_VALUE;
    c = double_primary(prop->location.id);
    if (c->used + size > (size_t)double_setting("HVD_DOUBLE_MEMORY", 1L << 32) ||
        !double_segment_new(&segment, size + TRAILER, false))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(segment.at, DIRT, DIRTY);
    trailer.device = double_device_physical(c->device);
    memcpy((char *)segment.at + size, &trailer, sizeof trailer);
    *handle = give_out(&segment, c->device, prop->requestedHandleTypes);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct allocation *a;

    ENTER("cuMemRelease");
    a = get(handle);
    if (!a)
        return CUDA_ERROR_INVALID_VALUE;
    let_go(a);
    return CUDA_SUCCESS;
}

struct reservation {
    struct reservation *next;
    uint64_t base;
    size_t size;
    char *alias; /* as much, where the double reaches what is mapped */
};

static struct reservation *reservations;

static char *no_access(void *at, size_t size)
{
    return mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1,
                0);
}

/* The double's own address of bytes that lie in one reservation; NULL: they do not. */
static char *alias_of(uint64_t base, size_t size)
{
    char *alias = NULL;

    pthread_mutex_lock(&lock);
    for (const struct reservation *r = reservations; r && !alias; r = r->next)
        if (base >= r->base && base - r->base < r->size && size <= r->size - (base - r->base))
            alias = r->alias + (base - r->base);
    pthread_mutex_unlock(&lock);
    return alias;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr address,
                             unsigned long long flags)
{
    char *at;
    uint64_t aligned;
    struct reservation *r;

    ENTER("cuMemAddressReserve");
    if (!size || size % GRANULARITY || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    alignment = alignment < GRANULARITY ? GRANULARITY : alignment;
    if (size > SIZE_MAX - alignment || (at = no_access(NULL, size + alignment)) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = calloc(1, sizeof *r);
    if (!r || (r->alias = no_access(NULL, size)) == MAP_FAILED)
        abort();
    aligned = ((uintptr_t)at + alignment - 1) & ~(uint64_t)(alignment - 1);
    if (aligned > (uintptr_t)at)
        munmap(at, aligned - (uintptr_t)at);
    munmap((void *)(uintptr_t)(aligned + size), (uintptr_t)at + alignment - aligned);
    *pointer = r->base = aligned;
    r->size = size;
    pthread_mutex_lock(&lock);
    r->next = reservations;
    reservations = r;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static bool outside(struct range *range, void *argument)
{
    const uint64_t *span = argument;
    return span[0] + span[1] <= range->base || range->base + range->size <= span[0];
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size)
{
    uint64_t span[2] = {pointer, size};
    struct reservation *r = NULL;

    ENTER("cuMemAddressFree");
    if (!pointer || !size || double_range_each(outside, span))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (struct reservation **link = &reservations; *link && !r; link = r ? link : &(*link)->next)
        if ((*link)->base == pointer && (*link)->size == size) {
            r = *link;
            *link = r->next;
        }
    pthread_mutex_unlock(&lock);
    if (!r)
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)pointer, size);
    munmap(r->alias, size);
    free(r);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    struct allocation *a;
    uint64_t span[2] = {pointer, size};
    struct range *r;
    char *alias;

    ENTER("cuMemMap");
    a = get(handle);
    alias = alias_of(pointer, size);
    if (!a || pointer % GRANULARITY || size % GRANULARITY || offset || size != a->size || flags || !alias ||
        double_range_each(outside, span))
        return CUDA_ERROR_INVALID_VALUE;
    if (mmap(alias, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->segment.fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    a->holds++;
    pthread_mutex_unlock(&lock);
    r = double_range_new(RANGE_MAPPED, a->device, pointer, size, alias);
    r->access = 0;
    r->allocation = a;
    return CUDA_SUCCESS;
}

/* All mappings in the range, each whole. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t size)
{
    struct range r;
    uint64_t at = pointer;

    ENTER("cuMemUnmap");
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    while (at < pointer + size) {
        if (!double_range_find(at, 1, &r) || r.kind != RANGE_MAPPED || r.base != at ||
            r.size > pointer + size - at)
            return CUDA_ERROR_INVALID_VALUE;
        at += r.size;
    }
    for (at = pointer; at < pointer + size; at += r.size) {
        if (!double_range_take(at, RANGE_MAPPED, &r))
            return CUDA_ERROR_INVALID_VALUE;
        double_streams_drain(double_primary(r.device));
        no_access(r.alias, r.size);
        let_go(r.allocation);
    }
    return CUDA_SUCCESS;
}

struct access_change {
    uint64_t span[2];
    unsigned given, taken;
    size_t covered;
};

static bool change_access(struct range *range, void *argument)
{
    struct access_change *change = argument;

    if (range->kind == RANGE_MAPPED && !outside(range, change->span)) {
        range->access = (range->access | change->given) & ~change->taken;
        change->covered += range->size;
    }
    return true;
}

static bool is_possible(struct range *range, void *argument)
{
    struct access_change *change = argument;
    bool is = true;

    if (range->kind != RANGE_MAPPED || outside(range, change->span))
        return true;
    for (int i = 0; i < GPUS_MAX; i++)
        is = is && (!(change->given >> i & 1) || double_are_peers(i, range->device));
    return is;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    struct access_change change = {.span = {pointer, size}};

    ENTER("cuMemSetAccess");
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc[i].location.id < 0 ||
            desc[i].location.id >= double_device_count())
            return CUDA_ERROR_INVALID_VALUE;
        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            change.given |= 1u << desc[i].location.id;
        else
            change.taken |= 1u << desc[i].location.id;
    }
    if (count == 0 || double_range_each(is_possible, &change))
        return CUDA_ERROR_INVALID_DEVICE;
    double_range_each(change_access, &change);
    return change.covered == size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct range r;

    ENTER("cuMemRetainAllocationHandle");
    if (!double_range_find((uintptr_t)address, 1, &r) || r.kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    r.allocation->holds++;
    pthread_mutex_unlock(&lock);
    *handle = r.allocation->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    struct allocation *a;
    int fd;

    ENTER("cuMemExportToShareableHandle");
    a = get(handle);
    if (!a || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(a->types & (unsigned)type))
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl(a->segment.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(shareable, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    int fd = (int)(uintptr_t)shareable, device = -1;
    struct segment segment = {0};
    struct trailer trailer;
    struct stat is;

    ENTER("cuMemImportFromShareableHandle");
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &is) < 0 || is.st_size <= TRAILER ||
        pread(fd, &trailer, sizeof trailer, is.st_size - TRAILER) != sizeof trailer ||
        trailer.magic != TRAILER_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < double_device_count(); i++)
        if (double_device_physical(i) == trailer.device)
            device = i;
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    segment.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    segment.size = (size_t)is.st_size;
    segment.at = mmap(NULL, segment.size, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    if (segment.at == MAP_FAILED) {
        close(segment.fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = give_out(&segment, device, (unsigned)type);
    return CUDA_SUCCESS;
}
