#include "collectives/engine/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/hash.h"

static uint32_t hash_name(const struct set *set, const char *text)
{
    return hash_text((uint32_t)set->team->id, text);
}

uint32_t names_find(const struct engine *engine, const struct set *set, const char *text)
{
    uint32_t hash = hash_name(set, text);
    if (set == engine->sets.world && strcmp(text, SHM_BARRIER_NAME) == 0)
        return SHM_SLOT_BARRIER;
    if (set == engine->sets.world && strcmp(text, SHM_SHUTDOWN_NAME) == 0)
        return SHM_SLOT_SHUTDOWN;
    for (uint32_t slot = engine->names.bucket[hash % ENGINE_NAME_BUCKETS]; slot;
         slot = engine->names.name[slot].next)
        if (engine->names.name[slot].hash == hash && engine->names.name[slot].set == set &&
            strcmp(engine->names.name[slot].text, text) == 0)
            return slot;
    return UINT32_MAX;
}

struct tensor_view *names_view(struct engine *engine, uint32_t slot)
{
    struct name *n = &engine->names.name[slot];
    if (!n->text)
        return NULL;
    if (!n->has_view &&
        tensor_view_init(&n->view, &engine->region, n->set->team, slot, n->set->team->members) == 0)
        n->has_view = true;
    return n->has_view ? &n->view : NULL;
}

/* One that was given back, so few pages are in use. */
static uint32_t take_slot(struct names *names)
{
    uint32_t slot = names->free_first;

    names->free--;
    if (slot == 0)
        return names->count++;
    names->free_first = names->name[slot].next;
    return slot;
}

int names_make(struct engine *engine, struct set *set, const char *text, uint32_t *slot, struct err *e)
{
    size_t len = strlen(text);
    uint32_t *bucket = &engine->names.bucket[hash_name(set, text) % ENGINE_NAME_BUCKETS];
    if (len == 0 || len > SHM_NAME_MAX) {
        err_set(e, ERR_PROTOCOL, "a tensor's name must have 1 to %u bytes", SHM_NAME_MAX);
        return HVD_ERR_INVALID;
    }
    *slot = names_find(engine, set, text);
    if (*slot != UINT32_MAX)
        return HVD_SUCCESS;
    if (engine->names.free == 0) {
        *slot = SHM_SLOTS;
        err_set(e, ERR_MEMORY, "%u tensors are pending at once", SHM_SLOTS - SHM_SLOT_FIRST);
        return HVD_ERR_MEMORY;
    }
    char *copy = strdup(text);
    if (!copy) {
        err_set(e, ERR_MEMORY, "no memory for a tensor's name");
        return HVD_ERR_MEMORY;
    }
    *slot = take_slot(&engine->names);
    if (set == engine->sets.world && strcmp(text, SHM_JOIN_NAME) == 0)
        engine->names.join_slot = *slot;
    engine->names.name[*slot] = (struct name){
        .text = copy, .hash = hash_name(set, text), .next = *bucket, .set = set, .listed = set->forgotten};
    *bucket = *slot;
    set->names++;
    flight_set_name(&engine->flight.map, *slot, text);
    return HVD_SUCCESS;
}

void names_drop(struct engine *engine, uint32_t slot)
{
    struct name *n = &engine->names.name[slot];
    uint32_t *at = &engine->names.bucket[n->hash % ENGINE_NAME_BUCKETS];

    while (*at != slot)
        at = &engine->names.name[*at].next;
    *at = n->next;
    if (n->set->forgotten < n->listed)
        n->set->forgotten = n->listed;
    n->set->names--;
    if (n->has_view)
        tensor_view_free(&n->view);
    free(n->text);
    *n = (struct name){.next = engine->names.free_first};
    engine->names.free_first = slot;
    engine->names.free++;
}

/* ---- segments ------------------------------------------------------------------------------------------ */

int segments_add(struct engine *engine, uint32_t member, int fd, uint32_t *id, struct err *e)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        err_set(e, ERR_PROTOCOL, "a tensor segment is not sealed against shrinking");
        close(fd);
        return HVD_ERR_INVALID;
    }
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++) {
        if (engine->names.segment[i].fd >= 0)
            continue;
        engine->names.segment[i] = (struct owned_segment){.fd = fd, .member = member};
        *id = i;
        return HVD_SUCCESS;
    }
    err_set(e, ERR_MEMORY, "more than %u tensor segments on one host", ENGINE_SEGMENTS_MAX);
    close(fd);
    return HVD_ERR_MEMORY;
}

void *segments_resolve(void *ctx, uint64_t address, uint64_t bytes)
{
    struct engine *engine = ctx;
    uint32_t id = shm_address_segment(address);
    uint64_t offset = shm_address_offset(address);
    struct err e = ERR_INIT;
    if (id >= ENGINE_SEGMENTS_MAX || engine->names.segment[id].fd < 0)
        return NULL;
    struct segment *map = &engine->names.segment[id].map;
    if (!map->base && segment_map(map, engine->names.segment[id].fd, &e) != 0)
        return NULL;
    return offset <= map->bytes && bytes <= map->bytes - offset ? (char *)map->base + offset : NULL;
}

/* ---- the part ------------------------------------------------------------------------------------------ */

/* Makes the names that every job has. */
static int begin_names(struct engine *engine, struct err *e)
{
    struct name *barrier = &engine->names.name[SHM_SLOT_BARRIER];
    struct name *shutdown = &engine->names.name[SHM_SLOT_SHUTDOWN];
    engine->names.join_slot = SHM_SLOTS;
    engine->names.count = SHM_SLOT_FIRST;
    engine->names.free = SHM_SLOTS - SHM_SLOT_FIRST;
    engine->names.free_first = 0;
    barrier->text = strdup(SHM_BARRIER_NAME);
    shutdown->text = strdup(SHM_SHUTDOWN_NAME);
    barrier->set = shutdown->set = engine->sets.world;
    flight_set_name(&engine->flight.map, SHM_SLOT_BARRIER, SHM_BARRIER_NAME);
    flight_set_name(&engine->flight.map, SHM_SLOT_SHUTDOWN, SHM_SHUTDOWN_NAME);
    return barrier->text && shutdown->text && forget_begin(engine)
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for names");
}

static int start_names(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    (void)config;
    return begin_names(engine, e);
}

static void free_names(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->names.count; i++) {
        if (engine->names.name[i].has_view)
            tensor_view_free(&engine->names.name[i].view);
        free(engine->names.name[i].text);
    }
    forget_end(engine);
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++) {
        segment_unmap(&engine->names.segment[i].map);
        if (engine->names.segment[i].fd >= 0)
            close(engine->names.segment[i].fd);
        engine->names.segment[i].fd = -1;
    }
}

static void end_names(struct engine *engine)
{
    free_names(engine);
    memset(engine->names.name, 0, sizeof engine->names.name);
    memset(engine->names.bucket, 0, sizeof engine->names.bucket);
}

const struct engine_part names_part = {
    .start = start_names, .epoch_begin = begin_names, .epoch_end = end_names, .free = free_names};
