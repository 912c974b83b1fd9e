/* The engine process. One per job and host, one thread, one epoll loop, no global state but this struct.
 *
 *   main.c      fd 3, exit status                    engine.c     the table of parts, the loop, the beat
 *   session.c   frames of the session                core.c       the lowest services
 *   questions.c what workers ask                     workers.c    their connections and processes
 *   names.c     tensor names to slots, segments      peers.c      links to the other engines
 *   sets.c      the world, process sets, pairs       joins.c      what ranks in hvd_join take part in
 *   local.c     rings, helping with chunks           remote.c     operations between hosts
 *   agree/      readiness, the execution list        run/         one entry of that list, between hosts
 *   reinit.c    the next epoch of the job            counters.c   what the engine reports when it is asked
 *   membership.c  the same with other ranks (elastic jobs)
 *   stalls/     which tensors wait for whom, and telling of it
 *   autotune.c  which values are best (pure)         tuning.c     measures, and tells all hosts
 *   timeline.c  a trace of the operations            gpu/         the ranks' operations on GPUs
 *   flight.c    names and rings of the flight recorder
 *   rank_link.c connections between the only ranks of hosts
 *
 * Calls go down: engine.c and session.c stand on the parts, the parts on core.c. A part owns its struct, and
 * takes part in start, turns, epochs, messages and the end through its row in the table (core.h).
 *
 * On one host the ranks finish synchronous and small operations among themselves; the engine names slots,
 * passes segments on, watches over the processes, and takes chunks of large asynchronous operations. With
 * more hosts every operation comes here when it is complete on this host, and is settled here. */
#pragma once

#include "collectives/shm/patience.h"
#include "collectives/engine/core.h"
#include "collectives/engine/flight.h"
#include "collectives/engine/joins.h"
#include "collectives/engine/local.h"
#include "collectives/engine/names.h"
#include "collectives/engine/peers.h"
#include "collectives/engine/remote.h"
#include "collectives/engine/session.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/stalls/stall.h"
#include "collectives/engine/workers.h"
#include "collectives/shm/region.h"

#define ENGINE_BEAT_MS      100
#define ENGINE_PROGRESS_MAX 18

struct counted;     /* counters.c */
struct memberships; /* membership.c */
struct engine_gpus; /* gpu/gpu.h */
struct stalls;      /* stalls.c */
struct timeline;    /* timeline.c */
struct tuning;      /* tuning.c */

/* engine.c and core.c */
struct loop {
    int epoll;
    bool ended;  /* the session has gone: leave the loop */
    bool failed; /* the job has failed, and the parts do not know yet */
    struct watch kick;
    /* Of the parts that have one, in their order; NULL ends them. */
    void (*progress[ENGINE_PROGRESS_MAX])(struct engine *engine, struct turn *turn);
    uint64_t beat_at;             /* next */
    uint64_t ping_at, ping_ns;    /* the next message to the session, and the time between two */
    uint64_t stay_ns, stay_until; /* awake after an activity; 0 in the simulator */
    struct patience patience;
};

/* hvdrun's options, or the standard. */
struct engine_options {
    uint64_t fusion_bytes;
    uint64_t cycle_ns;
    uint32_t cache_capacity; /* of each set; UINT32_MAX: nothing is said */
    uint32_t gpu_fuse;       /* bytes of small tensors on GPUs, at once */
    uint32_t gpu_connect_ms; /* how long NCCL may take to connect */
    bool gpu_requires_nccl;
    uint64_t stream_least; /* bytes of a tensor that ranks may pass piece by piece (local/pipeline.h) */
    bool rank_link;        /* ranks that are the only ones of their hosts may have connections */
    bool flat;             /* reductions between hosts do not begin within them (run_unreduced.c) */
};

struct host {
    struct watch link; /* first; once it is ready */
    char *name;
    uint32_t ranks;
    uint32_t *rank;   /* [ranks], ascending */
    uint32_t machine; /* the same on hosts that share a kernel, as containers do; 0: not known */
    /* Of elastic jobs: */
    uint32_t id;      /* the host's own in all memberships */
    uint32_t *worker; /* [ranks], the workers' numbers; NULL: those are their ranks */
    uint32_t sends;   /* the epoch of what comes over its link */
};

struct rank_place { /* of a rank */
    uint32_t host, local;
};

struct engine {
    const struct engine_part *const *parts; /* NULL ends them */
    struct loop loop;
    struct session_socket session;
    struct engine_options options;

    bool configured;
    bool started;  /* the first operation (the barrier of hvd_init) was settled */
    bool finished; /* the shutdown was settled: links and ranks may go */
    uint32_t epoch, size, self, hosts;
    struct host *host;
    struct rank_place *place; /* [size], of each rank */
    struct region region;
    int region_fd;

    struct workers workers;
    struct flight_desk flight;
    struct names names;
    struct helping help;
    struct sets sets;
    struct peers peers;
    struct runs runs;
    struct joins joins;
    struct stall stall;
    struct stalls *stalls;
    struct timeline *timeline;      /* NULL: none is written */
    struct tuning *tuning;          /* NULL: nothing is tuned */
    struct engine_gpus *gpus;       /* NULL: the workers run NCCL themselves */
    struct counted *counted;        /* NULL: no epoch has ended */
    struct memberships *membership; /* NULL: the job is not elastic */
};

struct engine *engine_new(int session_fd, struct err *e);
void engine_free(struct engine *engine);
/* Until the session has gone. -1 with *e when something is broken that ends the job on this host. */
int engine_loop(struct engine *engine, struct err *e);
/* The epoch's control region. */
int engine_make_region(struct engine *engine, struct err *e);
