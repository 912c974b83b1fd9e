/* The loader counts the libraries that a process has opened, so "it is not there" and "it cannot be used"
 * hold until that count changes: neither is found out twice, and a program that opens CUDA late is noticed.
 */
#include "collectives/gpu/library.h"

#include <dlfcn.h>
#include <link.h>

#ifdef HVD_WITHOUT_GPU
#define BUILT_IN false
#else
#define BUILT_IN true
#endif

static int take_count(struct dl_phdr_info *info, size_t size, void *count)
{
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
        *(unsigned long long *)count = info->dlpi_adds;
    return 1; /* the first one says it for all */
}

static unsigned long long library_loads(void)
{
    unsigned long long count = 0;
    dl_iterate_phdr(take_count, &count);
    return count;
}

bool library_in_process(struct library *l)
{
    if (!BUILT_IN)
        return false;
    if (atomic_load_explicit(&l->ready, memory_order_acquire))
        return true;
    unsigned long long now = library_loads();
    if (now != 0 && atomic_load_explicit(&l->absent_at, memory_order_relaxed) == now)
        return false;
    void *handle = dlopen(l->name, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) {
        atomic_store_explicit(&l->absent_at, now, memory_order_relaxed);
        return false;
    }
    dlclose(handle); /* the library stays: another part of the process has opened it */
    return true;
}

static int open_it(struct library *l, struct err *e)
{
    if (!BUILT_IN)
        return err_set(e, ERR_UNSUPPORTED, "this was built without GPUs (WITH_NCCL=no)");
    void *handle = dlopen(l->name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        return err_set(e, ERR_UNSUPPORTED, "there is no %s: %s", l->what, why ? why : l->name);
    }
    if (l->prepare(handle, e) == 0)
        return 0;
    dlclose(handle);
    return -1;
}

int library_open(struct library *l, struct err *e)
{
    if (atomic_load_explicit(&l->ready, memory_order_acquire))
        return 0;
    struct err why = ERR_INIT;
    pthread_mutex_lock(&l->lock);
    bool ready = atomic_load_explicit(&l->ready, memory_order_relaxed);
    if (!ready && l->failed && l->failed_at == library_loads()) {
        why = l->failure;
    } else if (!ready) {
        ready = open_it(l, &why) == 0;
        l->failed = !ready;
        l->failure = why;
        l->failed_at = library_loads();
        atomic_store_explicit(&l->ready, ready, memory_order_release);
    }
    pthread_mutex_unlock(&l->lock);
    if (ready)
        return 0;
    err_set(e, why.code, "%s", why.text);
    return why.hint[0] ? err_hint(e, "%s", why.hint) : -1;
}
