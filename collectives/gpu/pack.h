/* Many small copies on a GPU with few launches, and scaling: the steps before and after an operation on a
 * packed buffer.
 *
 * The kernels are in pack.cu. With nvcc at build time their code for several generations of GPUs is part of
 * the program. Without nvcc, or if the driver takes none of that code, the driver makes copies one by one,
 * and there is no scaling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "collectives/gpu/driver.h"
#include "common/base/err.h"

struct pack; /* the kernels in one context */

struct pack_piece {
    cu_pointer to;
    cu_pointer from;
    size_t count; /* bytes to copy; elements to scale */
};

/* For the current context, which must be current in all other calls too. Without kernels it is made all the
 * same. NULL: no memory. */
struct pack *pack_open(const struct driver *d, struct err *e);
bool pack_has_kernels(const struct pack *p);
/* Was the program built with them? */
bool pack_was_built(void);

/* Enqueues n copies, which do not overlap. The pieces are read within the call. */
int pack_copy(const struct pack *p, const struct pack_piece *piece, size_t n, cu_stream stream,
              struct err *e);
/* Enqueues to[i] = from[i] * factor; `to` may be `from`. As in hvd.h: integers as doubles, cut toward zero,
 * 16 bit floats as float32. ERR_UNSUPPORTED without kernels, and of bool and 8 bit floats. */
int pack_scale(const struct pack *p, const struct pack_piece *piece, size_t n, int dtype, double factor,
               cu_stream stream, struct err *e);

/* Frees it; no work of its own may be pending in a stream. NULL is ignored. */
void pack_close(struct pack *p);
/* The context has gone, and the kernels with it. */
void pack_forget(struct pack *p);
