/* Memory of hvd_alloc_device: a table of allocations, and their use by operations. */
#pragma once

#include "collectives/client/gpu/gpu_team.h"

struct gpu_memory {
    uintptr_t at; /* the caller's address */
    size_t bytes;
    struct gpu_context *context;
    cu_pointer second; /* NCCL's address of the same memory; 0: none */
    size_t mapped;     /* bytes at that address */
    bool by_nccl;      /* ncclMemAlloc made it */
    bool freed;        /* by the caller, but something uses it still */
};

/* Makes the table large enough for one allocation more. A status, after fail(). */
int gpu_memory_reserve(void);
/* Adds an allocation; after gpu_memory_reserve. */
void gpu_memory_add(const struct gpu_memory *m);
/* There may be allocations. The caller need not hold the lock. */
bool gpu_memory_any(void);
/* The allocation that begins at `at`, or NULL. Valid until the table changes. */
struct gpu_memory *gpu_memory_at(const void *at);
/* The caller frees the allocation: it goes when nothing uses it any more. */
void gpu_memory_mark_freed(struct gpu_memory *m);
/* An operation uses the allocation that was not waited for, or that the next poll may go on with. */
bool gpu_memory_is_used(const struct gpu_memory *m);
/* Gives the memory back to NCCL or the driver. Its context is entered. */
void gpu_memory_give_back(const struct gpu_memory *m);
/* Frees what was freed while it was in use, as far as possible. Never waits. */
void gpu_memory_sweep(void);
/* After all teams. */
void gpu_memory_close(void);
/* This rank's word about its elements: a hash of their places in registered memory, or 0. If the words of
 * all ranks are equal, NCCL gets gpu_memory_registered's addresses, valid until the operation begins anew. */
uint64_t gpu_memory_mark(const struct gpu_op *op);
const struct gpu_operation *gpu_memory_registered(struct gpu_op *op);
