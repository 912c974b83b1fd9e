/* The driver answers for any address: for an address it does not know, every attribute is zero. Sometimes
 * the driver does not answer: while the process ends, in a child of fork, after a fault on a GPU, with a
 * context that was destroyed. Then memory that this process can read counts as the host's: trouble of a GPU
 * must not stop work that needs no GPU. */
#include "collectives/gpu/pointer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct pointer of_host(void)
{
    return (struct pointer){.ordinal = -1};
}

/* Managed memory belongs to no GPU in particular: the thread's own is as good as any. */
static int current_device(const struct driver *d)
{
    cu_device device;
    return d->cuCtxGetDevice(&device) == CU_OK ? device : 0;
}

/* The kernel reads the set of signals before it refuses what to do with it. */
static bool is_readable(const void *p)
{
    const void *at = (const void *)((uintptr_t)p & ~(uintptr_t)7);
    int before = errno;
    bool readable = syscall(SYS_rt_sigprocmask, ~0L, at, NULL, 8L) == 0 || errno != EFAULT;
    errno = before;
    return readable;
}

int pointer_find(const void *p, struct pointer *into, struct err *e)
{
    *into = of_host();
    if (!p || !driver_in_process())
        return 0;
    const struct driver *d = driver_open(NULL);
    if (!d)
        return 0; /* a driver that cannot be used has given nobody memory */
    unsigned attribute[] = {CU_POINTER_MEMORY_TYPE, CU_POINTER_IS_MANAGED, CU_POINTER_DEVICE,
                            CU_POINTER_CONTEXT};
    unsigned type = 0, managed = 0; /* the driver may write a bool's one byte */
    int ordinal = -1;
    cu_context context = NULL;
    void *value[] = {&type, &managed, &ordinal, &context};
    cu_result result = d->cuPointerGetAttributes(4, attribute, value, (cu_pointer)(uintptr_t)p);
    if (result != CU_OK)
        return is_readable(p) ? 0 : driver_check(d, result, e, "asking which memory %p is", p);
    if (!managed && type != CU_MEMORY_DEVICE)
        return 0;
    into->device = true;
    into->managed = managed != 0;
    into->ordinal = ordinal >= 0 ? ordinal : current_device(d);
    into->context = context;
    return 0;
}

int pointer_range(const void *p, struct pointer_range *into, struct err *e)
{
    memset(into, 0, sizeof *into);
    const struct driver *d = driver_open(e);
    if (!d)
        return -1;
    cu_pointer at = (cu_pointer)(uintptr_t)p, base = 0;
    size_t bytes = 0;
    cu_result result = d->cuMemGetAddressRange(&base, &bytes, at);
    if (result != CU_OK)
        return driver_check(d, result, e, "finding the allocation around %p", p);
    into->base = (uintptr_t)base;
    into->bytes = bytes;
    unsigned attribute[] = {CU_POINTER_LEGACY_IPC, CU_POINTER_HANDLE_TYPES};
    unsigned legacy = 0;
    unsigned long long handles = 0;
    void *value[] = {&legacy, &handles};
    if (d->cuPointerGetAttributes(2, attribute, value, at) != CU_OK)
        return 0; /* a driver that does not know these: by neither way */
    if (legacy && !driver_lacks(d, DRIVER_IPC))
        into->exported = POINTER_BY_IPC;
    else if ((handles & CU_HANDLE_FD) && !driver_lacks(d, DRIVER_VMM))
        into->exported = POINTER_BY_FD;
    return 0;
}

struct pointer_text pointer_text(const struct pointer *p)
{
    struct pointer_text t;
    if (p->device)
        snprintf(t.text, sizeof t.text, "%smemory of GPU %d", p->managed ? "managed " : "", p->ordinal);
    else
        snprintf(t.text, sizeof t.text, "host memory");
    return t;
}
