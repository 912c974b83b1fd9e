/* Allocations of a GPU at addresses of this process: of another process, which came as descriptors, or one of
 * ours at a second place. They live as long as any mapping or handle of them does. */
#pragma once

#include <stddef.h>

#include "collectives/gpu/driver.h"
#include "common/base/err.h"

struct mapping_part {
    cu_allocation allocation;
    size_t bytes; /* all it has */
};

/* Each part whole, one behind the other, for that GPU to read and write, and for those of this process that
 * can use its memory. Needs DRIVER_VMM. */
int mapping_open(const struct driver *d, int gpu, const struct mapping_part *part, size_t parts,
                 cu_pointer *at, struct err *e);
/* With the bytes of all parts. Nothing may be using it any more: not even work that lies in a stream. */
void mapping_close(const struct driver *d, cu_pointer at, size_t bytes);
