/* Memory that communicators know: registered, and made for that.
 *
 * It has to be alive, of the communicator's device, known to it once, and told off before it is freed and
 * before the communicator is destroyed; an abort forgets it. Operations whose buffers lie in it say so to the
 * other ranks, with the place of the first one, as part of what has to be the same everywhere: the real
 * library takes it for granted. ncclMemAlloc makes memory in two steps, of which another process gets a
 * descriptor, and ncclMemFree takes nothing else. */
#include "tests/gpu/double/nccl_double.h"

#include <stdlib.h>

#define GRANULARITY ((size_t)2 << 20)

struct known {
    struct known *next;
    uint64_t base;
    size_t size;
    void *handle;
    int uses; /* by operations that have not ended */
};

struct change {
    uint64_t at;
    int by;
};

static bool change_count(struct range *range, void *argument)
{
    const struct change *c = argument;

    if (c->at >= range->base && c->at - range->base < range->size)
        range->registered += c->by;
    return true;
}

static void count(uint64_t at, int by)
{
    struct change c = {at, by};

    double_range_each(change_count, &c);
}

static struct known *known_around(struct comm *comm, const void *at)
{
    struct known *k = comm->memory;

    while (k && !((uintptr_t)at >= k->base && (uintptr_t)at - k->base < k->size))
        k = k->next;
    return k;
}

/* The buffers that it uses here; first the one that all ranks have. */
static int buffers_of(const struct comm *comm, const struct op *op, const void *at[2])
{
    bool broadcast = op->kind == KIND_BROADCAST, rooted = broadcast || op->kind == KIND_REDUCE;

    at[0] = op->kind == KIND_RECV || broadcast ? op->recv : op->send;
    at[1] = broadcast ? op->send : op->recv;
    return op->kind >= KIND_SEND || (rooted && comm->rank != op->root) ? 1 : 2;
}

/* 1 + the offset of the first buffer in registered memory; 0: not all buffers of the operation are in
 * such. */
size_t nccl_place_in_known(struct comm *comm, const struct op *op)
{
    const void *at[2];
    struct known *k[2];
    int n = buffers_of(comm, op, at);
    size_t place = 0;

    pthread_mutex_lock(&comm->lock);
    k[0] = known_around(comm, at[0]);
    k[1] = n == 2 ? known_around(comm, at[1]) : k[0];
    if (k[0] && k[1]) {
        place = 1 + (size_t)((uintptr_t)at[0] - k[0]->base);
        k[0]->uses++;
        k[1]->uses++;
    }
    pthread_mutex_unlock(&comm->lock);
    return place;
}

/* The operation has ended, or will not begin. */
void nccl_leave_known(struct comm *comm, const struct op *op)
{
    const void *at[2];
    int n = buffers_of(comm, op, at);
    struct known *k;

    if (!op->known)
        return;
    pthread_mutex_lock(&comm->lock);
    for (int i = 0; i < 2; i++)
        if ((k = known_around(comm, at[n == 2 ? i : 0])))
            k->uses--;
    pthread_mutex_unlock(&comm->lock);
}

/* The lock is held. */
void nccl_forget_memory(struct comm *comm)
{
    struct known *k;

    while ((k = comm->memory)) {
        comm->memory = k->next;
        count(k->base, -1);
        double_handle_drop(HANDLE_REGISTRATION, k->handle);
        free(k);
    }
}

static const char *wrong_with(struct comm *comm, const void *at, size_t size)
{
    struct range r;

    if (comm->state != COMM_READY || comm->late)
        return "the communicator is in progress, or at its end";
    if (!double_range_find((uintptr_t)at, size, &r) || !double_range_usable((uintptr_t)at, size, &r) ||
        r.kind > RANGE_MAPPED)
        return "it is no memory of a device (any more)";
    if (r.device != comm->device)
        return "it is of another device";
    return known_around(comm, at) ? "it is registered already" : NULL;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void *buffer, size_t size, void **registration)
{
    struct known *k;
    struct comm *comm;
    const char *wrong;
    ncclResult_t result = nccl_enter("ncclCommRegister");

    if (result)
        return result;
    comm = nccl_comm(handle);
    if (!comm)
        return nccl_say(ncclInvalidArgument, "ncclCommRegister: no communicator (any more)");
    pthread_mutex_lock(&comm->lock);
    wrong = wrong_with(comm, buffer, size);
    k = wrong ? NULL : malloc(sizeof *k);
    if (k) {
        *k = (struct known){comm->memory, (uintptr_t)buffer, size, double_handle_new(HANDLE_REGISTRATION, k),
                            0};
        comm->memory = k;
        count(k->base, 1);
        *registration = k->handle;
    }
    pthread_mutex_unlock(&comm->lock);
    if (k)
        return ncclSuccess;
    double_misuse("ncclCommRegister: %zu bytes at %p: %s", size, buffer, wrong);
    return nccl_say(ncclInvalidArgument, "ncclCommRegister: %s", wrong);
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void *registration)
{
    struct known *k, **link;
    struct comm *comm;
    ncclResult_t result = nccl_enter("ncclCommDeregister"); /* one that fails has forgotten it all the same */

    comm = nccl_comm(handle);
    k = comm ? double_handle_get(HANDLE_REGISTRATION, registration) : NULL;
    if (!k)
        return nccl_say(ncclInvalidArgument, "ncclCommDeregister: no communicator, or no registration");
    pthread_mutex_lock(&comm->lock);
    if (k->uses || comm->late)
        double_misuse("ncclCommDeregister while operations are under way that use the memory");
    for (link = &comm->memory; *link && *link != k; link = &(*link)->next) {
    }
    if (*link) {
        *link = k->next;
        count(k->base, -1);
        double_handle_drop(HANDLE_REGISTRATION, registration);
        free(k);
    } else {
        double_misuse("ncclCommDeregister of what another communicator has registered");
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* ---- made for it ---- */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made {
    struct made *next;
    CUdeviceptr at;
    size_t size;
} * all_made;

/* Peers can use it as well. */
static CUresult give_access(const struct made *m, int device)
{
    CUmemAccessDesc access[GPUS_MAX];
    size_t n = 0;

    for (int i = 0; i < double_device_count(); i++)
        if (double_are_peers(i, device))
            access[n++] =
                (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(m->at, m->size, access, n);
}

static CUresult make(struct made *m, int device)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle allocation;
    CUresult result = cuMemCreate(&allocation, m->size, &how, 0);

    if (result)
        return result;
    if (!(result = cuMemAddressReserve(&m->at, m->size, 0, 0, 0))) {
        if (!(result = cuMemMap(m->at, m->size, 0, allocation, 0)) && (result = give_access(m, device)))
            cuMemUnmap(m->at, m->size);
        if (result)
            cuMemAddressFree(m->at, m->size);
    }
    cuMemRelease(allocation);
    return result;
}

ncclResult_t ncclMemAlloc(void **pointer, size_t size)
{
    struct context *context;
    struct made *m;
    ncclResult_t result = nccl_enter("ncclMemAlloc");

    if (result)
        return result;
    double_context_current(&context);
    if (!context || !size || !(m = calloc(1, sizeof *m)))
        return nccl_say(ncclUnhandledCudaError, "no current context, or no bytes");
    m->size = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    if (make(m, context->device)) {
        free(m);
        return nccl_say(ncclUnhandledCudaError, "no device memory");
    }
    pthread_mutex_lock(&lock);
    m->next = all_made;
    all_made = m;
    pthread_mutex_unlock(&lock);
    *pointer = (void *)(uintptr_t)m->at;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *pointer)
{
    struct made *m, **link;
    ncclResult_t result = nccl_enter("ncclMemFree");

    if (result)
        return result;
    pthread_mutex_lock(&lock);
    for (link = &all_made; *link && (*link)->at != (uintptr_t)pointer; link = &(*link)->next) {
    }
    m = *link;
    if (m)
        *link = m->next;
    pthread_mutex_unlock(&lock);
    if (!m) {
        double_misuse("ncclMemFree: %p is not from ncclMemAlloc (any more)", pointer);
        return nccl_say(ncclInvalidArgument, "ncclMemFree: %p is not from ncclMemAlloc", pointer);
    }
    if (cuMemUnmap(m->at, m->size) || cuMemAddressFree(m->at, m->size))
        result = nccl_say(ncclUnhandledCudaError, "the memory cannot be unmapped");
    free(m);
    return result;
}
