/* hvd_alloc: memory in segments of this process that the engine and the other workers of the host can map.
 *
 * A segment is made when no free block (shm/blocks.h) is large enough. Segments of other workers are mapped
 * when one of their tensors is first met.
 *
 * hvd_alloc_lasting: the same in segments of their own, which stay mapped where they are until they are free.
 * The engine of a job hears of such a segment when an operation first uses it, and again in the next job.
 * Behind a job that failed a rank of it may still write a last chunk. The segment then gets new pages with
 * the same contents. In a child made by fork() the pages are the child's own copies. In an elastic job
 * hvd_reset keeps all segments in this way. */
#include "collectives/client/arena.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/client/operation.h"
#include "collectives/client/rpc.h"
#include "collectives/shm/blocks.h"
#include "collectives/shm/segment.h"

#define SEGMENT_MIN  (64ull << 20)
#define SEGMENT_STEP (2ull << 20)
#define SEGMENTS_MAX 4096u

struct own_segment {
    struct own_segment *next;
    struct segment map;
    uint32_t id; /* of this job; UINT32_MAX: none yet */
    struct block *blocks;
    int fd;          /* of one that can be kept; -1: it goes with the job */
    bool lasting;    /* of hvd_alloc_lasting */
    bool is_private; /* never to be shared */
    bool is_copy;    /* this is a child made by fork(), and the pages are the child's own */
};

static struct own_segment *own;            /* under arena_lock */
static struct segment known[SEGMENTS_MAX]; /* by id, own ones too; under arena_lock */

/* The engine hears of the segment. */
static bool share_segment(struct own_segment *s, int fd)
{
    struct worker_message m = {.type = WORKER_ADD_SEGMENT};
    if (client.solo)
        return true;
    if (rpc(&m, fd, NULL, NULL) != HVD_SUCCESS)
        return false;
    if (m.id >= SEGMENTS_MAX) {
        fail(HVD_ERR_ENGINE, "the engine names a segment that cannot be");
        return false;
    }
    s->id = m.id;
    known[m.id] = s->map;
    return true;
}

static void free_segment(struct own_segment *s)
{
    blocks_drop(s->blocks);
    segment_unmap(&s->map);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

static struct own_segment *segment_add(size_t at_least, bool lasting)
{
    struct err e = ERR_INIT;
    size_t bytes =
        at_least < SEGMENT_MIN ? SEGMENT_MIN : (at_least + SEGMENT_STEP - 1) / SEGMENT_STEP * SEGMENT_STEP;
    struct own_segment *s = calloc(1, sizeof *s);
    int fd;
    if (!s || !(s->blocks = blocks_new(bytes))) {
        free(s);
        fail(HVD_ERR_MEMORY, "no memory");
        return NULL;
    }
    s->id = UINT32_MAX;
    s->fd = -1;
    fd = segment_create(&s->map, bytes, &e);
    if (fd < 0) {
        fail(HVD_ERR_MEMORY, "%s", e.text);
    } else if (lasting || share_segment(s, fd)) {
        s->lasting = lasting;
        if (lasting || client.worker >= 0)
            s->fd = fd;
        else
            close(fd);
        s->next = own;
        own = s;
        return s;
    } else {
        close(fd);
    }
    free_segment(s);
    return NULL;
}

static void *alloc_block(size_t bytes, bool zeroed, bool lasting)
{
    struct own_segment *s;
    struct block *b = NULL;
    void *memory = NULL;
    if (bytes > (1ull << (SHM_OFFSET_BITS - 1))) {
        fail(HVD_ERR_MEMORY, "%zu bytes of shared memory are more than there can be", bytes);
        return NULL;
    }
    bytes = blocks_round(bytes);
    pthread_mutex_lock(&client.arena_lock);
    for (s = own; s && (s->lasting != lasting || !(b = blocks_take(s->blocks, bytes))); s = s->next)
        ;
    if (!b && (s = segment_add(bytes, lasting)))
        b = blocks_take(s->blocks, bytes);
    if (b) {
        memory = (char *)s->map.base + b->offset;
        if (zeroed && !b->fresh)
            memset(memory, 0, bytes);
        b->fresh = false;
    }
    pthread_mutex_unlock(&client.arena_lock);
    return memory;
}

void *arena_alloc(size_t bytes, bool zeroed)
{
    return alloc_block(bytes, zeroed, false);
}

static struct block *find_block(const struct own_segment *s, const void *memory, struct block **before)
{
    return blocks_find(s->blocks, (size_t)((const char *)memory - (const char *)s->map.base), before);
}

static bool lies_in(const struct segment *s, const void *memory)
{
    return (const char *)memory >= (const char *)s->base &&
           (const char *)memory < (const char *)s->base + s->bytes;
}

static struct own_segment *find_segment(const void *memory)
{
    struct own_segment *s = own;
    while (s && !lies_in(&s->map, memory))
        s = s->next;
    return s;
}

static bool has_job_failed(void)
{
    return client.mailbox && (region_poisoned(&client.region) || atomic_load(&client.mailbox->left));
}

/* After the job has failed another rank may still be writing a last chunk into our memory: it is not given
 * out again. */
void arena_free(void *memory)
{
    struct own_segment *s;
    struct block *b, *before;
    pthread_mutex_lock(&client.arena_lock);
    bool failed = has_job_failed();
    if ((s = find_segment(memory)) && (b = find_block(s, memory, &before))) {
        if (failed)
            b->given_up = true;
        else
            blocks_give_back(b, before);
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
        if (s->fd >= 0 && s->id == UINT32_MAX && (s->is_private || !share_segment(s, s->fd)))
            break; /* a lasting one that cannot be shared is private memory */
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
    int fd = -1, rc;
    if (rpc(&m, -1, &fd, &fds) != HVD_SUCCESS)
        return false;
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

/* ---- lasting memory ------------------------------------------------------------------------------------ */

static void drop_segment(struct own_segment *s)
{
    struct own_segment **at = &own;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free_segment(s);
}

/* The pages of a segment that is free. While other processes may have it mapped, its address stays. */
static void release_segment(struct own_segment *s)
{
    if (s->id == UINT32_MAX || s->is_private)
        drop_segment(s);
    else if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)s->map.bytes) == 0)
        s->blocks->fresh = true;
}

/* true: the memory is lasting. */
static bool free_lasting(void *memory)
{
    struct own_segment *s;
    struct block *b, *before;
    bool found;
    pthread_mutex_lock(&client.arena_lock);
    s = find_segment(memory);
    found = s && s->lasting;
    b = found ? find_block(s, memory, &before) : NULL;
    if (b && s->id != UINT32_MAX && has_job_failed()) {
        b->given_up = true;
    } else if (b) {
        blocks_give_back(b, before);
        if (blocks_are_free(s->blocks))
            release_segment(s);
    }
    pthread_mutex_unlock(&client.arena_lock);
    return found;
}

/* New pages with the same contents, in the same place. Without memory for them the segment is not shared any
 * more, but the old job's ranks may still have it. */
static void renew_pages(struct own_segment *s)
{
    struct segment fresh = {0};
    struct err e = ERR_INIT;
    int fd = segment_create(&fresh, s->map.bytes, &e);
    if (fd >= 0) {
        for (const struct block *b = s->blocks; b; b = b->next)
            if (b->used && !b->given_up)
                memcpy((char *)fresh.base + b->offset, (char *)s->map.base + b->offset, b->bytes);
        segment_unmap(&fresh);
        if (segment_map_at(&s->map, fd, MAP_SHARED) == 0) {
            close(s->fd);
            s->fd = fd;
            return;
        }
        close(fd);
    }
    s->is_private = true;
}

/* The job is over: the segment belongs to no job. */
static void leave_segment(struct own_segment *s, bool failed)
{
    bool again;
    if (failed && s->id != UINT32_MAX)
        renew_pages(s);
    s->id = UINT32_MAX;
    do {
        struct block *before = NULL, *b = s->blocks;
        while (b && !b->given_up)
            before = b, b = b->next;
        if ((again = b != NULL))
            blocks_give_back(b, before);
    } while (again);
    if (blocks_are_free(s->blocks))
        drop_segment(s);
}

static void hold_arena(void)
{
    pthread_mutex_lock(&client.arena_lock);
}

static void let_arena_go(void)
{
    pthread_mutex_unlock(&client.arena_lock);
}

/* In a child. Pages that cannot become the child's own may only be read. */
static void own_pages(void)
{
    for (struct own_segment *s = own; s; s = s->next) {
        if (!s->lasting || s->is_copy)
            continue;
        s->is_private = s->is_copy = true;
        if (segment_map_at(&s->map, s->fd, MAP_PRIVATE) != 0)
            mprotect(s->map.base, s->map.bytes, PROT_READ);
    }
    let_arena_go();
}

static void watch_forks(void)
{
    pthread_atfork(hold_arena, let_arena_go, own_pages);
}

void *hvd_alloc_lasting(size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return alloc_block(bytes, true, true);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void forget_known(void)
{
    for (uint32_t i = 0; i < SEGMENTS_MAX; i++) {
        bool mine = false;
        for (struct own_segment *s = own; s; s = s->next)
            mine = mine || s->map.base == known[i].base;
        if (known[i].base && !mine)
            segment_unmap(&known[i]);
        known[i] = (struct segment){0};
    }
}

void arena_close(bool keep)
{
    bool failed = has_job_failed();
    pthread_mutex_lock(&client.arena_lock);
    forget_known();
    for (struct own_segment *s = own, *next; s; s = next) {
        next = s->next;
        if (s->lasting || (keep && s->fd >= 0))
            leave_segment(s, failed);
        else
            drop_segment(s);
    }
    pthread_mutex_unlock(&client.arena_lock);
}

void *hvd_alloc(size_t bytes)
{
    return client_check() == HVD_SUCCESS ? arena_alloc(bytes, true) : NULL;
}

void hvd_free(void *memory)
{
    if (!memory || free_lasting(memory))
        return;
    if (client_check() == HVD_SUCCESS && !client.gpu->free_memory(memory))
        arena_free(memory);
}
