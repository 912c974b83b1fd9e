/* The kernels' code is an array of bytes that the Makefile makes of what nvcc made of pack.cu; it is empty
 * where there was no nvcc. The driver takes from it what fits its GPU. A launch takes up to PACK_BATCH
 * pieces. */
#include "collectives/gpu/pack.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/gpu/pack_batch.h"
#include "common/base/log.h"

extern const unsigned char pack_image[]; /* made by the Makefile */
extern const size_t pack_image_size;
extern const int pack_image_cuda; /* of the nvcc that made it: 13000 is 13.0; 0: there was none */

#define THREAD_BYTES 64 /* that a thread copies before there are more blocks */
#define GRIDS_BLOCKS 8  /* at most, for each multiprocessor */

struct pack {
    const struct driver *d;
    cu_module module; /* NULL: no kernels */
    cu_function copy, scale;
    unsigned blocks; /* that the GPU has room for; a launch has one more for each piece at most */
};

bool pack_was_built(void)
{
    return pack_image_size > 0;
}

/* A driver older than the toolkit takes neither its machine code nor its PTX. */
static void describe_remedy(const struct driver *d, char *text, size_t size)
{
    if (d->version < pack_image_cuda)
        snprintf(
            text, size, "a driver with CUDA %d.%d or newer takes them, or a build with nvcc %d.%d or older",
            pack_image_cuda / 1000, pack_image_cuda % 1000 / 10, d->version / 1000, d->version % 1000 / 10);
    else
        snprintf(text, size, "a build whose GPU_CODES name this GPU has some that fit");
}

/* Once a process, and on a host by its first rank: driver and build are the same for the others. */
static void say_refused(const struct driver *d, cu_result result, const char *what)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *rank = getenv("HVD_LOCAL_RANK");
    if (atomic_flag_test_and_set(&said) || (rank && strcmp(rank, "0") != 0))
        return;
    char remedy[160];
    describe_remedy(d, remedy, sizeof remedy);
    log_warning(
        "the driver (CUDA %d.%d) %s the kernels of libhvd, which nvcc %d.%d made (%s): %s; until then "
        "scaled integers go through host memory, and the driver copies tensors of a group one by one",
        d->version / 1000, d->version % 1000 / 10, what, pack_image_cuda / 1000, pack_image_cuda % 1000 / 10,
        driver_error_name(d, result), remedy);
}

/* NULL stays in p->module when the driver does not take them: it is older than the toolkit, or the GPU is. */
static void load_kernels(struct pack *p)
{
    const struct driver *d = p->d;
    if (!pack_was_built() || driver_lacks(d, DRIVER_KERNELS))
        return;
    cu_result result = d->cuModuleLoadData(&p->module, pack_image);
    if (result != CU_OK) {
        p->module = NULL;
        say_refused(d, result, "does not take");
        return;
    }
    result = d->cuModuleGetFunction(&p->copy, p->module, PACK_COPY);
    if (result == CU_OK)
        result = d->cuModuleGetFunction(&p->scale, p->module, PACK_SCALE);
    if (result == CU_OK)
        return;
    say_refused(d, result, "does not find");
    d->cuModuleUnload(p->module);
    p->module = NULL;
}

struct pack *pack_open(const struct driver *d, struct err *e)
{
    struct pack *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(e, ERR_MEMORY, "no memory for packing");
        return NULL;
    }
    cu_device device = 0;
    int processors = 1;
    if (d->cuCtxGetDevice(&device) == CU_OK)
        d->cuDeviceGetAttribute(&processors, CU_DEVICE_MULTIPROCESSORS, device);
    p->d = d;
    p->blocks = GRIDS_BLOCKS * (processors > 0 ? (unsigned)processors : 1);
    load_kernels(p);
    return p;
}

bool pack_has_kernels(const struct pack *p)
{
    return p->module != NULL;
}

/* Blocks for each piece by its bytes: THREAD_BYTES a thread, or more, so that all are about as many as the
 * GPU has room for. Returns the blocks of all. */
static unsigned share_blocks(const struct pack *p, struct pack_batch *batch, size_t element)
{
    unsigned long long all = 0, share = (unsigned long long)PACK_THREADS * THREAD_BYTES;
    unsigned blocks = 0;
    for (unsigned i = 0; i < batch->n; i++)
        all += batch->piece[i].count * element;
    if (share < all / p->blocks)
        share = all / p->blocks;
    for (unsigned i = 0; i < batch->n; i++) {
        batch->first[i] = blocks;
        blocks += (unsigned)((batch->piece[i].count * element + share - 1) / share);
    }
    return blocks;
}

/* The next pieces that are not empty; how many were looked at. */
static size_t gather_pieces(struct pack_batch *batch, const struct pack_piece *piece, size_t n)
{
    size_t i = 0;
    batch->n = 0;
    for (; i < n && batch->n < PACK_BATCH; i++) {
        if (piece[i].count == 0)
            continue;
        batch->piece[batch->n].to = piece[i].to;
        batch->piece[batch->n].from = piece[i].from;
        batch->piece[batch->n++].count = piece[i].count;
    }
    return i;
}

static int launch_kernel(const struct pack *p, cu_function kernel, const struct pack_piece *piece, size_t n,
                         size_t element, void **parameter, cu_stream stream, struct err *e)
{
    struct pack_batch *batch = parameter[0];
    cu_result result = CU_OK;
    for (size_t i = 0; i < n && result == CU_OK;) {
        i += gather_pieces(batch, piece + i, n - i);
        if (batch->n > 0)
            result = p->d->cuLaunchKernel(kernel, share_blocks(p, batch, element), 1, 1, PACK_THREADS, 1, 1,
                                          0, stream, parameter, NULL);
    }
    return driver_check(p->d, result, e, "starting a kernel for %zu tensors", n);
}

int pack_copy(const struct pack *p, const struct pack_piece *piece, size_t n, cu_stream stream, struct err *e)
{
    struct pack_batch batch;
    void *parameter[] = {&batch};
    if (p->module && n > 1)
        return launch_kernel(p, p->copy, piece, n, 1, parameter, stream, e);
    cu_result result = CU_OK;
    for (size_t i = 0; i < n && result == CU_OK; i++)
        if (piece[i].count > 0)
            result = p->d->cuMemcpyDtoDAsync(piece[i].to, piece[i].from, piece[i].count, stream);
    return driver_check(p->d, result, e, "copying %zu tensors on a GPU", n);
}

int pack_scale(const struct pack *p, const struct pack_piece *piece, size_t n, int dtype, double factor,
               cu_stream stream, struct err *e)
{
    struct pack_batch batch;
    void *parameter[] = {&batch, &dtype, &factor};
    if (!p->module)
        return err_set(e, ERR_UNSUPPORTED, "there are no kernels for scaling");
    if (dtype == HVD_BOOL || dtype == HVD_FLOAT8_E4M3 || dtype == HVD_FLOAT8_E5M2 || dtype_size(dtype) == 0)
        return err_set(e, ERR_UNSUPPORTED, "%s is not scaled", dtype_name(dtype));
    return launch_kernel(p, p->scale, piece, n, dtype_size(dtype), parameter, stream, e);
}

void pack_close(struct pack *p)
{
    if (p && p->module)
        p->d->cuModuleUnload(p->module);
    pack_forget(p);
}

void pack_forget(struct pack *p)
{
    free(p);
}
