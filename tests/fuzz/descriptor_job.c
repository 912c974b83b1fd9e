#include "tests/fuzz/descriptor_job.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/engine/local.h"
#include "collectives/engine/peers.h"
#include "collectives/engine/remote.h"
#include "collectives/engine/session.h"
#include "common/base/log.h"
#include "tests/sim/sim.h"

#define GUARD (1u << 20)

/* Tensors: of the world, of a set that is on all hosts, of one that is on the first, of a pair. */
static const struct {
    int32_t set;
    const char *text;
} tensors[JOB_TENSORS] = {{0, "a"},
                          {0, "b"},
                          {1, "a"},
                          {2, "a"},
                          {3, "a"},
                          {0, "c"},
                          {0, SHM_BARRIER_NAME},
                          {0, SHM_SHUTDOWN_NAME},
                          {0, "d"},
                          {0, "e"},
                          {0, "f"},
                          {0, "g"},
                          {0, "h"},
                          {0, "i"},
                          {0, "j"},
                          {0, "k"}};
#define PAIR_SET 3 /* stands for the team of the first and the last rank */

struct place place[JOB_HOSTS];
uint32_t hosts;
static uint32_t ranks[JOB_HOSTS], world_size;

/* ---- names that the simulation's network links to ------------------------------------------------------ */

uint64_t sim_now;
bool sim_steady;
struct chance sim_timing;
struct job job;

void fiber_poke(struct fiber *f)
{
    (void)f; /* every engine gets its turns */
}

void sim_say(const char *fmt, ...)
{
    (void)fmt;
}

/* Links without a network have no keys. */
const struct auth_ops *auth_open(struct err *e)
{
    static const struct auth_ops none;

    (void)e;
    return &none;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
void *__asan_memmove(void *to, const void *from, size_t bytes);
void *__wrap___asan_memcpy(void *to, const void *from, size_t bytes);

static void *guarded[64]; /* mappings of shared files */

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    size_t i = 0;

    if (fd < 0 || (flags & MAP_SHARED) == 0)
        return __real_mmap(at, bytes, prot, flags, fd, offset);
    while (guarded[i])
        if (++i == sizeof guarded / sizeof *guarded)
            abort();
    size_t pages = (bytes + 4095) / 4096 * 4096;
    char *around = __real_mmap(NULL, pages + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (around == MAP_FAILED)
        return MAP_FAILED;
    return guarded[i] = __real_mmap(around + GUARD, bytes, prot, flags | MAP_FIXED, fd, offset);
}

int __wrap_munmap(void *at, size_t bytes)
{
    for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++) {
        if (guarded[i] != at)
            continue;
        size_t pages = (bytes + 4095) / 4096 * 4096;
        guarded[i] = NULL;
        return __real_munmap((char *)at - GUARD, pages + 2 * GUARD);
    }
    return __real_munmap(at, bytes);
}

/* Ranks that give overlapping memory get what they deserve; it is no fault of the engine. */
void *__wrap___asan_memcpy(void *to, const void *from, size_t bytes)
{
    return __asan_memmove(to, from, bytes);
}

/* From one field to the next there is nothing; whole pieces of 8 bytes only. */
static void fence(bool on, const void *object, size_t from, size_t to)
{
    const char *at = (const char *)object + (from + 7) / 8 * 8;
    size_t bytes = to - (from + 7) / 8 * 8;

    if (on)
        ASAN_POISON_MEMORY_REGION(at, bytes);
    else
        ASAN_UNPOISON_MEMORY_REGION(at, bytes);
}

#define END_OF(type, field) (offsetof(type, field) + sizeof((type *)0)->field)

static void fence_slot(bool on, struct shm_slot *slot, uint32_t members)
{
    fence(on, slot, END_OF(struct shm_slot, claim), offsetof(struct shm_slot, done));
    fence(on, slot, END_OF(struct shm_slot, wanted_op), offsetof(struct shm_slot, settled));
    fence(on, slot, END_OF(struct shm_slot, known), offsetof(struct shm_slot, result));
    for (uint32_t i = 0; i < members; i++) {
        struct shm_member_slot *member_slot = &slot->member_slot[i];
        fence(on, member_slot, END_OF(struct shm_member_slot, done), offsetof(struct shm_member_slot, given));
        fence(on, member_slot, END_OF(struct shm_member_slot, launched),
              offsetof(struct shm_member_slot, body));
        for (int k = 0; k < 2; k++)
            fence(on, &member_slot->body[k], END_OF(struct shm_body, details), sizeof(struct shm_body));
    }
}

static void fence_region(bool on, const struct engine *engine)
{
    const struct region *r = &engine->region;

    for (uint32_t i = 0; i < engine->names.count; i++)
        fence_slot(on, region_slot(r, i), r->members);
    fence(on, region_slot(r, engine->names.count), 0, 1u << 14); /* of nobody yet */
    for (uint32_t i = 0; i < 2 * r->members; i++)
        fence(on, region_entry(r, engine->names.count, i / 2, i), 0, 1u << 14);
}

/* ---- the job ------------------------------------------------------------------------------------------- */

static void configure(struct place *p)
{
    static uint8_t zeros[AUTH_KEY_SIZE];
    static char *name[JOB_HOSTS] = {(char *)"a", (char *)"b", (char *)"c"}, *address = (char *)"127.0.0.1";
    Hvd__HostRanks of[JOB_HOSTS], *host[JOB_HOSTS];
    Hvd__EngineConfig config = HVD__ENGINE_CONFIG__INIT;
    struct err e = ERR_INIT;

    for (uint32_t i = 0, rank = 0; i < hosts; rank += ranks[i++]) {
        host[i] = &of[i];
        hvd__host_ranks__init(host[i]);
        of[i].name = name[i];
        of[i].first_rank = rank;
        of[i].ranks = ranks[i];
    }
    config.job = (char *)"fuzz";
    config.epoch = 1;
    config.key = (ProtobufCBinaryData){sizeof zeros, zeros};
    config.token = (ProtobufCBinaryData){WORKER_TOKEN_SIZE, zeros};
    config.size = world_size;
    config.host_index = (uint32_t)(p - place);
    config.host = host;
    config.n_host = hosts;
    config.address = &address;
    config.n_address = 1;
    config.log_level = LOG_FATAL;
    if (engine_configure(p->engine, &config, eventfd(0, EFD_CLOEXEC), &e) != 0)
        abort();
}

static void add_set(struct engine *engine, int32_t id, const uint32_t *rank, uint32_t n)
{
    if (sets_add(engine, id, 0, rank, n, NULL) != HVD_SUCCESS)
        abort();
}

static void name_tensors(struct place *p)
{
    const uint32_t first_and_last[] = {0, world_size - 1}, first_two[] = {0, 1};

    add_set(p->engine, 1, first_and_last, 2);
    add_set(p->engine, 2, first_two, 2);
    for (size_t i = 0; i < JOB_TENSORS; i++) {
        int32_t id = tensors[i].set == PAIR_SET ? team_pair_id(0, world_size - 1) : tensors[i].set;
        struct set *set = sets_find(p->engine, id);
        p->slot[i] = UINT32_MAX;
        if (set && set->team->members > 0 &&
            names_make(p->engine, set, tensors[i].text, &p->slot[i], NULL) != HVD_SUCCESS)
            abort();
    }
}

static void add_segments(struct place *p)
{
    struct err e = ERR_INIT;

    for (uint32_t i = 0; i < p->region.members; i++) {
        struct owner *w = &p->owner[i];
        int fd = segment_create(&w->memory, SEGMENT_BYTES, &e);
        if (fd < 0 || segments_add(p->engine, i, fd, &w->segment, NULL) != HVD_SUCCESS)
            abort();
    }
}

void job_turn(void)
{
    sim_now += SEC;
    for (struct place *p = place; p < place + hosts; p++) {
        struct turn turn = {.now = sim_now, .timeout = -1};
        peers_part.progress(p->engine, &turn);
        local_part.progress(p->engine, &turn);
        remote_part.progress(p->engine, &turn);
    }
}

static void connect_all(void)
{
    Hvd__Link of[JOB_HOSTS], *link[JOB_HOSTS];
    Hvd__Links all = HVD__LINKS__INIT;

    for (uint32_t i = 0; i < hosts; i++) {
        link[i] = &of[i];
        hvd__link__init(link[i]);
        of[i].host = i;
        of[i].port = 1 + i;
    }
    all.link = link;
    all.n_link = hosts;
    for (uint32_t i = 0; i < hosts; i++)
        peers_connect(place[i].engine, &all);
    job_turn();
    job_turn();
    for (uint32_t i = 0; hosts > 1 && i < hosts; i++)
        if (!place[i].engine->peers.up)
            abort();
}

void job_begin(uint8_t shape)
{
    static const struct {
        uint32_t hosts, ranks[JOB_HOSTS];
    } shapes[] = {{1, {3}}, {2, {2, 2}}, {3, {2, 1, 1}}, {2, {3, 1}}};
    struct err e = ERR_INIT;

    sim_now = 0;
    sim_timing.state = 1;
    net_reset();
    memset(place, 0, sizeof place);
    memcpy(ranks, shapes[shape % 4].ranks, sizeof ranks);
    job.hosts = hosts = shapes[shape % 4].hosts;
    world_size = ranks[0] + ranks[1] + ranks[2];
    for (struct place *p = place; p < place + hosts; p++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            abort();
        p->session = pair[0];
        p->engine = engine_new(pair[1], &e);
        if (!p->engine)
            abort();
        configure(p);
        if (region_map(&p->region, p->engine->region_fd, &e) != 0)
            abort();
        name_tensors(p);
        add_segments(p);
        fence_region(true, p->engine);
    }
    connect_all();
}

void job_end(void)
{
    for (struct place *p = place; p < place + hosts; p++) {
        fence_region(false, p->engine);
        for (uint32_t i = 0; i < p->region.members; i++) {
            for (size_t t = 0; t < JOB_TENSORS; t++)
                if (p->owner[i].has_view[t])
                    tensor_view_free(&p->owner[i].view[t]);
            segment_unmap(&p->owner[i].memory);
        }
        region_unmap(&p->region);
    }
    for (struct place *p = place; p < place + hosts; p++) {
        engine_free(p->engine);
        close(p->session);
    }
}
