/* A worker of a job in which ranks FROM to TO have no elements in any operation, and the others have some, on
 * a GPU and on the host. Prints "rank N: all right" at the end. How they have none:
 *
 *   gpu_empty FROM TO null      no buffers
 *   gpu_empty FROM TO pointer   memory of a GPU, of which they give nothing
 *   gpu_empty FROM TO bare      no buffers, and the process has used no GPU
 *   gpu_empty FROM TO without   likewise, and it cannot */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"

static int rank, size, from, to;
static hvd_options options;
static const hvd_options *with;
static bool none;
static int32_t *gpu, *place; /* place: what those that have none give */

static bool has_none(int r)
{
    return r >= from && r <= to;
}

static int32_t element(int r, int i)
{
    return worker_round * 1000 + r * 100 + i;
}

/* Writes this rank's elements to the host or the GPU, and returns their address there. */
static int32_t *fill(bool on_gpu, int32_t *host)
{
    for (int i = 0; i < 64; i++)
        host[i] = element(rank, i);
    if (none || !on_gpu)
        return none ? place : host;
    gpu_put(gpu, host, 256);
    return gpu;
}

/* Ranks that have something send one row to each of those; those that have nothing neither send nor get. */
static void alltoall(const char *name, bool on_gpu)
{
    int32_t host[128], *at = fill(on_gpu, host);
    const hvd_options *o = none || on_gpu ? with : NULL;
    size_t splits[64] = {0}, rows[64], n = 0;
    hvd_handle handle;

    for (int i = 0; i < size && !none; i++)
        n += splits[i] = !has_none(i);
    must(hvd_alltoall_async(name, at, n, splits, 1, HVD_INT32, at ? at + 64 : NULL, n, rows, o, &handle),
         name);
    /* Of this one nobody has any: those that could say on which device give a place there. */
    must(hvd_allreduce("between", at, at, 0, HVD_INT32, HVD_SUM, o), "between");
    must(hvd_wait(handle), name);
    for (int i = 0; i < size; i++)
        if (rows[i] != (none || has_none(i) ? 0 : 1))
            wrong("%s: rank %d gave %zu rows", name, i, rows[i]);
    if (on_gpu && !none)
        gpu_get(host + 64, gpu + 64, 256);
    for (int i = 0, k = 64, mine = rank > to ? rank - (to - from + 1) : rank; i < size && !none; i++)
        if (!has_none(i) && host[k++] != element(i, mine))
            wrong("%s: of rank %d: %d", name, i, host[k - 1]);
}

/* Rows of those that have some; the others get nothing either, since nobody gives any. */
static void nothing_at_all(bool on_gpu)
{
    int32_t host[128], *at = fill(on_gpu, host);
    const hvd_options *o = none || on_gpu ? with : NULL;
    hvd_handle handle[3];
    size_t rows[64];

    must(hvd_allgather_async("g", at, 0, 5, HVD_INT32, at, 0, rows, o, &handle[0]), "allgather");
    must(hvd_reducescatter_async("r", at, 0, 3, HVD_INT32, HVD_SUM, at, o, &handle[1]), "reducescatter");
    must(hvd_broadcast_async("b", at, 0, HVD_INT32, from, o, &handle[2]), "broadcast");
    for (int i = 2; i >= 0; i--)
        must(hvd_wait(handle[i]), "hvd_wait");
}

/* Those that give no rows get the others' all the same. */
static void allgather(void)
{
    int32_t host[128], *at = fill(true, host);
    size_t rows[64], n = 0, k = 64;

    for (int i = 0; i < size; i++)
        n += has_none(i) ? 0 : 2;
    must(hvd_allgather("gather", none ? NULL : at, none ? 0 : 2, 1, HVD_INT32, gpu + 64, n, rows, &options),
         "gather");
    gpu_get(host + 64, gpu + 64, 256);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < 2 && !has_none(i); j++)
            if (host[k++] != element(i, j))
                wrong("gather: row %d of rank %d is %d", j, i, host[k - 1]);
}

static void with_elements(void)
{
    int32_t x = rank + 1;

    if (!gpu) {
        gpu_open();
        gpu = gpu_alloc(512);
        options.stream = gpu_stream();
    }
    gpu_put(gpu, &x, sizeof x);
    must(hvd_allreduce("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "with elements");
    gpu_get(&x, gpu, sizeof x);
    if (x != size * (size + 1) / 2)
        wrong("the sum is %d", x);
}

/* They have nothing of what others begin in a set of their own either; NULL is not the only empty place. */
static void open_gpu(const char *how)
{
    bool bare = strcmp(how, "bare") == 0, without = strcmp(how, "without") == 0;

    if (none && (bare || without)) {
        if (without)
            setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
        if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
            wrong("%s", dlerror());
        return;
    }
    gpu_open();
    gpu = gpu_alloc(512);
    options.stream = gpu_stream();
    with = &options;
    if (none && strcmp(how, "pointer") == 0)
        place = gpu;
    if (none && strcmp(how, "null") == 0)
        with = NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        wrong("usage: gpu_empty FROM TO null | pointer | bare | without");
    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    from = (int)strtol(argv[1], NULL, 10);
    to = (int)strtol(argv[2], NULL, 10);
    none = has_none(rank);
    open_gpu(argv[3]);
    for (worker_round = 0; worker_round < 4; worker_round++) {
        alltoall("gpu", true);
        nothing_at_all(true);
        alltoall(worker_round % 2 ? "gpu" : "host", false);
        nothing_at_all(false);
        if (strcmp(argv[3], "null") == 0 || strcmp(argv[3], "pointer") == 0)
            allgather();
    }
    if (strcmp(argv[3], "without") != 0)
        with_elements();
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
