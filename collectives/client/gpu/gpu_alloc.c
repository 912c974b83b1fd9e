/* hvd_alloc_device and its hvd_free. */
#include "collectives/hvd.h"

#include "collectives/client/gpu/gpu_memory.h"
#include "collectives/client/gpu/gpu_progress.h"
#include "collectives/gpu/mapping.h"

/* ncclMemAlloc takes at least 2 MiB of the GPU, and addresses for twice as much: too much for a bias. NCCL
 * sends tensors of less than this size about as fast from any memory, and groups of them are packed. */
#define LEAST_BY_NCCL (64u << 10)

/* ---- allocate ------------------------------------------------------------------------------------------ */

/* This thread's context, else the primary context of the GPU that has this rank's number on the host. */
static struct gpu_context *find_own_context(struct err *e)
{
    struct pointer at = {.device = true};
    const struct driver *d = driver_open(e);
    int gpus = 0;
    if (!d)
        return NULL;
    cu_device gpu;
    if (d->cuCtxGetCurrent(&at.context) == CU_OK && at.context && d->cuCtxGetDevice(&gpu) == CU_OK) {
        at.ordinal = gpu;
        return gpu_context_find(&at, e);
    }
    at.context = NULL;
    if (driver_check(d, d->cuDeviceGetCount(&gpus), e, "counting GPUs") != 0)
        return NULL;
    if (gpus == 0) {
        err_set(e, ERR_SYSTEM, "there is no GPU");
        return NULL;
    }
    at.ordinal = (int)((uint32_t)client.local_rank % (uint32_t)gpus);
    return gpu_context_find(&at, e);
}

/* Maps the memory at a second address. Without that address NCCL never registers the memory, which costs
 * speed only. */
static void map_again(struct gpu_memory *m)
{
    const struct driver *d = gpu_state.driver;
    struct mapping_part all;
    cu_pointer base;
    if (driver_lacks(d, DRIVER_VMM) || !gpu_state.nccl->ncclCommRegister ||
        !gpu_state.nccl->ncclCommDeregister ||
        d->cuMemGetAddressRange(&base, &m->mapped, (cu_pointer)m->at) != CU_OK ||
        d->cuMemRetainAllocationHandle(&all.allocation, (void *)m->at) != CU_OK)
        return;
    all.bytes = m->mapped;
    if (mapping_open(d, m->context->gpu, &all, 1, &m->second, NULL) != 0)
        m->second = 0;
    d->cuMemRelease(all.allocation);
}

static int clear_memory(const struct gpu_memory *m, struct err *e)
{
    const struct driver *d = gpu_state.driver;
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

static int make_memory(struct gpu_memory *m, struct err *e)
{
    const struct nccl *n = NULL;
    void *at = NULL;
    if (m->bytes >= LEAST_BY_NCCL)
        n = gpu_open_nccl();
    m->by_nccl = n && n->ncclMemAlloc && n->ncclMemFree && n->ncclMemAlloc(&at, m->bytes) == NCCL_OK;
    if (!m->by_nccl) {
        cu_pointer plain;
        if (driver_check(gpu_state.driver, gpu_state.driver->cuMemAlloc(&plain, m->bytes), e,
                         "allocating %zu bytes on GPU %d", m->bytes, m->context->gpu) != 0)
            return -1;
        at = (void *)(uintptr_t)plain;
    }
    m->at = (uintptr_t)at;
    if (m->by_nccl)
        map_again(m);
    if (clear_memory(m, e) == 0)
        return 0;
    gpu_memory_give_back(m);
    return -1;
}

static void *allocate_memory(size_t bytes)
{
    struct gpu_memory m = {.bytes = bytes ? bytes : 1};
    struct err e = ERR_INIT;
    if (gpu_memory_reserve() != HVD_SUCCESS)
        return NULL;
    m.context = find_own_context(&e);
    if (!m.context || gpu_enter(m.context, &e) != 0) {
        fail(HVD_ERR_SYSTEM, "no memory of a GPU: %s", e.text);
        return NULL;
    }
    int rc = make_memory(&m, &e);
    gpu_leave();
    if (rc != 0) {
        fail(HVD_ERR_MEMORY, "%s", e.text);
        return NULL;
    }
    gpu_memory_add(&m);
    return (void *)m.at;
}

void *hvd_alloc_device(size_t bytes)
{
    if (client_check() != HVD_SUCCESS)
        return NULL;
    gpu_look(); /* before gpu_lock, which then finds out whether this thread captures something */
    gpu_lock();
    gpu_memory_sweep();
    void *at = allocate_memory(bytes);
    gpu_unlock();
    return at;
}

/* ---- free ---------------------------------------------------------------------------------------------- */

/* Waits for the streams only when no operation uses the memory: an operation that does may need this thread
 * first. */
static void free_memory(struct gpu_memory *m)
{
    const struct gpu_memory copy = *m;
    gpu_memory_mark_freed(m);
    for (struct gpu_team *t = gpu_state.teams; t; t = t->next)
        if (t->context && t->context->gpu == copy.context->gpu && !gpu_memory_is_used(&copy))
            gpu_drain_team(t, true);
    gpu_memory_sweep();
}

bool gpu_memory_free(void *memory)
{
    if (!gpu_memory_any())
        return false;
    gpu_lock();
    struct gpu_memory *m = gpu_memory_at(memory);
    bool found = m != NULL;
    if (found && !m->freed)
        free_memory(m);
    gpu_unlock();
    return found;
}
