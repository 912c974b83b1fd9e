/* The core of libhvd: the one client of a process, errors, locks and the engine's life. All other files of
 * libhvd stand on the core, and the core calls none of them.
 *
 *   core.c       errors, state, locks, the engine         rpc.c       questions to the engine
 *   arena.c      memory that other processes can map      sets.c      process sets, pairs of ranks
 *   names.c      a tensor's name to its slot              group.c     several tensors packed into one
 *   placement.c  where an operation's elements lie        progress.c  the steps of an operation, the wait
 *   operation.c  submitting an operation                  pending.c   operations that may end early
 *   solo.c       the path of a job of one rank            request.c   the checks that all calls share
 *   timeline.c   a file of all operations                 overdue.c   when an engine is given up
 *   sized.c      results that the caller allocates         forget.c    tensors without a use are forgotten
 *   carry.c      sets over a change of the ranks           gpu/        tensors in memory of GPUs
 *   flight.c     the last operations, for later            link/       from rank to rank of hosts
 *   api/         the calls of hvd.h
 *
 * An operation goes one of three paths: through shared memory (operation.c, progress.c), alone (solo.c), or
 * on GPUs (gpu/). The last two are a `struct path_ops` (operation.h). */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "collectives/hvd.h"
#include "collectives/shm/region.h"
#include "collectives/shm/team.h"
#include "common/base/clock.h"

struct flight_ring;
struct path_ops;
struct tensor;

#define ENGINE_SLICE_MS 250 /* a wait looks at the engine at least once in this time */

enum client_state {
    CLIENT_NONE,
    CLIENT_READY,
    CLIENT_JOINING,  /* this rank has joined, and others have not */
    CLIENT_GAVE_UP,  /* hvd_abort, in a job of one rank without an engine */
    CLIENT_STRANDED, /* the engine has ended or is stopped: this rank has left the operations of others */
    CLIENT_FORKED
};

/* The tensors of this process, by name, by slot and by age. Names are forgotten (forget.c). The memory of a
 * forgotten tensor stays a tensor's until hvd_shutdown: other threads may look at the tensor without a lock.
 */
struct tensor_table {
    struct tensor *_Atomic bucket[SHM_SLOTS]; /* changed under names_lock, read without a lock */
    struct tensor *newest;                    /* of all, also of those without a name */
    struct tensor *free;                      /* of those without a name */
    struct tensor *_Atomic latest;            /* the tensor of the last look-up, or NULL */
    struct tensor *_Atomic by_slot[SHM_SLOTS];
    uint32_t solo_slots, solo_frees;
    uint32_t solo_free[SHM_SLOTS]; /* slots below solo_slots that were given back */
    uint32_t generations;          /* the most that a forgotten tensor had */
    _Atomic uint32_t answered;     /* the header's `wanting` that this rank has answered last */
};

/* A rank writes down its operations here: counts.h, flight.h. */
struct recording {
    const void *_Atomic thread; /* it owns the rank's counts and the first ring */
    struct flight_ring *ring;   /* [FLIGHT_RINGS]; NULL: none; kept until the process ends */
};

/* Locks, in the order in which a thread may take them:
 *
 *   sets_lock    a process set is made or removed
 *   lookers      a thread looks at tensors that others may hold: lookers_lock()
 *   left_lock    the list of operations whose wait has timed out; also taken with a tensor.lock, as only a
 *                trylock takes a tensor.lock behind it
 *   tensor.lock  a thread submits, polls or waits for the tensor's operation
 *   gpu_lock()   everything of operations on GPUs
 *   tensor.lock  of a tensor that libhvd uses itself for GPUs, SHM_DEVICE_NAME...
 *   names_lock   the table of tensors changes
 *   arena_lock   blocks and segments
 *   (the lock of link/rank_link.c)
 *   rpc_lock     the socket to the engine; ring_lock: the ring of tensors to the engine */
struct client {
    _Atomic int state; /* enum client_state */
    int rank, size, local_rank, local_size, cross_rank, cross_size;
    bool solo;                   /* a job of one rank without an engine */
    const struct path_ops *path; /* of operations in host memory; NULL: through shared memory */
    const struct path_ops *gpu;  /* of operations in memory of GPUs */
    uint32_t crowd;              /* this host's ranks for each processor, at least 1 */
    struct region region;
    struct shm_mailbox *mailbox;
    struct recording recording;
    int socket, kick;
    pthread_mutex_t rpc_lock, names_lock, arena_lock, ring_lock, sets_lock;
    _Atomic bool rpc_broken;
    char gave_up[SHM_TEXT_MAX]; /* CLIENT_GAVE_UP: the sentence */
    struct tensor_table tensors;
    int worker; /* of an elastic job: this process's number; -1: the job is not elastic */
    /* The epochs that ended with hvd_shutdown. Elastic: the membership that this worker was in last. */
    uint32_t epochs;
    /* By hvd_set; 0: the world. Below SHM_SETS_MAX by id, made and removed under sets_lock, and freed by
     * hvd_shutdown, since other threads may still read them. From there on sets of hvd_set_open. */
    struct team *_Atomic set[2 * SHM_SETS_MAX];
    _Atomic bool removed[2 * SHM_SETS_MAX];
    _Atomic uint32_t sets;                      /* the next id below SHM_SETS_MAX; under sets_lock */
    struct team *_Atomic pair[TEAM_PAIR_RANKS]; /* this rank and another rank; made under names_lock */
};

extern struct client client;

/* ---- errors -------------------------------------------------------------------------------------------- */

/* Remembers the sentence for hvd_last_error. Returns `status`. */
int fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The status of this thread's last fail(), for a caller that got NULL. */
int last_failure(void);
/* HVD_SUCCESS when calls are possible; else a status, after fail(). */
int client_check(void);
/* Like client_check, for calls that begin an operation. Fails also while hvd_join runs, and, with
 * HVD_ERR_ENGINE, when this rank is stranded. */
int client_may_begin(void);
/* The job has failed: fails with the region's status and sentence. */
int fail_poisoned(void);

/* ---- locks --------------------------------------------------------------------------------------------- */

/* A thread that only looks at tensors holds this lock before it takes a tensor's lock. */
void lookers_lock(void);
bool lookers_trylock(void);
void lookers_unlock(void);
/* Takes a tensor's lock, unless a thread submits or waits for its operation. A thread that only looks holds
 * the lock for a moment: the call waits for that. The caller holds no tensor's lock and no names_lock. */
bool lock_unless_waited(pthread_mutex_t *lock);

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Makes an array that has `have` elements of `each` bytes large enough for one element more. */
bool grow_array(void **array, size_t *capacity, size_t have, size_t each);

/* ---- the engine ---------------------------------------------------------------------------------------- */

/* Whether the engine still moves, as a thread that waits or polls sees it from time to time. */
struct watchdog {
    uint64_t at; /* the last look of a poll */
    uint32_t beat;
    unsigned quiet_ms;
};

/* Wakes the engine if it sleeps. */
void engine_wake(void);
/* Puts the slot into the ring to the engine, and wakes the engine. `notified`: where the slot was put last. A
 * slot that is still there is not put again. */
void engine_tell(uint32_t slot, uint32_t *notified);
/* The engine has ended, or its beat has stood still for 10 s. Call it once in ENGINE_SLICE_MS. */
bool engine_has_stopped(struct watchdog *w);
/* Call it at each poll. The time between two polls counts as one slice, however long it is. */
bool engine_has_stopped_polling(struct watchdog *w);
/* Sleeps until something may have changed, after doorbell_prepare, `ms` at most. false: the engine has
 * stopped. */
bool engine_sleep(uint32_t prepared, unsigned ms, struct watchdog *w);
/* The engine has stopped. This rank leaves its operations, and begins no other. Another rank may complete
 * such an operation all the same: the mark in the mailbox says that its elements may have changed. */
void engine_lose(void);

/* ---- points of an operation ---------------------------------------------------------------------------- */

enum point {
    POINT_SUBMIT,
    POINT_AGREED,
    POINT_WAIT,
    POINT_ENDED,
    POINT_COPIED_IN,
    POINT_COPIED_OUT,
    POINT_NCCL,
    POINT_STAGED
};

enum watcher { WATCHER_TIMELINE, WATCHER_JOIN, WATCHERS };

typedef void watcher_fn(struct tensor *t, enum point point, uint64_t since);

/* Bits of enum watcher: one word, so that an operation that nobody watches costs one load. */
extern _Atomic uint8_t watched __attribute__((visibility("hidden")));
void watch_start(enum watcher watcher, watcher_fn *hear);
void watch_stop(enum watcher watcher);
void watch_report(struct tensor *t, enum point point, uint64_t since) __attribute__((cold));

/* The operation has reached a point; with `since`: a step that began at that time has ended. The tensor's
 * lock is held. */
static inline void report_point(struct tensor *t, enum point point, uint64_t since)
{
    if (__builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed), 0))
        watch_report(t, point, since);
}

/* timeline.c: starts the timeline that HOROVOD_TIMELINE asks for, a status; stops the one that runs. */
int timeline_open(void);
void timeline_close(void);

/* The time, if an operation is watched. */
static inline uint64_t read_watch_clock(void)
{
    return __builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed), 0) ? clock_now() : 0;
}
