/* Tensors lie in the buffer without a gap, so that NCCL reduces nothing that nobody wrote: first all that are
 * multiples of the widest step of a copying kernel, then those of the next one, then the others. So each
 * begins where its kernel can copy it in as wide steps as its size lets it. */
#include "collectives/gpu/fuse.h"

#include <stdint.h>
#include <stdlib.h>

#include "collectives/kernels/dtype.h"

static const size_t steps[] = {16, 4, 2, 1}; /* of the kernel, in bytes */
#define STEPS (sizeof steps / sizeof *steps)

static unsigned step_of(size_t bytes)
{
    unsigned k = 0;
    while (bytes % steps[k] != 0)
        k++;
    return k;
}

static bool is_small(const struct gpu_operation *o, size_t most)
{
    size_t element = dtype_size(o->dtype);
    return o->kind == GPU_ALLREDUCE && element > 0 && o->count > 0 && o->count <= most / element;
}

/* The size up to which tensors are packed. If the buffer is too small for all, the limit is halved until the
 * rest fits: the smallest tensors gain most. */
static size_t find_largest(const struct fuse *f, const struct gpu_operation *o, size_t n)
{
    size_t most = 2 * FUSE_TENSOR_MAX, all;
    do {
        most /= 2;
        all = 0;
        for (size_t i = 0; i < n && all <= f->capacity; i++)
            all += is_small(&o[i], most) ? o[i].count * dtype_size(o[i].dtype) : 0;
    } while (all > f->capacity && most > FUSE_TENSOR_MIN);
    return most;
}

static bool are_alike(const struct gpu_operation *a, const struct gpu_operation *b)
{
    return a->dtype == b->dtype && a->op == b->op && a->prescale == b->prescale &&
           a->postscale == b->postscale;
}

void fuse_free(struct fuse *f)
{
    free(f->operation);
    free(f->in);
    free(f->out);
    f->operation = NULL;
    f->in = f->out = NULL;
    f->places = f->operations = f->packed = 0;
}

static int make_places(struct fuse *f, size_t n, struct err *e)
{
    if (n <= f->places)
        return 0;
    fuse_free(f);
    f->operation = malloc(n * sizeof *f->operation);
    f->in = malloc(n * sizeof *f->in);
    f->out = malloc(n * sizeof *f->out);
    f->places = n;
    if (f->operation && f->in && f->out)
        return 0;
    fuse_free(f);
    return err_set(e, ERR_MEMORY, "no memory for a group of %zu tensors", n);
}

/* Sorts the operations into those that are packed, which the first of them stands for, and those that remain.
 * Only what is like the first small one is packed. `size` becomes the bytes of each step. */
static void choose_tensors(struct fuse *f, const struct gpu_operation *o, size_t n, size_t size[STEPS])
{
    size_t left = f->capacity, most = find_largest(f, o, n);
    for (size_t i = 0; i < n; i++) {
        bool goes = is_small(&o[i], most) && (f->packed == 0 || are_alike(&f->operation[f->whole], &o[i]));
        size_t bytes = goes ? o[i].count * dtype_size(o[i].dtype) : 0;
        goes = goes && bytes <= left;
        if (goes && f->packed == 0)
            f->whole = f->operations;
        if (!goes || f->packed == 0)
            f->operation[f->operations++] = o[i];
        if (!goes)
            continue;
        left -= bytes;
        size[step_of(bytes)] += bytes;
        f->in[f->packed] = (struct pack_piece){.from = (cu_pointer)(uintptr_t)o[i].in, .count = bytes};
        f->out[f->packed++] = (struct pack_piece){.to = (cu_pointer)(uintptr_t)o[i].out, .count = bytes};
    }
}

/* Gives each its place; returns the bytes of all. */
static size_t place_tensors(struct fuse *f, const size_t size[STEPS])
{
    size_t begin[STEPS] = {0}, all = size[0];
    for (unsigned k = 1; k < STEPS; k++) {
        begin[k] = all;
        all += size[k];
    }
    for (size_t i = 0; i < f->packed; i++) {
        size_t *at = &begin[step_of(f->in[i].count)];
        f->in[i].to = f->out[i].from = f->buffer + *at;
        *at += f->in[i].count;
    }
    return all;
}

int fuse_plan(struct fuse *f, const struct gpu_operation *o, size_t n, struct err *e)
{
    size_t size[STEPS] = {0};
    f->packed = f->operations = 0;
    if (make_places(f, n, e) < 0)
        return -1;
    choose_tensors(f, o, n, size);
    if (f->packed < 2) {
        f->packed = 0; /* it stands for itself */
        return 0;
    }
    struct gpu_operation *whole = &f->operation[f->whole];
    whole->count = place_tensors(f, size) / dtype_size(whole->dtype);
    whole->in = whole->out = (void *)(uintptr_t)f->buffer;
    return 0;
}

bool fuse_is_whole(const struct fuse *f, const struct gpu_operation *o)
{
    return f->packed > 0 && o == &f->operation[f->whole];
}

static int move_packed(const struct fuse *f, struct pack_piece *piece, double factor, cu_stream stream,
                       struct err *e)
{
    int dtype = f->operation[f->whole].dtype;
    if (factor == 1)
        return pack_copy(f->pack, piece, f->packed, stream, e);
    for (size_t i = 0; i < f->packed; i++)
        piece[i].count /= dtype_size(dtype);
    return pack_scale(f->pack, piece, f->packed, dtype, factor, stream, e);
}

int fuse_in(struct fuse *f, double factor, cu_stream stream, struct err *e)
{
    return move_packed(f, f->in, factor, stream, e);
}

int fuse_out(struct fuse *f, double factor, cu_stream stream, struct err *e)
{
    return move_packed(f, f->out, factor, stream, e);
}
