/* The small tensors of a group as one: a kernel (or copies) into a buffer, one operation of NCCL there, a
 * kernel back.
 *
 * The choice of tensors follows from their sizes, types and scales and from the size of the buffer alone.
 * All ranks agree about these, so all make the same calls of NCCL. The addresses of tensors do not count.
 *
 * One operation more in NCCL's group costs some microseconds, on the host and for its steps between the
 * ranks; packing costs two launches, about as much as two operations, and reads and writes each byte twice,
 * at 1 TB/s and above: 1 us for each 256 KiB at the worst. So a tensor above that is left where it is: what
 * it takes between the ranks is then more than what an operation costs. Without kernels each tensor costs
 * two copies of the driver in place of one operation of NCCL. docs/measurements.md has figures of an H100. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "collectives/gpu/communicator.h"
#include "collectives/gpu/pack.h"

#define FUSE_TENSOR_MAX (256u << 10) /* bytes of one that is packed */
#define FUSE_TENSOR_MIN (4u << 10)   /* up to here size does not count: first come, first packed */
#define FUSE_ROOM       (4u << 20)   /* of all that are packed at once, unless less is wanted; the buffer */

/* Of one communicator. Zeroed: nothing is packed. */
struct fuse {
    const struct pack *pack;
    cu_pointer buffer; /* at a multiple of 256 */
    size_t capacity;   /* of it; 0: nothing is packed */
    /* The last plan: */
    size_t packed; /* tensors; 0: none */
    size_t whole;  /* the operation that stands for them, in the buffer */
    size_t operations;
    struct gpu_operation *operation; /* [operations] what NCCL is to do */
    struct pack_piece *in, *out;     /* [packed] from the tensors to the buffer, and back */
    size_t places;                   /* of each of the three lists */
};

/* Plans the packing of n operations. -1: no memory. */
int fuse_plan(struct fuse *f, const struct gpu_operation *o, size_t n, struct err *e);
/* Is it the one that stands for all that are packed? */
bool fuse_is_whole(const struct fuse *f, const struct gpu_operation *o);
/* Puts what is packed into the buffer, each element times `factor`; and back from there. Once each for a
 * plan, in one stream, which is the same for all plans of a buffer. */
int fuse_in(struct fuse *f, double factor, cu_stream stream, struct err *e);
int fuse_out(struct fuse *f, double factor, cu_stream stream, struct err *e);
/* Not the buffer. */
void fuse_free(struct fuse *f);
