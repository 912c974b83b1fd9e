/* Memory in segments of this process that the engine and the host's other workers can map. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL after fail(). */
void *arena_alloc(size_t bytes, bool zeroed);
void arena_free(void *memory);
/* The address of the caller's memory in a segment of this process; false: the memory is private. */
bool arena_address(const void *memory, size_t bytes, uint64_t *address);
/* The memory at an address of any worker of the host, mapped on first use; NULL: there is none. */
void *arena_resolve(void *ctx, uint64_t address, uint64_t bytes);
/* `keep`: memory of hvd_alloc stays, as lasting memory does (only in elastic jobs). */
void arena_close(bool keep);
