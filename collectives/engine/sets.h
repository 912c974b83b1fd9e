/* The world, process sets and pairs: their ranks, their hosts, and the messages of their readiness. */
#pragma once

#include "collectives/engine/agree/readiness.h"
#include "collectives/engine/core.h"
#include "collectives/engine/partial.h"
#include "collectives/shm/layout.h"
#include "collectives/shm/team.h"

#define ENGINE_SET_BUCKETS  4096u
#define ENGINE_PAIRS_MAX    SHM_SLOTS  /* of an epoch; each has a readiness of its own */
#define ENGINE_DATA_BYTES   4096       /* of a tensor that travels with its readiness */
#define ENGINE_FUSION_BYTES (1u << 20) /* of tensors that travel between hosts as one */

struct run; /* run/run.h */

/* Ranks that do operations among themselves: the world, a process set, two that send and receive. Each with
 * its own readiness, list and queue of runs, so that no set holds another one up. */
struct set {
    struct set *next, *next_in_bucket, *next_active;
    bool active; /* remote_progress has something to do for it, or looks whether it has */
    struct team *team;
    bool removed;
    bool lasts;              /* a GPU's operations refer to it until the epoch ends */
    uint32_t names;          /* slots of names that are the set's */
    uint32_t users;          /* of hvd_set_open: members of this host that know it */
    uint8_t *is_user;        /* [members] */
    uint32_t hosts, self;    /* the hosts that have ranks of it, and the number of this one among them */
    uint32_t *host;          /* [hosts], in the job, ascending */
    uint32_t *first, *ranks; /* [hosts]: the host's ranks in `order` */
    struct partial_shape shape;
    uint32_t *order;             /* [ranks of the team], in the team, by host; NULL: 0, 1, ... */
    struct readiness *readiness; /* NULL: all are on this host, or none */
    uint64_t gathers_since;      /* when the first came that others could join; 0: there is none */
    bool gathers;                /* and it waits for them */
    struct run *run_first, *run_last;
    uint64_t operations; /* of the backend, that its runs have started */
    uint64_t forgotten;  /* no name that was forgotten has an entry with a larger number on the list */
};

struct sets {
    struct set *first, *world, *active;
    struct set *bucket[ENGINE_SET_BUCKETS]; /* by id */
    uint32_t pairs;
    uint32_t opened;    /* sets of hvd_set_open */
    uint32_t leaving;   /* sets of hvd_set_open that were closed, and are not freed */
    uint64_t looked_at; /* when they were looked at */
};

extern const struct engine_part sets_part;

/* Makes the world. */
int engine_sets_start(struct engine *engine, struct err *e);
void engine_sets_free(struct engine *engine);
/* The set, or the team of a pair, which is made when it is first asked for; NULL: there is none, or no more
 * pairs can be. */
struct set *sets_find(struct engine *engine, int32_t id);
/* A rank of this host, by local rank, knows the set of these ranks. An hvd_status; *e has the sentence. */
int sets_add(struct engine *engine, int32_t id, uint32_t local, const uint32_t *rank, uint32_t n,
             struct err *e);
/* The rank uses it no more. */
void sets_remove(struct engine *engine, int32_t id, uint32_t local);
/* Its number between hosts. */
uint32_t set_number(const struct set *set);
/* The job's host of an index in the team. */
uint32_t set_host_of(const struct engine *engine, const struct set *set, uint32_t index);
/* A bit for each rank of a host of the job, by local rank, that is in the set. */
void set_mask(const struct engine *engine, const struct set *set, uint32_t host, uint8_t *mask);
/* Sends the messages of the set's readiness. */
void sets_send(struct engine *engine, struct set *set);
/* A message of the world's readiness. */
int sets_receive(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e);
/* Something has changed for the set's readiness. */
void sets_wake(struct engine *engine, struct set *set);
