#include "tests/e2e/gpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/gpu/driver.h"
#include "tests/e2e/worker.h"

static const struct driver *d;
static cu_stream stream;
static int waits;
static bool arena;     /* GPU_ARENA=1: memory of hvd_alloc_device */
static bool in_pieces; /* GPU_PIECES=1 */

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
    in_pieces = getenv("GPU_PIECES") != NULL;
}

void gpu_begin(int *rank, int *size, hvd_options *options)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(hvd_init(), "hvd_init");
    *rank = hvd_rank();
    *size = hvd_size();
    gpu_open();
    options->stream = gpu_stream();
}

void *gpu_stream(void)
{
    return stream;
}

char *gpu_reserve(size_t pieces)
{
    cu_pointer at;

    cu_must(d->cuMemAddressReserve(&at, pieces * GPU_PIECE, 0, 0, 0), "cuMemAddressReserve");
    return (char *)(uintptr_t)at;
}

void gpu_unreserve(char *at, size_t pieces)
{
    cu_must(d->cuMemAddressFree((cu_pointer)(uintptr_t)at, pieces * GPU_PIECE), "cuMemAddressFree");
}

void gpu_map(char *at, bool shared)
{
    cu_pointer there = (cu_pointer)(uintptr_t)at;
    cu_allocation piece;
    cu_device gpu;

    cu_must(d->cuCtxGetDevice(&gpu), "cuCtxGetDevice");
    struct cu_allocation_properties how = {.type = CU_ALLOCATION_PINNED,
                                           .handle_types = shared ? CU_HANDLE_FD : 0,
                                           .location = {CU_LOCATION_DEVICE, gpu}};
    struct cu_access access = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};
    cu_must(d->cuMemCreate(&piece, GPU_PIECE, &how, 0), "cuMemCreate");
    cu_must(d->cuMemMap(there, GPU_PIECE, 0, piece, 0), "cuMemMap");
    cu_must(d->cuMemRelease(piece), "cuMemRelease");
    cu_must(d->cuMemSetAccess(there, GPU_PIECE, &access, 1), "cuMemSetAccess");
}

void gpu_unmap(char *at)
{
    gpu_wait();
    cu_must(d->cuMemUnmap((cu_pointer)(uintptr_t)at, GPU_PIECE), "cuMemUnmap");
}

static struct pieced {
    struct pieced *next;
    char *base, *at;
    size_t pieces;
} * all_pieced;

static void *alloc_in_pieces(size_t bytes)
{
    struct pieced *p = malloc(sizeof *p);
    size_t before = bytes / 2 / 16 * 16;

    if (!p)
        wrong("no memory");
    *p = (struct pieced){.next = all_pieced, .pieces = 2 + bytes / GPU_PIECE};
    p->base = gpu_reserve(p->pieces);
    p->at = p->base + GPU_PIECE - before % GPU_PIECE;
    for (size_t i = 0; i < p->pieces; i++)
        gpu_map(p->base + i * GPU_PIECE, true);
    all_pieced = p;
    return p->at;
}

static void free_pieces(void *at)
{
    struct pieced **link = &all_pieced, *p;

    while (*link && (*link)->at != at)
        link = &(*link)->next;
    if (!(p = *link))
        wrong("%p is none of the pieces", at);
    for (size_t i = 0; i < p->pieces; i++)
        gpu_unmap(p->base + i * GPU_PIECE);
    gpu_unreserve(p->base, p->pieces);
    *link = p->next;
    free(p);
}

void *gpu_alloc(size_t bytes)
{
    cu_pointer p;

    if (in_pieces)
        return alloc_in_pieces(bytes);
    if (arena) {
        void *known = hvd_alloc_device(bytes + (64 << 10)); /* less is nothing to NCCL */
        return known ? known : (wrong("%s", hvd_last_error()), NULL);
    }
    cu_must(d->cuMemAlloc(&p, bytes ? bytes : 1), "cuMemAlloc");
    return (void *)(uintptr_t)p;
}

void gpu_free(void *memory)
{
    gpu_wait();
    if (in_pieces)
        free_pieces(memory);
    else if (arena)
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

static void *symbol_of(const char *name)
{
    void *driver = dlopen(DRIVER_LIBRARY, RTLD_LAZY), *symbol = driver ? dlsym(driver, name) : NULL;

    if (!symbol)
        wrong("the driver has no %s", name);
    return symbol;
}

void gpu_fail(const char *list)
{
    void (*fail)(const char *);
    void *symbol = symbol_of("double_fail");

    memcpy(&fail, &symbol, sizeof fail);
    fail(list);
}

static cu_stream other;

void gpu_capture(bool own, bool global)
{
    cu_result (*begin)(cu_stream, unsigned);
    void *symbol = symbol_of("cuStreamBeginCapture_v2");

    memcpy(&begin, &symbol, sizeof begin);
    if (!other)
        cu_must(d->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING_FLAG), "cuStreamCreate");
    cu_must(begin(own ? stream : other, global ? CU_CAPTURE_MODE_GLOBAL : 1), "cuStreamBeginCapture");
}

static cu_result end_capture(cu_stream of)
{
    cu_result (*end)(cu_stream, void **);
    void *symbol = symbol_of("cuStreamEndCapture"), *graph;

    memcpy(&end, &symbol, sizeof end);
    return end(of, &graph);
}

void gpu_captured(bool own, const char *beside)
{
    cu_must(end_capture(own ? stream : other), beside);
}

bool gpu_capture_spoilt(void)
{
    return end_capture(other) != CU_OK;
}

int gpu_waits(void)
{
    return waits;
}
