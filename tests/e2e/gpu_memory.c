/* A worker whose tensors lie in memory of all sorts of a GPU: what an engine that runs NCCL has to reach.
 * Each tensor is summed some times, with other numbers each time. Prints "rank N: all right, addresses used
 * again: K" at the end.
 *
 *   gpu_memory again     allocated, used and freed, over and over, mostly at one address
 *   gpu_memory mapped    made by cuMemCreate, for export as descriptors
 *   gpu_memory pieces    the same, of two pieces that lie one behind the other
 *   gpu_memory private   likewise, for no export
 *   gpu_memory nowhere   likewise, where no context is current: nor has such memory one */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/device/driver.h"
#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"

#define PIECE ((size_t)2 << 20) /* what a GPU maps at once */
#define COUNT 1000

static const struct driver *d;
static hvd_options options;
static int rank, size;

static void cu_must(cu_result result, const char *what)
{
    if (result != CU_OK)
        wrong("%s: %s", what, driver_error_name(d, result));
}

static bool without_context;

static void sum(int32_t *gpu)
{
    static int calls;
    int32_t x[COUNT];
    cu_context context;

    calls++;
    for (int i = 0; i < COUNT; i++)
        x[i] = i + calls * (rank + 1);
    gpu_put(gpu, x, sizeof x);
    cu_must(d->cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    if (without_context)
        cu_must(d->cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    must(hvd_allreduce("x", gpu, gpu, COUNT, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    cu_must(d->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    gpu_get(x, gpu, sizeof x);
    for (int i = 0; i < COUNT; i++)
        if (x[i] != size * i + calls * size * (size + 1) / 2)
            wrong("call %d: element %d is %d", calls, i, x[i]);
}

static int again(void)
{
    void *before = NULL;
    int same = 0;

    for (int i = 0; i < 12; i++) {
        void *p = gpu_alloc(sizeof(int32_t[COUNT]) + (size_t)(i / 4) * PIECE);
        same += p == before;
        sum(p);
        sum(p);
        gpu_free(p);
        before = p;
    }
    return same;
}

static cu_pointer map(int pieces, unsigned handle_types)
{
    cu_device gpu;
    cu_must(d->cuCtxGetDevice(&gpu), "cuCtxGetDevice");
    struct cu_allocation_properties how = {
        .type = CU_ALLOCATION_PINNED, .handle_types = handle_types, .location = {CU_LOCATION_DEVICE, gpu}};
    struct cu_access access = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};
    size_t bytes = (size_t)pieces * PIECE;
    cu_pointer at;

    cu_must(d->cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
    for (int i = 0; i < pieces; i++) {
        cu_allocation piece;
        cu_must(d->cuMemCreate(&piece, PIECE, &how, 0), "cuMemCreate");
        cu_must(d->cuMemMap(at + (size_t)i * PIECE, PIECE, 0, piece, 0), "cuMemMap");
        cu_must(d->cuMemRelease(piece), "cuMemRelease");
    }
    cu_must(d->cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
    return at;
}

static void unmap(cu_pointer at, int pieces)
{
    gpu_wait();
    for (int i = 0; i < pieces; i++)
        cu_must(d->cuMemUnmap(at + (size_t)i * PIECE, PIECE), "cuMemUnmap");
    cu_must(d->cuMemAddressFree(at, (size_t)pieces * PIECE), "cuMemAddressFree");
}

static void mapped(int pieces, unsigned handle_types)
{
    for (int i = 0; i < 3; i++) {
        cu_pointer at = map(pieces, handle_types);
        size_t offset = pieces > 1 ? PIECE - sizeof(int32_t[COUNT / 2]) : 4096;
        sum((int32_t *)(uintptr_t)(at + offset));
        sum((int32_t *)(uintptr_t)(at + offset));
        unmap(at, pieces);
    }
}

int main(int argc, char **argv)
{
    const char *word = argc == 2 ? argv[1] : "";
    int same = 0;

    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    gpu_open();
    d = driver_open(NULL);
    options.stream = gpu_stream();
    if (strcmp(word, "again") == 0)
        same = again();
    else if (strcmp(word, "mapped") == 0)
        mapped(1, CU_HANDLE_FD);
    else if (strcmp(word, "pieces") == 0)
        mapped(2, CU_HANDLE_FD);
    else if (strcmp(word, "private") == 0)
        mapped(1, 0);
    else if ((without_context = strcmp(word, "nowhere") == 0))
        mapped(1, 0);
    else
        wrong("usage: gpu_memory again | mapped | pieces | private | nowhere");
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right, addresses used again: %d\n", rank, same);
    return 0;
}
