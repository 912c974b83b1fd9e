/* hvd_alloc: memory in segments of this process that the engine and the other workers of the host can map.
 *
 * A segment is made when no free block is large enough. Its blocks are a list in private memory, in address
 * order, the free ones joined with their neighbours. Nothing about the allocation lies in shared memory.
 * Segments of other workers are mapped when one of their tensors is first met. */
#include "collectives/client/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/operation.h"
#include "collectives/client/rpc.h"
#include "collectives/shm/segment.h"

#define SEGMENT_MIN  (64ull << 20)
#define SEGMENT_STEP (2ull << 20)
#define SEGMENTS_MAX 4096u
#define BLOCK_ALIGN  64u

struct block {
    struct block *next;
    size_t offset, bytes;
    bool used;
    bool fresh; /* never handed out: still zero */
};

struct own_segment {
    struct own_segment *next;
    struct segment map;
    uint32_t id;
    struct block *blocks;
};

static struct own_segment *own;            /* under arena_lock */
static struct segment known[SEGMENTS_MAX]; /* by id, own ones too; under arena_lock */

static struct block *block_new(size_t offset, size_t bytes, bool fresh, struct block *next)
{
    struct block *b = malloc(sizeof *b);
    if (b)
        *b = (struct block){.next = next, .offset = offset, .bytes = bytes, .fresh = fresh};
    return b;
}

static struct own_segment *segment_add(size_t at_least)
{
    struct worker_message m = {.type = WORKER_ADD_SEGMENT};
    struct err e = ERR_INIT;
    size_t bytes =
        at_least < SEGMENT_MIN ? SEGMENT_MIN : (at_least + SEGMENT_STEP - 1) / SEGMENT_STEP * SEGMENT_STEP;
    struct own_segment *s = calloc(1, sizeof *s);
    if (s)
        s->blocks = block_new(0, bytes, true, NULL);
    if (!s || !s->blocks) {
        free(s);
        fail(HVD_ERR_MEMORY, "no memory");
        return NULL;
    }
    int fd = segment_create(&s->map, bytes, &e);
    if (fd < 0) {
        fail(HVD_ERR_MEMORY, "%s", e.text);
    } else {
        int status = client.solo ? HVD_SUCCESS : rpc(&m, fd, NULL, NULL);
        close(fd);
        if (status == HVD_SUCCESS && (client.solo || m.id < SEGMENTS_MAX)) {
            s->id = m.id;
            s->next = own;
            own = s;
            if (!client.solo)
                known[m.id] = s->map;
            return s;
        }
        if (status == HVD_SUCCESS)
            fail(HVD_ERR_ENGINE, "the engine names a segment that cannot be");
        segment_unmap(&s->map);
    }
    free(s->blocks);
    free(s);
    return NULL;
}

/* The first free block that is large enough, cut to size. */
static struct block *take_block(struct own_segment *s, size_t bytes)
{
    for (struct block *b = s->blocks; b; b = b->next) {
        if (b->used || b->bytes < bytes)
            continue;
        if (b->bytes > bytes) {
            struct block *rest = block_new(b->offset + bytes, b->bytes - bytes, b->fresh, b->next);
            if (!rest)
                return NULL;
            b->bytes = bytes;
            b->next = rest;
        }
        b->used = true;
        return b;
    }
    return NULL;
}

void *arena_alloc(size_t bytes, bool zeroed)
{
    struct block *b = NULL;
    void *memory = NULL;
    if (bytes > (1ull << (SHM_OFFSET_BITS - 1))) {
        fail(HVD_ERR_MEMORY, "%zu bytes of shared memory are more than there can be", bytes);
        return NULL;
    }
    bytes = bytes ? (bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN : BLOCK_ALIGN;
    pthread_mutex_lock(&client.arena_lock);
    struct own_segment *s = own;
    while (s && (b = take_block(s, bytes)) == NULL)
        s = s->next;
    if (!s) {
        s = segment_add(bytes);
        b = s ? take_block(s, bytes) : NULL;
    }
    if (b) {
        memory = (char *)s->map.base + b->offset;
        if (zeroed && !b->fresh)
            memset(memory, 0, bytes);
        b->fresh = false;
    }
    pthread_mutex_unlock(&client.arena_lock);
    return memory;
}

static void join_with_next(struct block *b)
{
    struct block *next = b ? b->next : NULL;
    if (!next || b->used || next->used)
        return;
    b->bytes += next->bytes;
    b->fresh = b->fresh && next->fresh;
    b->next = next->next;
    free(next);
}

static bool lies_in(const struct segment *s, const void *memory)
{
    return (const char *)memory >= (const char *)s->base &&
           (const char *)memory < (const char *)s->base + s->bytes;
}

/* After the job has failed another rank may still be writing a last chunk into our memory: it is not given
 * out again. */
void arena_free(void *memory)
{
    bool failed =
        !client.solo && (region_poisoned(&client.region) || atomic_load(&client.state) == CLIENT_STRANDED);
    pthread_mutex_lock(&client.arena_lock);
    for (struct own_segment *s = own; s && !failed; s = s->next) {
        struct block *before = NULL;
        if (!lies_in(&s->map, memory))
            continue;
        for (struct block *b = s->blocks; b; before = b, b = b->next) {
            if ((char *)s->map.base + b->offset != memory || !b->used)
                continue;
            b->used = false;
            join_with_next(b);
            join_with_next(before);
            break;
        }
        break;
    }
    pthread_mutex_unlock(&client.arena_lock);
}

bool arena_address(const void *memory, size_t bytes, uint64_t *address)
{
    bool found = false;
    pthread_mutex_lock(&client.arena_lock);
    for (struct own_segment *s = own; s && !found; s = s->next) {
        size_t offset = (size_t)((const char *)memory - (const char *)s->map.base);
        if (!lies_in(&s->map, memory) || bytes > s->map.bytes - offset)
            continue;
        *address = shm_address(s->id, offset);
        found = true;
    }
    pthread_mutex_unlock(&client.arena_lock);
    return found;
}

static bool segment_fetch(uint32_t id)
{
    struct worker_message m = {.type = WORKER_GET_SEGMENT, .id = id};
    struct err e = ERR_INIT;
    unsigned fds = 1;
    int fd = -1;
    if (rpc(&m, -1, &fd, &fds) != HVD_SUCCESS)
        return false;
    int rc;
    if (fds == 1)
        rc = segment_map(&known[id], fd, &e);
    else
        rc = err_set(&e, ERR_MEMORY,
                     "cannot map a tensor segment: no descriptor left (RLIMIT_NOFILE, ulimit -n)");
    if (fds == 1)
        close(fd);
    if (rc != 0)
        rpc_failed(e.text);
    return rc == 0;
}

void *arena_resolve(void *ctx, uint64_t address, uint64_t bytes)
{
    uint32_t id = shm_address_segment(address);
    uint64_t offset = shm_address_offset(address);
    void *memory = NULL;
    (void)ctx;
    if (id >= SEGMENTS_MAX)
        return NULL;
    pthread_mutex_lock(&client.arena_lock);
    if (known[id].base || segment_fetch(id))
        if (offset <= known[id].bytes && bytes <= known[id].bytes - offset)
            memory = (char *)known[id].base + offset;
    pthread_mutex_unlock(&client.arena_lock);
    return memory;
}

void arena_close(void)
{
    for (uint32_t i = 0; i < SEGMENTS_MAX; i++) {
        bool mine = false;
        for (struct own_segment *s = own; s; s = s->next)
            mine = mine || s->map.base == known[i].base;
        if (known[i].base && !mine)
            segment_unmap(&known[i]);
        known[i] = (struct segment){0};
    }
    while (own) {
        struct own_segment *s = own;
        own = s->next;
        while (s->blocks) {
            struct block *b = s->blocks;
            s->blocks = b->next;
            free(b);
        }
        segment_unmap(&s->map);
        free(s);
    }
}

void *hvd_alloc(size_t bytes)
{
    return client_check() == HVD_SUCCESS ? arena_alloc(bytes, true) : NULL;
}

void hvd_free(void *memory)
{
    if (memory && client_check() == HVD_SUCCESS && !client.gpu->free_memory(memory))
        arena_free(memory);
}
