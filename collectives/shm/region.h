/* The control region as a mapped file: made and sealed by the engine, mapped by every worker of the host. */
#pragma once

#include "collectives/shm/layout.h"
#include "common/base/err.h"
#include "common/base/ranks.h"

/* A mapping. The numbers are private copies: what the shared header says later changes nothing. */
struct region {
    struct shm_header *header;
    size_t bytes;
    uint32_t members, hosts, size, epoch, fuse, connect_ms;
    bool requires_nccl, elastic;
    uint64_t stream_least;
    uint32_t *rank; /* [members], ascending */
};

struct region_shape {
    uint32_t members, hosts, size, epoch;
    const uint32_t *rank; /* [members], ascending; NULL: 0, 1, ... */
    uint32_t fuse, connect_ms;
    bool requires_nccl;
    uint64_t stream_least;
    bool elastic;
};

/* Makes a zeroed region, maps it and returns its sealed descriptor (the caller's; close-on-exec). -1 with *e.
 */
int region_create(struct region *r, const struct region_shape *shape, struct err *e);
/* Maps a region that came from elsewhere after checking seals, size and header. The descriptor stays the
 * caller's. */
int region_map(struct region *r, int fd, struct err *e);
void region_unmap(struct region *r);

struct shm_mailbox *region_mailbox(const struct region *r, uint32_t member);
/* Elastic: [size], the number of each rank's worker. The engine writes it before a worker has the region. */
uint32_t *region_workers(const struct region *r);
struct shm_slot *region_slot(const struct region *r, uint32_t slot); /* slot < SHM_SLOTS */
/* Engine only. The slot is as new for these members; nobody uses the slot. */
void region_clear_slot(const struct region *r, uint32_t slot, const uint32_t *member, uint32_t members);

/* The member that is `rank`; UINT32_MAX: none here is. */
static inline uint32_t region_member(const struct region *r, uint32_t rank)
{
    return ranks_find(r->rank, r->members, rank);
}

/* A member's entry of an operation on a slot. */
static inline struct shm_entry *region_entry(const struct region *r, uint32_t slot, uint32_t member,
                                             uint32_t operation)
{
    struct shm_entries *entries = (struct shm_entries *)(void *)(r->header + 1);

    return &entries[(operation & 1) * r->members + member].of[slot];
}

/* Rings every member that sleeps, but `except` (UINT32_MAX: none). */
void region_ring_sleepers(const struct region *r, uint32_t except);
/* Rings the alarm of every member that wants it. */
void region_ring_alarms(const struct region *r);

/* Engine only. The first poison stays. Everybody is woken. */
void region_poison(struct region *r, int status, const char *text);

static inline bool region_poisoned(const struct region *r)
{
    return atomic_load_explicit(&r->header->poisoned, memory_order_acquire) != 0;
}

/* The status; the sentence is copied to `text`, ended whatever the region holds. */
int region_poison_read(const struct region *r, char *text, size_t size);
