/* Tensor names to slots, and the host's tensor segments. A name keeps its slot until it is forgotten
 * (forget.h). */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/engine/forget.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/segment.h"

#define ENGINE_SEGMENTS_MAX 4096u
#define ENGINE_NAME_BUCKETS SHM_SLOTS
#define ENGINE_OWN_SEGMENT  UINT32_MAX /* the member of a segment that is the engine's own */

struct set;

/* The engine's side of a tensor name. */
struct name {
    char *text;          /* NULL: the slot is free */
    uint32_t hash, next; /* next slot in the bucket, or of those that were given back; 0: none */
    uint32_t held;       /* members that hold the slot */
    struct set *set;
    bool has_view, announced;
    bool running; /* a run uses the view: whatever the ranks write, nothing new begins before it is settled */
    bool helped;  /* the engine takes chunks of it */
    bool watched; /* a case of stalls.c is about it */
    uint64_t listed; /* no entry of this name that this host has begun has a larger number on the list */
    struct tensor_view view;
    uint32_t wanted; /* the operation that this host's joined ranks were told of last */
    uint32_t asked;  /* the operation that other hosts have told of last, for those ranks */
    int status;      /* of opening it */
    char error[SHM_TEXT_MAX];
};

struct owned_segment {
    int fd; /* -1: free */
    uint32_t member;
    struct segment map; /* when the engine needed it */
};

struct names {
    struct name name[SHM_SLOTS];
    uint32_t bucket[ENGINE_NAME_BUCKETS];
    uint32_t count;      /* slots below had a name */
    uint32_t free;       /* slots without a name */
    uint32_t free_first; /* of those below count; 0: none */
    struct holding holding;
    struct owned_segment segment[ENGINE_SEGMENTS_MAX];
    uint32_t join_slot; /* of SHM_JOIN_NAME; SHM_SLOTS: it has none yet */
};

extern const struct engine_part names_part;

/* The slot of the name, a new one for a new name. An hvd_status; *e has the sentence. With HVD_ERR_MEMORY,
 * *slot is SHM_SLOTS when no slot is free. */
int names_make(struct engine *engine, struct set *set, const char *text, uint32_t *slot, struct err *e);
/* The slot has no name from now on. */
void names_drop(struct engine *engine, uint32_t slot);
/* UINT32_MAX: there is no such name. */
uint32_t names_find(const struct engine *engine, const struct set *set, const char *text);
/* The slot's tensor on this host. NULL: the slot is free, or there is no memory. */
struct tensor_view *names_view(struct engine *engine, uint32_t slot);
/* Takes the descriptor. An hvd_status; *e has the sentence. */
int segments_add(struct engine *engine, uint32_t member, int fd, uint32_t *id, struct err *e);
void *segments_resolve(void *engine, uint64_t address, uint64_t bytes);
