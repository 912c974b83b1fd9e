/* The kind of memory at a pointer: the host's or a GPU's, its GPU, and the ways in which other processes can
 * open it. The driver is asked in one call. While the process has no driver open, all memory is the host's,
 * and nothing is asked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/gpu/driver.h"
#include "common/base/err.h"

struct pointer {
    bool device;        /* memory of a GPU, or managed memory, which a GPU can use as its own */
    bool managed;       /* it moves between host and GPU by itself */
    int ordinal;        /* of the GPU in this process; -1 for host memory */
    cu_context context; /* that allocated it; NULL where it belongs to none (by cuMemCreate, managed) */
};

/* Finds the memory that `p` points to. -1: the driver cannot tell, and the host cannot read it. NULL and
 * memory that the driver does not know are the host's; so is pinned host memory. */
int pointer_find(const void *p, struct pointer *into, struct err *e);

/* How other processes can get at an allocation. */
enum pointer_export {
    POINTER_NOT_EXPORTED, /* managed memory, pools, cuMemCreate without a handle type */
    POINTER_BY_IPC,       /* cuIpcGetMemHandle of the allocation's base */
    POINTER_BY_FD         /* cuMemExportToShareableHandle of each piece that is mapped */
};

struct pointer_range {
    uintptr_t base;
    size_t bytes;
    enum pointer_export exported;
};

/* The allocation around a pointer to device memory. -1: the driver does not know it. Slower than
 * pointer_find: not for each operation. */
int pointer_range(const void *p, struct pointer_range *into, struct err *e);

/* For sentences: "memory of GPU 1", "managed memory of GPU 0", "host memory". */
struct pointer_text {
    char text[48];
};
struct pointer_text pointer_text(const struct pointer *p);
