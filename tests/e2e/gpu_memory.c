/* A worker whose tensors lie in memory of all sorts of a GPU: what an engine that runs NCCL has to reach.
 * Each tensor is summed some times, with other numbers each time. Prints "rank N: all right, addresses used
 * again: K" at the end.
 *
 *   gpu_memory again     allocated, used and freed, over and over, mostly at one address
 *   gpu_memory spanning  two of them, freed, then one that may lie where both were
 *   gpu_memory mapped    made by cuMemCreate, for export as descriptors
 *   gpu_memory pieces    the same, of two pieces that lie one behind the other
 *   gpu_memory segment   of pieces that come, go and are replaced
 *   gpu_memory replaced  one, and others are mapped at its addresses again and again
 *   gpu_memory private   likewise, for no export
 *   gpu_memory held      freed, while a GPU comes to an operation only when all ranks are further
 *   gpu_memory stands    the same, and memory for no export is used next
 *   gpu_memory remapped  the same, with memory that is replaced
 *   gpu_memory growing   the same, for more elements each time
 *   gpu_memory names     one, under a hundred names, twice, and the results are waited for in the end
 *   gpu_memory nowhere   likewise, where no context is current: nor has such memory one */
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/gpu/driver.h"
#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"

#define COUNT 1000
#define LARGE (GPU_PIECE / 4 + COUNT) /* elements in three pieces */

static const struct driver *d;
static hvd_options options;
static int rank, size;

static void cu_must(cu_result result, const char *what)
{
    if (result != CU_OK)
        wrong("%s: %s", what, driver_error_name(d, result));
}

static bool without_context;

static void sum_of(void *gpu, size_t count)
{
    static int calls;
    static int32_t x[LARGE];
    size_t bytes = count * sizeof *x;
    cu_context context;

    calls++;
    for (int i = 0; i < (int)count; i++)
        x[i] = i + calls * (rank + 1);
    gpu_put(gpu, x, bytes);
    cu_must(d->cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    if (without_context)
        cu_must(d->cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    must(hvd_allreduce("x", gpu, gpu, count, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    cu_must(d->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    gpu_get(x, gpu, bytes);
    for (int i = 0; i < (int)count; i++)
        if (x[i] != size * i + calls * size * (size + 1) / 2)
            wrong("call %d: element %d is %d", calls, i, x[i]);
}

static void sum(void *gpu)
{
    sum_of(gpu, COUNT);
}

static int again(void)
{
    void *before = NULL;
    int same = 0;

    for (int i = 0; i < 12; i++) {
        void *p = gpu_alloc(sizeof(int32_t[COUNT]) + (size_t)(i / 4) * GPU_PIECE);
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
        char *a = gpu_alloc(GPU_PIECE), *b = gpu_alloc(GPU_PIECE), *c;
        sum(a);
        sum(b);
        gpu_free(a);
        gpu_free(b);
        c = gpu_alloc(2 * GPU_PIECE);
        same += c == (a < b ? a : b);
        sum(c + GPU_PIECE - sizeof(int32_t[COUNT / 2]));
        gpu_free(c);
    }
    return same;
}

static void mapped(size_t pieces, bool shared)
{
    for (int i = 0; i < 3; i++) {
        char *at = gpu_reserve(pieces), *own = at + (pieces > 1 ? GPU_PIECE - COUNT * 2 : 4096);
        for (size_t n = 0; n < pieces; n++)
            gpu_map(at + n * GPU_PIECE, shared);
        sum(own);
        sum(own);
        for (size_t n = 0; n < pieces; n++)
            gpu_unmap(at + n * GPU_PIECE);
        gpu_unreserve(at, pieces);
    }
}

static void replace(char *at, bool shared)
{
    gpu_unmap(at);
    gpu_map(at, shared);
}

/* `first` lies in the pieces 0 to 2, `second`, when there are that many, in 2 to 4, `third` in 0 and 1. */
static void segment(void)
{
    char *at = gpu_reserve(5), *first = at + GPU_PIECE - 2000, *second = first + 2 * GPU_PIECE;

    for (size_t i = 0; i < 3; i++)
        gpu_map(at + i * GPU_PIECE, true);
    sum_of(first, LARGE);
    gpu_map(at + 3 * GPU_PIECE, true);
    gpu_map(at + 4 * GPU_PIECE, true);
    sum_of(second, LARGE);
    sum(first); /* third */
    replace(at + GPU_PIECE, true);
    sum_of(first, LARGE);
    sum(first);
    replace(at + 3 * GPU_PIECE, false);
    sum_of(second, LARGE); /* stands in */
    sum(first);
    replace(at + 3 * GPU_PIECE, true);
    sum_of(second, LARGE);
    for (size_t i = 0; i < 5; i++)
        gpu_unmap(at + i * GPU_PIECE);
    gpu_unreserve(at, 5);
}

static void replaced(void)
{
    char *at = gpu_reserve(1);

    gpu_map(at, true);
    for (int i = 0; i < 3; i++) {
        sum(at);
        replace(at, true);
    }
    gpu_unmap(at);
    gpu_unreserve(at, 1);
}

static void growing(void)
{
    char *at = gpu_reserve(1);

    gpu_map(at, false);
    for (size_t count = COUNT / 50; count <= COUNT; count *= 5)
        for (int i = 0; i < 2; i++)
            sum_of(at, count);
    gpu_unmap(at);
    gpu_unreserve(at, 1);
}

#define NAMES 100

static void names(void)
{
    int32_t *gpu = gpu_alloc(sizeof(int32_t[NAMES])), x[NAMES];
    hvd_handle handle[NAMES];
    char name[16];

    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < NAMES; i++)
            x[i] = round * (rank + i);
        gpu_put(gpu, x, sizeof x);
        for (int i = 0; i < NAMES; i++) {
            snprintf(name, sizeof name, "n%d", i);
            must(hvd_allreduce_async(name, gpu + i, gpu + i, 1, HVD_INT32, HVD_SUM, &options, &handle[i]),
                 "hvd_allreduce_async");
        }
        for (int i = NAMES; i-- > 0;)
            must(hvd_wait(handle[i]), "hvd_wait");
        gpu_get(x, gpu, sizeof x);
        for (int i = 0; i < NAMES; i++)
            if (x[i] != round * (size * i + size * (size - 1) / 2))
                wrong("round %d: element %d is %d", round, i, x[i]);
    }
    gpu_free(gpu);
}

static sem_t gate;

static void wait_at_gate(void *unused)
{
    (void)unused;
    while (sem_wait(&gate) != 0) {
    }
}

/* All GPUs but the last one are in an operation when their memory is let go and other memory is used; the
 * last one comes to it when all ranks have done that. */
static void hold(void *a, void *b)
{
    static int32_t x[COUNT];

    for (int i = 0; i < COUNT; i++)
        x[i] = i;
    gpu_put(a, x, sizeof x);
    gpu_put(b, x, sizeof x);
    sem_init(&gate, 0, 0);
    if (rank == size - 1)
        cu_must(d->cuLaunchHostFunc(gpu_stream(), wait_at_gate, NULL), "cuLaunchHostFunc");
    must(hvd_allreduce("b", b, b, COUNT, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    must(hvd_allreduce("a", a, a, COUNT, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    must(hvd_barrier(NULL), "hvd_barrier");
    sem_post(&gate);
    gpu_get(x, a, sizeof x);
    for (int i = 0; i < COUNT; i++)
        if (x[i] != size * i)
            wrong("element %d is %d", i, x[i]);
    for (int i = 0; i < 4; i++)
        sum(a);
}

/* The memory is freed, and then other memory lies there, or other memory stands in for what no other process
 * can have, and may lie there. */
static void held(bool stands_in)
{
    char *own = gpu_reserve(1), *a = gpu_alloc(GPU_PIECE), *b = gpu_alloc(GPU_PIECE);

    gpu_map(own, false);
    sum(a);
    sum(b);
    gpu_free(a);
    if (stands_in) {
        hold(own, b);
    } else {
        a = gpu_alloc(GPU_PIECE);
        hold(a, b);
        gpu_free(a);
    }
    gpu_free(b);
    gpu_unmap(own);
    gpu_unreserve(own, 1);
}

static void remapped(void)
{
    char *a = gpu_reserve(1), *b = gpu_alloc(GPU_PIECE);

    gpu_map(a, true);
    sum(a);
    sum(b);
    replace(a, true);
    hold(a, b);
    gpu_unmap(a);
    gpu_unreserve(a, 1);
    gpu_free(b);
}

int main(int argc, char **argv)
{
    const char *word = argc == 2 ? argv[1] : "";
    int same = 0;

    gpu_begin(&rank, &size, &options);
    d = driver_open(NULL);
    if (strcmp(word, "again") == 0)
        same = again();
    else if (strcmp(word, "spanning") == 0)
        same = spanning();
    else if (strcmp(word, "replaced") == 0)
        replaced();
    else if (strcmp(word, "names") == 0)
        names();
    else if (strcmp(word, "growing") == 0)
        growing();
    else if (strcmp(word, "mapped") == 0)
        mapped(1, true);
    else if (strcmp(word, "pieces") == 0)
        mapped(2, true);
    else if (strcmp(word, "segment") == 0)
        segment();
    else if (strcmp(word, "held") == 0)
        held(false);
    else if (strcmp(word, "remapped") == 0)
        remapped();
    else if (strcmp(word, "stands") == 0)
        held(true);
    else if (strcmp(word, "private") == 0)
        mapped(1, false);
    else if ((without_context = strcmp(word, "nowhere") == 0))
        mapped(1, false);
    else
        wrong(
            "usage: gpu_memory again | spanning | mapped | pieces | segment | replaced | private | growing | "
            "names | held | stands | remapped | nowhere");
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right, addresses used again: %d\n", rank, same);
    return 0;
}
