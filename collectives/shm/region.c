#include "collectives/shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/shm/doorbell.h"
#include "collectives/hvd.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static size_t mailboxes_at(uint32_t members)
{
    return sizeof(struct shm_header) + 2 * members * sizeof(struct shm_entries);
}

static size_t slot_bytes(uint32_t members)
{
    return sizeof(struct shm_slot) + members * sizeof(struct shm_member_slot);
}

static size_t slots_at(uint32_t members)
{
    return mailboxes_at(members) + members * sizeof(struct shm_mailbox);
}

static size_t workers_at(uint32_t members)
{
    return slots_at(members) + SHM_SLOTS * slot_bytes(members);
}

static size_t region_bytes(uint32_t members, uint32_t workers)
{
    return workers_at(members) + workers * sizeof(uint32_t);
}

uint32_t *region_workers(const struct region *r)
{
    return (uint32_t *)(void *)((char *)r->header + workers_at(r->members));
}

struct shm_mailbox *region_mailbox(const struct region *r, uint32_t member)
{
    return (struct shm_mailbox *)((char *)r->header + mailboxes_at(r->members)) + member;
}

struct shm_slot *region_slot(const struct region *r, uint32_t slot)
{
    return (struct shm_slot *)((char *)r->header + slots_at(r->members) + slot * slot_bytes(r->members));
}

/* Payloads and results stay: a word that is written after them announces each. */
void region_clear_slot(const struct region *r, uint32_t slot, const uint32_t *member, uint32_t members)
{
    struct shm_slot *s = region_slot(r, slot);

    for (uint32_t i = 0; i < members; i++) {
        memset(region_entry(r, slot, member[i], 0), 0, sizeof(struct shm_entry));
        memset(region_entry(r, slot, member[i], 1), 0, sizeof(struct shm_entry));
        memset(&s->member_slot[member[i]], 0, offsetof(struct shm_member_slot, body));
    }
    memset(s, 0, offsetof(struct shm_slot, result));
}

static int map_region(struct region *r, int fd, size_t bytes, struct err *e)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return err_sys(e, errno, "cannot map %zu bytes of control region", bytes);
    r->header = at;
    r->bytes = bytes;
    r->rank = NULL;
    return 0;
}

static int make_list(struct region *r, struct err *e)
{
    r->rank = malloc(r->members * sizeof *r->rank);
    return r->rank ? 0 : err_set(e, ERR_MEMORY, "no memory for %u ranks", r->members);
}

/* The engine's list becomes everybody's. */
static int give_ranks(struct region *r, const uint32_t *rank, struct err *e)
{
    if (make_list(r, e) != 0)
        return -1;
    for (uint32_t i = 0; i < r->members; i++)
        region_mailbox(r, i)->rank = r->rank[i] = rank ? rank[i] : i;
    return 0;
}

static int take_ranks(struct region *r, struct err *e)
{
    if (make_list(r, e) != 0)
        return -1;
    for (uint32_t i = 0; i < r->members; i++) {
        r->rank[i] = region_mailbox(r, i)->rank;
        if (r->rank[i] >= r->size || (i > 0 && r->rank[i] <= r->rank[i - 1]))
            return err_set(e, ERR_PROTOCOL, "the control region has rank %u of %u in place %u", r->rank[i],
                           r->size, i);
    }
    return 0;
}

int region_create(struct region *r, const struct region_shape *shape, struct err *e)
{
    uint32_t workers = shape->elastic ? shape->size : 0;
    size_t bytes = region_bytes(shape->members, workers);
    int fd = memfd_create("hvd-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a control region");
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        err_sys(e, errno, "cannot make a control region of %zu bytes", bytes);
        close(fd);
        return -1;
    }
    if (map_region(r, fd, bytes, e) != 0) {
        close(fd);
        return -1;
    }
    struct shm_header *h = r->header;
    h->magic = SHM_MAGIC;
    h->version = SHM_VERSION;
    h->slots = SHM_SLOTS;
    h->members = r->members = shape->members;
    h->hosts = r->hosts = shape->hosts;
    h->size = r->size = shape->size;
    h->workers = workers;
    r->elastic = shape->elastic;
    h->epoch = r->epoch = shape->epoch;
    h->fuse = r->fuse = shape->fuse;
    h->connect_ms = r->connect_ms = shape->connect_ms;
    h->requires_nccl = r->requires_nccl = shape->requires_nccl;
    h->stream_least = r->stream_least = shape->stream_least;
    if (give_ranks(r, shape->rank, e) == 0)
        return fd;
    region_unmap(r);
    close(fd);
    return -1;
}

int region_map(struct region *r, int fd, struct err *e)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return err_set(e, ERR_PROTOCOL, "the control region is not sealed");
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_sys(e, errno, "cannot read the size of the control region");
    if ((size_t)st.st_size < region_bytes(1, 0))
        return err_set(e, ERR_PROTOCOL, "the control region has only %lld bytes", (long long)st.st_size);
    if (map_region(r, fd, (size_t)st.st_size, e) != 0)
        return -1;
    const struct shm_header *h = r->header;
    r->members = h->members;
    r->hosts = h->hosts;
    r->size = h->size;
    uint32_t workers = h->workers;
    r->elastic = workers != 0;
    r->epoch = h->epoch;
    r->fuse = h->fuse;
    r->connect_ms = h->connect_ms;
    r->requires_nccl = h->requires_nccl != 0;
    r->stream_least = h->stream_least;
    if (h->magic == SHM_MAGIC && h->version == SHM_VERSION && h->slots == SHM_SLOTS && r->members > 0 &&
        r->members <= SHM_MEMBERS_MAX && (workers == 0 || workers == r->size) &&
        region_bytes(r->members, workers) == r->bytes) {
        if (take_ranks(r, e) == 0)
            return 0;
    } else {
        err_set(e, ERR_VERSION, "the control region has layout %u, this libhvd speaks %u", h->version,
                SHM_VERSION);
    }
    region_unmap(r);
    return -1;
}

void region_unmap(struct region *r)
{
    if (r->header)
        munmap(r->header, r->bytes);
    free(r->rank);
    r->header = NULL;
    r->rank = NULL;
}

void region_ring_sleepers(const struct region *r, uint32_t except)
{
    for (uint32_t i = 0; i < r->members; i++) {
        struct shm_mailbox *m = region_mailbox(r, i);
        if (i != except && doorbell_has_sleeper(m))
            doorbell_ring(m);
    }
}

void region_ring_alarms(const struct region *r)
{
    for (uint32_t i = 0; i < r->members; i++)
        if (atomic_load(&region_mailbox(r, i)->alarm_wanted))
            alarm_ring(region_mailbox(r, i));
}

void region_poison(struct region *r, int status, const char *text)
{
    struct shm_header *h = r->header;
    if (region_poisoned(r))
        return;
    h->poison_status = status;
    snprintf(h->poison_text, sizeof h->poison_text, "%s", text);
    atomic_store(&h->poisoned, 1);
    for (uint32_t i = 0; i < r->members; i++) {
        doorbell_ring(region_mailbox(r, i));
        alarm_ring(region_mailbox(r, i));
    }
}

int region_poison_read(const struct region *r, char *text, size_t size)
{
    int status = r->header->poison_status;
    snprintf(text, size, "%.*s", (int)SHM_TEXT_MAX - 1, r->header->poison_text);
    return status < 0 ? status : HVD_ERR_ENGINE;
}
