/* Tensor names to slots, and the host's tensor segments. Names keep their slot until the epoch ends. */
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
    uint32_t hash = hash_name(set, text), slot;

    if (set == engine->world && strcmp(text, SHM_BARRIER_NAME) == 0)
        return SHM_SLOT_BARRIER;
    if (set == engine->world && strcmp(text, SHM_SHUTDOWN_NAME) == 0)
        return SHM_SLOT_SHUTDOWN;
    for (slot = engine->bucket[hash % ENGINE_NAME_BUCKETS]; slot; slot = engine->name[slot].next)
        if (engine->name[slot].hash == hash && engine->name[slot].set == set &&
            strcmp(engine->name[slot].text, text) == 0)
            return slot;
    return UINT32_MAX;
}

int names_fixed(struct engine *engine, struct err *e)
{
    engine->name[SHM_SLOT_BARRIER].text = strdup(SHM_BARRIER_NAME);
    engine->name[SHM_SLOT_SHUTDOWN].text = strdup(SHM_SHUTDOWN_NAME);
    if (!engine->name[SHM_SLOT_BARRIER].text || !engine->name[SHM_SLOT_SHUTDOWN].text)
        return err_set(e, ERR_MEMORY, "no memory for names");
    engine->name[SHM_SLOT_BARRIER].set = engine->name[SHM_SLOT_SHUTDOWN].set = engine->world;
    engine->names = SHM_SLOT_FIRST;
    return 0;
}

int names_slot(struct engine *engine, struct set *set, const char *text, uint32_t *slot, char *error,
               size_t error_size)
{
    size_t len = strlen(text);
    uint32_t *bucket = &engine->bucket[hash_name(set, text) % ENGINE_NAME_BUCKETS];

    if (len == 0 || len > SHM_NAME_MAX) {
        snprintf(error, error_size, "a tensor's name must have 1 to %u bytes", SHM_NAME_MAX);
        return HVD_ERR_INVALID;
    }
    if ((*slot = names_find(engine, set, text)) != UINT32_MAX)
        return HVD_SUCCESS;
    if (engine->names >= SHM_SLOTS) {
        snprintf(error, error_size, "more than %u tensor names: use the same names again",
                 SHM_SLOTS - SHM_SLOT_FIRST);
        return HVD_ERR_MEMORY;
    }
    char *copy = strdup(text);
    if (!copy) {
        snprintf(error, error_size, "no memory for a tensor's name");
        return HVD_ERR_MEMORY;
    }
    *slot = engine->names++;
    if (set == engine->world && strcmp(text, SHM_JOIN_NAME) == 0)
        engine->join_slot = *slot;
    engine->name[*slot] =
        (struct name){.text = copy, .hash = hash_name(set, text), .next = *bucket, .set = set};
    *bucket = *slot;
    return HVD_SUCCESS;
}

void names_free(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->names; i++) {
        if (engine->name[i].has_view)
            tensor_view_free(&engine->name[i].view);
        free(engine->name[i].text);
    }
}

/* ---- segments ------------------------------------------------------------------------------------------ */

int segments_add(struct engine *engine, uint32_t member, int fd, uint32_t *id, char *error, size_t error_size)
{
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        snprintf(error, error_size, "a tensor segment is not sealed against shrinking");
        close(fd);
        return HVD_ERR_INVALID;
    }
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++) {
        if (engine->segment[i].fd >= 0)
            continue;
        engine->segment[i] = (struct owned_segment){.fd = fd, .member = member};
        *id = i;
        return HVD_SUCCESS;
    }
    snprintf(error, error_size, "more than %u tensor segments on one host", ENGINE_SEGMENTS_MAX);
    close(fd);
    return HVD_ERR_MEMORY;
}

void *segments_resolve(void *ctx, uint64_t address, uint64_t bytes)
{
    struct engine *engine = ctx;
    uint32_t id = shm_address_segment(address);
    uint64_t offset = shm_address_offset(address);
    struct err e = ERR_INIT;

    if (id >= ENGINE_SEGMENTS_MAX || engine->segment[id].fd < 0)
        return NULL;
    struct segment *map = &engine->segment[id].map;
    if (!map->base && segment_map(map, engine->segment[id].fd, &e) != 0)
        return NULL;
    return offset <= map->bytes && bytes <= map->bytes - offset ? (char *)map->base + offset : NULL;
}

void segments_free(struct engine *engine)
{
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++) {
        segment_unmap(&engine->segment[i].map);
        if (engine->segment[i].fd >= 0)
            close(engine->segment[i].fd);
        engine->segment[i].fd = -1;
    }
}
