/* A worker whose tensors lie in memory of all sorts of a GPU: what an engine that runs NCCL has to reach.
 * Each tensor is summed some times, with other numbers each time. Prints "rank N: all right, addresses used
 * again: K" at the end.
 *
 *   gpu_memory again     allocated, used and freed, over and over, mostly at one address
 *   gpu_memory spanning  two of them, freed, then one that may lie where both were
 *   gpu_memory mapped    made by cuMemCreate, for export as descriptors
 *   gpu_memory pieces    the same, of two pieces that lie one behind the other
 *   gpu_memory replaced  the same, and others are mapped at these addresses again and again
 *   gpu_memory private   likewise, for no export
 *   gpu_memory growing   the same, for more elements each time
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

static void sum_of(int32_t *gpu, size_t count)
{
    static int calls;
    int32_t x[COUNT];
    cu_context context;

    calls++;
    for (int i = 0; i < (int)count; i++)
        x[i] = i + calls * (rank + 1);
    gpu_put(gpu, x, count * sizeof *x);
    cu_must(d->cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    if (without_context)
        cu_must(d->cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    must(hvd_allreduce("x", gpu, gpu, count, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    cu_must(d->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    gpu_get(x, gpu, count * sizeof *x);
    for (int i = 0; i < (int)count; i++)
        if (x[i] != size * i + calls * size * (size + 1) / 2)
            wrong("call %d: element %d is %d", calls, i, x[i]);
}

static void sum(int32_t *gpu)
{
    sum_of(gpu, COUNT);
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

static int spanning(void)
{
    int same = 0;

    for (int i = 0; i < 3; i++) {
        char *a = gpu_alloc(PIECE), *b = gpu_alloc(PIECE), *c;
        sum((void *)a);
        sum((void *)b);
        gpu_free(a);
        gpu_free(b);
        c = gpu_alloc(2 * PIECE);
        same += c == (a < b ? a : b);
        sum((void *)(c + PIECE - sizeof(int32_t[COUNT / 2])));
        gpu_free(c);
    }
    return same;
}

/* At `at`, or where there is room. */
static cu_pointer map_at(cu_pointer at, int pieces, unsigned handle_types)
{
    cu_device gpu;
    cu_must(d->cuCtxGetDevice(&gpu), "cuCtxGetDevice");
    struct cu_allocation_properties how = {
        .type = CU_ALLOCATION_PINNED, .handle_types = handle_types, .location = {CU_LOCATION_DEVICE, gpu}};
    struct cu_access access = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};
    size_t bytes = (size_t)pieces * PIECE;

    if (!at)
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

static cu_pointer map(int pieces, unsigned handle_types)
{
    return map_at(0, pieces, handle_types);
}

static void unmap_pieces(cu_pointer at, int pieces)
{
    gpu_wait();
    for (int i = 0; i < pieces; i++)
        cu_must(d->cuMemUnmap(at + (size_t)i * PIECE, PIECE), "cuMemUnmap");
}

static void unmap(cu_pointer at, int pieces)
{
    unmap_pieces(at, pieces);
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

static void replaced(void)
{
    cu_pointer at = map(1, CU_HANDLE_FD);

    for (int i = 0; i < 3; i++) {
        sum((int32_t *)(uintptr_t)at);
        unmap_pieces(at, 1);
        map_at(at, 1, CU_HANDLE_FD);
    }
    unmap(at, 1);
}

static void growing(void)
{
    cu_pointer at = map(1, 0);

    for (size_t count = COUNT / 50; count <= COUNT; count *= 5)
        for (int i = 0; i < 2; i++)
            sum_of((int32_t *)(uintptr_t)at, count);
    unmap(at, 1);
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
    else if (strcmp(word, "spanning") == 0)
        same = spanning();
    else if (strcmp(word, "replaced") == 0)
        replaced();
    else if (strcmp(word, "growing") == 0)
        growing();
    else if (strcmp(word, "mapped") == 0)
        mapped(1, CU_HANDLE_FD);
    else if (strcmp(word, "pieces") == 0)
        mapped(2, CU_HANDLE_FD);
    else if (strcmp(word, "private") == 0)
        mapped(1, 0);
    else if ((without_context = strcmp(word, "nowhere") == 0))
        mapped(1, 0);
    else
        wrong(
            "usage: gpu_memory again | spanning | mapped | replaced | pieces | private | growing | nowhere");
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right, addresses used again: %d\n", rank, same);
    return 0;
}
