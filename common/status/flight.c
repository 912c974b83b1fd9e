#include "common/status/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      0x746867696c666876ull
#define VERSION    2u
#define READING_NS 1000 /* two readings of the clock lie closer together, unless something comes between */
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* flight_ticks() and clock_now() at one moment. */
struct moment {
    uint64_t ticks, ns;
};

struct flight_name {
    _Atomic uint64_t since; /* flight_ticks() when the slot got the name; 0: nothing else here holds */
    char text[FLIGHT_NAME_MAX + 1];
};

struct flight_memory {
    uint64_t magic;
    uint32_t version;
    struct moment made;
    char kind[FLIGHT_WORDS][FLIGHT_WORD_MAX + 1], type[FLIGHT_WORDS][FLIGHT_WORD_MAX + 1];
    struct flight_name name[FLIGHT_SLOTS];
    struct flight_ring ring[FLIGHT_WORKERS + 1][FLIGHT_RINGS];
};

/* ---- the clocks ---------------------------------------------------------------------------------------- */

/* When a reading took long, something came between: the shortest of several counts. */
static struct moment read_clocks(void)
{
    struct moment best = {.ticks = 0};
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 8 && shortest > READING_NS; i++) {
        uint64_t before = clock_now(), ticks = flight_ticks(), took = clock_now() - before;
        if (took < shortest) {
            shortest = took;
            best = (struct moment){.ticks = ticks, .ns = before + took / 2};
        }
    }
    return best;
}

/* ---- the mapping --------------------------------------------------------------------------------------- */

static int map_memory(struct flight *f, int fd, struct err *e)
{
    void *at = mmap(NULL, sizeof(struct flight_memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return err_sys(e, errno, "cannot map %zu bytes of the flight recorder", sizeof(struct flight_memory));
    f->memory = at;
    return 0;
}

int flight_create(struct flight *f, struct err *e)
{
    f->memory = NULL;
    int fd = memfd_create("hvd-flight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a flight recorder");
    if (ftruncate(fd, (off_t)sizeof(struct flight_memory)) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        err_sys(e, errno, "cannot make a flight recorder of %zu bytes", sizeof(struct flight_memory));
        close(fd);
        return -1;
    }
    if (map_memory(f, fd, e) != 0) {
        close(fd);
        return -1;
    }
    f->memory->made = read_clocks();
    f->memory->version = VERSION;
    f->memory->magic = MAGIC;
    return fd;
}

int flight_map(struct flight *f, int fd, struct err *e)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    f->memory = NULL;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0 ||
        st.st_size != (off_t)sizeof(struct flight_memory))
        return err_set(e, ERR_PROTOCOL, "the flight recorder is no sealed memory of %zu bytes",
                       sizeof(struct flight_memory));
    if (map_memory(f, fd, e) != 0)
        return -1;
    if (f->memory->magic == MAGIC && f->memory->version == VERSION)
        return 0;
    flight_unmap(f);
    return err_set(e, ERR_PROTOCOL, "the flight recorder is of another version");
}

void flight_unmap(struct flight *f)
{
    if (f->memory)
        munmap(f->memory, sizeof *f->memory);
    f->memory = NULL;
}

/* ---- the engine's words -------------------------------------------------------------------------------- */

static void copy_text(char *to, const char *from, size_t most)
{
    size_t n = strnlen(from, most);
    memcpy(to, from, n);
    to[n] = '\0';
}

void flight_set_kind(struct flight *f, uint32_t kind, const char *name)
{
    if (f->memory && kind < FLIGHT_WORDS)
        copy_text(f->memory->kind[kind], name, FLIGHT_WORD_MAX);
}

void flight_set_type(struct flight *f, uint32_t type, const char *name)
{
    if (f->memory && type < FLIGHT_WORDS)
        copy_text(f->memory->type[type], name, FLIGHT_WORD_MAX);
}

void flight_set_name(struct flight *f, uint32_t slot, const char *name)
{
    if (!f->memory || slot >= FLIGHT_SLOTS)
        return;
    struct flight_name *n = &f->memory->name[slot];
    atomic_store(&n->since, 0);
    copy_text(n->text, name, FLIGHT_NAME_MAX);
    atomic_store(&n->since, flight_ticks());
}

struct flight_ring *flight_rings(const struct flight *f, uint32_t worker)
{
    return f->memory->ring[worker];
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* The clocks now, and their ratio since the memory was made. */
struct scale {
    struct moment now;
    double ns_per_tick;
};

static struct scale take_scale(const struct flight_memory *m)
{
    struct scale s = {.now = read_clocks(), .ns_per_tick = 1};
    if (s.now.ticks > m->made.ticks)
        s.ns_per_tick = (double)(s.now.ns - m->made.ns) / (double)(s.now.ticks - m->made.ticks);
    return s;
}

/* A time in the future, or before the clock began, is garbage. */
static uint64_t to_clock(const struct scale *s, uint64_t ticks)
{
    double ago = ticks < s->now.ticks ? (double)(s->now.ticks - ticks) * s->ns_per_tick : 0;
    return ago < (double)s->now.ns ? s->now.ns - (uint64_t)ago : 0;
}

static void copy_name(const struct flight_memory *m, uint32_t slot, uint64_t began, char *to)
{
    to[0] = '\0';
    if (slot >= FLIGHT_SLOTS)
        return;
    const struct flight_name *n = &m->name[slot];
    uint64_t since = atomic_load(&n->since);
    if (since == 0 || since > began)
        return;
    copy_text(to, n->text, FLIGHT_NAME_MAX);
    flight_fence();
    if (atomic_load(&n->since) != since)
        to[0] = '\0';
}

/* false: nothing is there, or it was written meanwhile. */
static bool read_record(const struct flight_memory *m, const struct flight_record *r, const struct scale *s,
                        uint32_t ring, struct flight_operation *out)
{
    uint32_t number = atomic_load(&r->number);
    uint64_t began = r->began, ended = atomic_load(&r->ended);
    uint32_t slot = r->slot;
    uint8_t kind = r->kind, type = r->type;
    if (number == 0)
        return false;
    *out = (struct flight_operation){.ring = ring,
                                     .number = number,
                                     .operation = r->operation,
                                     .set = r->set,
                                     .status = atomic_load(&r->status),
                                     .count = r->count,
                                     .bytes = r->bytes,
                                     .began = to_clock(s, began)};
    flight_fence();
    if (atomic_load(&r->number) != number)
        return false;
    if (out->status != FLIGHT_PENDING)
        out->ended = to_clock(s, ended);
    copy_name(m, slot, began, out->name);
    if (kind < FLIGHT_WORDS)
        copy_text(out->kind, m->kind[kind], FLIGHT_WORD_MAX);
    if (type < FLIGHT_WORDS)
        copy_text(out->type, m->type[type], FLIGHT_WORD_MAX);
    return true;
}

static int compare_beginnings(const void *a, const void *b)
{
    const struct flight_operation *x = a, *y = b;
    if (x->began != y->began)
        return x->began < y->began ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

size_t flight_read(const struct flight *f, uint32_t worker, struct flight_worker *who,
                   struct flight_operation *out, size_t most)
{
    if (!f->memory || worker > FLIGHT_ENGINE)
        return SIZE_MAX;
    const struct flight_ring *ring = f->memory->ring[worker];
    struct scale scale = take_scale(f->memory);
    struct flight_operation *all;
    size_t count = 0;
    *who = (struct flight_worker){.rank = atomic_load(&ring->rank), .pid = atomic_load(&ring->pid)};
    if (who->pid == 0)
        return SIZE_MAX;
    all = calloc(FLIGHT_EACH_MAX, sizeof *all);
    for (uint32_t i = 0; i < FLIGHT_RINGS; i++) {
        who->operations += atomic_load(&ring[i].operations);
        for (uint32_t k = 0; all && k < FLIGHT_RECORDS; k++)
            count += read_record(f->memory, &ring[i].record[k], &scale, i, &all[count]);
    }
    if (count > 0)
        qsort(all, count, sizeof *all, compare_beginnings);
    size_t told = count < most ? count : most;
    if (told > 0)
        memcpy(out, &all[count - told], told * sizeof *all);
    free(all);
    return told;
}

/* ---- beginnings ---------------------------------------------------------------------------------------- */

uint32_t flight_pid(const struct flight *f, uint32_t worker)
{
    return f->memory && worker < FLIGHT_WORKERS ? atomic_load(&f->memory->ring[worker][0].pid) : 0;
}

void flight_copy_name(const struct flight *f, uint32_t slot, uint64_t ticks, char *to)
{
    copy_name(f->memory, slot, ticks, to);
}

/* FNV-1a of the name, then the last steps of SplitMix64, which spread every bit. */
static uint64_t identify_operation(const char *name, uint32_t operation)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    h += operation * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

/* false: it was written meanwhile, is of another set, or has no name. */
static bool read_beginning(const struct flight *f, const struct flight_record *r, uint32_t number,
                           const struct scale *s, struct flight_beginning *out)
{
    char name[FLIGHT_NAME_MAX + 1];
    if (atomic_load(&r->number) != number || r->set != 0)
        return false;
    *out = (struct flight_beginning){.ticks = r->began, .slot = r->slot, .operation = r->operation};
    flight_fence();
    if (atomic_load(&r->number) != number)
        return false;
    copy_name(f->memory, out->slot, out->ticks, name);
    out->began = to_clock(s, out->ticks);
    out->id = identify_operation(name, out->operation);
    return name[0] != '\0';
}

size_t flight_read_beginnings(const struct flight *f, uint32_t worker, uint32_t seen[FLIGHT_RINGS],
                              struct flight_beginning *out)
{
    const struct flight_ring *ring = f->memory->ring[worker];
    struct scale scale = take_scale(f->memory);
    size_t count = 0;
    for (uint32_t i = 0; i < FLIGHT_RINGS; i++) {
        uint32_t last = atomic_load(&ring[i].operations);
        uint32_t newer = last - seen[i] < FLIGHT_RECORDS ? last - seen[i] : FLIGHT_RECORDS;
        for (uint32_t number = last - newer + 1; newer > 0; newer--, number++)
            count += read_beginning(f, &ring[i].record[number % FLIGHT_RECORDS], number, &scale, &out[count]);
        seen[i] = last;
    }
    return count;
}
