#include "tests/e2e/gpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/device/driver.h"
#include "tests/e2e/worker.h"

static const struct driver *d;
static cu_stream stream;
static int waits;
static bool arena; /* GPU_ARENA=1: memory of hvd_alloc_device */

static void cu_must(cu_result result, const char *what)
{
    if (result != CU_OK)
        wrong("%s: %s", what, driver_error_name(d, result));
}

void gpu_open(void)
{
    struct err e = ERR_INIT;
    cu_context context;
    cu_device gpu;
    int count;

    if (!(d = driver_open(&e)))
        wrong("no GPU: %s", e.text);
    cu_must(d->cuDeviceGetCount(&count), "cuDeviceGetCount");
    cu_must(d->cuDeviceGet(&gpu, hvd_local_rank() % count), "cuDeviceGet");
    cu_must(d->cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
    cu_must(d->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cu_must(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING_FLAG), "cuStreamCreate");
    arena = getenv("GPU_ARENA") != NULL;
}

void *gpu_stream(void)
{
    return stream;
}

void *gpu_alloc(size_t bytes)
{
    cu_pointer p;

    if (arena) {
        void *known = hvd_alloc_device(bytes);
        return known ? known : (wrong("%s", hvd_last_error()), NULL);
    }
    cu_must(d->cuMemAlloc(&p, bytes ? bytes : 1), "cuMemAlloc");
    return (void *)(uintptr_t)p;
}

void gpu_free(void *memory)
{
    gpu_wait();
    if (arena)
        hvd_free(memory);
    else
        cu_must(d->cuMemFree((cu_pointer)(uintptr_t)memory), "cuMemFree");
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    waits += bytes > 0; /* the host's memory is not pinned */
    if (bytes > 0)
        cu_must(d->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)to, from, bytes, stream), "cuMemcpyHtoDAsync");
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        cu_must(d->cuMemcpyDtoHAsync(to, (cu_pointer)(uintptr_t)from, bytes, stream), "cuMemcpyDtoHAsync");
    waits += bytes > 0;
    gpu_wait();
}

void gpu_wait(void)
{
    waits++;
    cu_must(d->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

static void pause_stream(void *ms)
{
    usleep((unsigned)(uintptr_t)ms * 1000);
}

void gpu_pause(unsigned ms)
{
    cu_must(d->cuLaunchHostFunc(stream, pause_stream, (void *)(uintptr_t)ms), "cuLaunchHostFunc");
}

void gpu_fail(const char *list)
{
    void *driver = dlopen(DRIVER_LIBRARY, RTLD_LAZY), *symbol = driver ? dlsym(driver, "double_fail") : NULL;
    void (*fail)(const char *);

    if (!symbol)
        wrong("no double of the driver");
    memcpy(&fail, &symbol, sizeof fail);
    fail(list);
}

int gpu_waits(void)
{
    return waits;
}
