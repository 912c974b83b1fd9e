/* Tensor segments: shared memory of one worker that holds tensors, mapped by the other workers of the host
 * and the engine. Sealed against shrinking, so that a mapping never faults. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"

struct segment {
    void *base; /* NULL: not mapped */
    size_t bytes;
};

/* Makes and maps zeroed memory; returns its sealed descriptor (the caller's; close-on-exec). -1 with *e. */
int segment_create(struct segment *s, size_t bytes, struct err *e);
/* Maps a segment that came from elsewhere after checking that it is sealed and how long it is. The descriptor
 * stays the caller's. */
int segment_map(struct segment *s, int fd, struct err *e);
/* Replaces a mapping, in its place, by one of that file: MAP_SHARED or MAP_PRIVATE. Safe in a child made by
 * fork(). -1: it failed. */
int segment_map_at(const struct segment *s, int fd, int how);
void segment_unmap(struct segment *s);
