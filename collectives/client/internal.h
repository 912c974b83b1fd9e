/* What the files of libhvd share: one client per process.
 *
 *   init.c    environment, joining, leaving            names.c    a tensor's name to its slot
 *   api/calls*.c  the calls: arguments to a request        arena.c    hvd_alloc, segments, addresses
 *   request.c what is the same in all calls            rpc.c      questions to the engine
 *   submit.c  a request: staging, publishing           group.c    several tensors packed into one
 *   sets.c    process sets, pairs of ranks             calls_sets.c  the calls about them
 *   wait.c    progress of one operation, waiting       handle.c   persistent handles
 *   query.c   numbers, errors, names of codes          solo.c     a job of one rank
 *   pending.c operations that may end before anybody waits for them
 *   join.c    hvd_join                                join_parts.c  what a joined rank is in
 *   join_async.c  the same in a thread of its own
 *   timeline.c  a file of what happens
 *   gpu/        operations in memory of GPUs: gpu.h
 *   spin_policy.c  whether it pays to look for other ranks, rather than sleep
 *
 * Locks, in the order they may be taken: sets_lock, then that of pending.c, then a tensor's own lock, then
 * that of devices, then the lock of a tensor of SHM_DEVICE_NAME..., then names_lock, then arena_lock, then
 * rpc_lock. A tensor's lock is held by whoever submits, polls or waits for
 * its operation, so the operation itself needs no other protection. */
#ifndef HVD_COLLECTIVES_CLIENT_INTERNAL_H
#define HVD_COLLECTIVES_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "collectives/client/group.h"
#include "collectives/client/spin_policy.h"
#include "collectives/hvd.h"
#include "collectives/shm/region.h"
#include "collectives/shm/segment.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/worker_socket.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define NAME_BUCKETS SHM_SLOTS

enum client_state {
    CLIENT_NONE,
    CLIENT_READY,
    CLIENT_JOINING,  /* this rank has joined, and others have not */
    CLIENT_STRANDED, /* the engine has gone, or does not move: this rank has left what others may still be in
                      */
    CLIENT_FORKED
};

enum phase {
    PHASE_IDLE,   /* no operation */
    PHASE_ARRIVE, /* published; other members of this host are missing */
    PHASE_WORK,   /* all agree; chunks are being done */
    PHASE_REMOTE, /* more than one host: the engine will settle it */
    PHASE_DEVICE, /* published; the rest is up to gpu_progress.c */
    PHASE_ENDED   /* `status` holds; waits to be waited for */
};

/* What belongs to a tensor's handle while the name is used for others; join.c. */
struct part;

/* What a call asks for. */
struct request {
    const struct team *team; /* who takes part; this rank is one of them */
    struct tensor_op op;
    const void *in;
    void *out;
    uint64_t room;         /* bytes that `out` holds, and no more than can be needed */
    const uint64_t *table; /* [ranks of the team] elements, NULL: none; used until it is submitted */
    size_t *rows;          /* NULL, or [ranks]: wants to know how many rows each rank gave */
    const void **result;   /* of a shared allreduce */
    void *stream;          /* of the options; for a device */
    struct group *group;   /* NULL: none; taken when the request was submitted, in and out are then NULL */
};

/* Whether the engine still moves, as one who waits or polls sees it from time to time. */
struct watchdog {
    uint64_t at; /* the last look of a poll */
    uint32_t beat;
    unsigned quiet_ms;
};

/* One tensor name and its operation. Made on first use, lives until hvd_shutdown. */
struct tensor {
    struct tensor *next;            /* in its bucket */
    struct tensor *older;           /* of all */
    struct tensor *_Atomic follows; /* whose name was looked up after this one the last time */
    char *name;
    uint32_t hash, slot;
    pthread_mutex_t lock;
    uint32_t sequence;   /* operations so far, all ranks count alike */
    uint32_t generation; /* handles so far */
    enum phase phase;
    bool persistent; /* a handle of hvd_allreduce_init has it */
    struct watchdog polls;
    struct patience patience;
    uint32_t index; /* of this rank, in the view's team */
    uint32_t told;  /* where in the ring its slot was put the last time */
    struct tensor_view view;
    uint32_t traced; /* the timeline that knows its lane; timeline.c */
    uint8_t open;    /* events begun there: none, NEGOTIATE_..., the operation */

    /* the operation, until TENSOR_OPERATION_END: */
    struct tensor_op op;
    struct tensor_where where;
    uint64_t bytes; /* that this rank gives */
    bool small;     /* they are in its entry */
    uint8_t timed;  /* operations that its time stands for; 0: it is not taken */
    uint64_t since; /* when it began */
    const void *in;
    void *out;         /* the user's; NULL: this rank wants no result */
    void *stand_in;    /* shared memory that `in` is copied to at the start, or NULL */
    void *landing;     /* shared memory that the result is copied from in the end, or NULL: not there */
    void *staging;     /* the arena's block that the two above, or a table, lie in, or NULL */
    uint64_t *receipt; /* there too: elements that came of each rank, as the engine says */
    uint64_t room;     /* bytes of the result at most */
    size_t *rows;
    const void **result;
    struct group *group;
    int status;

#define TENSOR_OPERATION_AT  offsetof(struct tensor, op)
#define TENSOR_OPERATION_END offsetof(struct tensor, shared)
    void *shared,
        *shared_before; /* results of shared allreduces: this one's, and one that became too small */
    size_t shared_bytes;

    struct device_op *device; /* NULL: it was never one on a device; gpu.h */
    struct part *aside;       /* of hvd_join */
    _Atomic bool is_over; /* while this rank has joined: it has ended, and who saw that holds the lock for a
                             moment only */

    char text[SHM_TEXT_MAX]; /* why status is not 0; last, because it is hardly ever touched */
};

struct client {
    _Atomic int state; /* enum client_state */
    int rank, size, local_rank, local_size, cross_rank, cross_size;
    bool solo;      /* a job of one rank without an engine */
    uint32_t crowd; /* of this host's ranks on each processor, at least 1 */
    struct region region;
    struct shm_mailbox *mailbox;
    const void *_Atomic counts; /* the thread whose counts are its own; NULL: none has counted; counts.c */
    int socket, kick;
    pthread_mutex_t rpc_lock, names_lock, arena_lock, ring_lock, sets_lock;
    _Atomic bool rpc_broken;
    struct tensor *_Atomic bucket[NAME_BUCKETS]; /* changed under names_lock, read by whoever looks up */
    struct tensor *newest;
    struct tensor *_Atomic latest; /* that was looked up; NULL: none */
    struct tensor *_Atomic by_slot[SHM_SLOTS];
    uint32_t solo_slots;
    uint32_t epochs;                        /* that ended with hvd_shutdown */
    uint32_t generations;                   /* the most that a tensor of an earlier hvd_init had */
    struct team *_Atomic set[SHM_SETS_MAX]; /* by id; 0: the world. Made and removed under sets_lock; freed
                                               with all others, for who still looks at them */
    _Atomic bool removed[SHM_SETS_MAX];
    _Atomic uint32_t sets;                      /* the next id; under sets_lock */
    struct team *_Atomic pair[TEAM_PAIR_RANKS]; /* of this rank and another one; made under names_lock */
};

extern struct client client;

/* query.c: remembers the sentence for hvd_last_error; returns `status`. */
int fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The status of this thread's last fail(), for whoever has only NULL in hand. */
int last_failure(void);
/* HVD_SUCCESS when calls are possible; else the status, with its sentence. */
int client_check(void);
/* The same for calls that begin an operation: not while hvd_join takes part in those of others, nor
 * (HVD_ERR_ENGINE) when this rank is stranded. */
int client_may_begin(void);
/* The job has failed: the region's status and sentence. */
int fail_poisoned(void);

/* rpc.c: one question; the answer replaces *m. fd_out: the descriptors of the answer (*fds_out of them at
 * most, set to their number; the caller's). Returns HVD_SUCCESS, HVD_ERR_ENGINE, or the engine's status with
 * its sentence. */
int rpc(struct worker_message *m, int fd_in, int *fd_out, unsigned *fds_out);
int rpc_simple(uint32_t type);
/* This rank cannot do its part of what others have begun with it: the job ends. */
void rpc_failed(const char *why);
/* A line of the engine's log, at the level info. Not of a job of one rank without an engine. */
void rpc_note(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* names.c: the team's tensor of this name, asking the engine when it is new. */
int tensor_find(const struct team *team, const char *name, struct tensor **found);
/* Brings to this processor what will be touched next if the calls come in the order of the last time. */
void tensor_foresee(const struct tensor *t);
/* That of a slot, which others use perhaps. NULL in *found: this rank has no part in it. */
int tensor_of_slot(uint32_t slot, struct tensor **found);
/* One of the set's tensors is not idle. */
bool tensors_pending(const struct team *team);
/* One of the two fixed slots; NULL after fail(). */
struct tensor *tensor_fixed(uint32_t slot);
struct tensor *tensor_by_handle(hvd_handle handle);
void tensors_free(void);

/* arena.c */
void *arena_alloc(size_t bytes, bool zeroed);
void arena_free(void *memory);
/* Where memory of the caller lies in a segment of this process; false: it is private. */
bool arena_address(const void *memory, size_t bytes, uint64_t *address);
void *arena_resolve(void *ctx, uint64_t address, uint64_t bytes);
void arena_close(void);

/* timeline.c: what this process writes of its operations, while somebody wants it. The tensor's lock is held.
 */
enum timeline_point {
    TIMELINE_SUBMIT,
    TIMELINE_AGREED,
    TIMELINE_WAIT,
    TIMELINE_ENDED,
    TIMELINE_IN,
    TIMELINE_OUT,
    TIMELINE_NCCL,
    TIMELINE_STAGED
};
/* Who wants to hear of them; in one word, so that nobody costs one look. */
enum { WATCHED_BY_TIMELINE = 1, WATCHED_BY_JOIN = 2 };
extern _Atomic uint8_t watched __attribute__((visibility("hidden")));
void timeline_record(struct tensor *t, enum timeline_point point, uint64_t since) __attribute__((cold));
/* Starts what HOROVOD_TIMELINE asks for; stops whatever runs. */
int timeline_open(void);
void timeline_close(void);

/* A point of the operation has been reached, or (since not 0) a copy that began at `since` is done. */
static inline void timeline(struct tensor *t, enum timeline_point point, uint64_t since)
{
    if (__builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed), 0))
        timeline_record(t, point, since);
}

/* When a copy begins. */
static inline uint64_t timeline_clock(void)
{
    return __builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed), 0) ? clock_now() : 0;
}

/* sets.c: the set's ranks, of which this one need not be one; NULL after fail(). */
const struct team *set_find(hvd_set set);
/* The team of this rank and another one; NULL after fail(). */
const struct team *pair_find(uint32_t other);
/* The set becomes known to this process. */
int set_make(hvd_set set, const uint32_t *rank, uint32_t size);
int sets_start(void);
void sets_free(void);
static inline uint32_t own_index(const struct team *team)
{
    return team->id == HVD_WORLD ? (uint32_t)client.rank : team_index(team, (uint32_t)client.rank);
}

/* submit.c: the tensor of this name, its lock held. */
int begin(const struct team *team, const char *name, struct tensor **t);
/* The tensor of the team's barrier; NULL after fail(). */
struct tensor *barrier_tensor(const struct team *team);
/* It is published: the others, and the engine when it has a part in it, may look. */
void tell_others(struct tensor *t, bool will_wait);
void kick_engine(void);
/* A request on a tensor whose lock is held; the tensor takes r->group, whatever comes of it. */
int submit_locked(struct tensor *t, const struct request *r, bool will_wait);
/* The two halves of that: where everything lies; and one operation. */
int prepare_locked(struct tensor *t, const struct request *r, bool will_wait);
/* A place for pieces was not enough: makes one for all elements. */
void stage_locked(struct tensor *t);
int start_locked(struct tensor *t, bool will_wait);
/* Gives back what prepare_locked took. */
void release_locked(struct tensor *t);
hvd_handle tensor_handle(const struct tensor *t);
/* A barrier or a shutdown, from beginning to end. `t` NULL: there was no memory. */
int run_fixed(struct tensor *t, uint8_t kind);

/* request.c: what is the same in all calls. A request without buffers; checks of a whole one. */
int make_request(struct request *r, uint8_t kind, uint64_t count, int dtype, int op,
                 const hvd_options *options);
int check_request(const char *name, struct request *r);
/* The tensor of a request that is checked: its lock held. */
int begin_request(const char *name, struct request *r, struct tensor **t);
int check_buffers(const void *in, uint64_t in_bytes, const void *out, uint64_t out_bytes, bool may_be_same);
/* Puts the tensor's name before the sentence of a request that cannot be; returns `status`. */
int name_request(const char *name, int status);
/* Checks and submits it; `status` is of making it: when that failed, only what it has is freed. */
int request_async(const char *name, struct request *r, int status, hvd_handle *handle);
int request_and_wait(const char *name, struct request *r, int status);

/* calls_rows.c: how many of a reducescatter's rows a rank of the team gets. */
size_t rows_of_rank(size_t rows, const struct team *team, uint32_t index);

/* solo.c: the whole operation in a job of one rank. */
int run_solo(struct tensor *t);
/* Of it, for elements elsewhere: `count` of them reduced; the numbers of ragged rows checked and told. */
void solo_reduce(const struct tensor_op *op, const void *in, void *out, size_t count);
int solo_rows(struct tensor *t);

/* pending.c: asynchronous operations of which copies lie in shared memory, oldest first. Those that can end
 * do so while their elements are still in a cache, and their memory is the next one's. */
void pending_add(struct tensor *t); /* its lock is held */
void pending_progress(void);        /* no lock is held */
void pending_forget(void);
/* Who only looks at tensors, as pending_progress does, says so: before it takes a lock, and after. */
void pending_look(void);
void pending_looked(void);
/* Takes a tensor's lock, unless somebody submits or waits for its operation. Who only looks at it has it for
 * a moment too; that is waited for. The caller holds no tensor's lock, nor names_lock. */
bool lock_unless_waited(struct tensor *t);

/* wait.c: the tensor's lock is held. Does what can be done now; true: the operation has ended. */
bool progress_locked(struct tensor *t);
/* Sleeps until something may have changed, after doorbell_prepare. false: the engine has gone or does not
 * move. */
bool wait_for_bell(uint32_t prepared, struct watchdog *w);
/* To be called once in 250 ms by who waits otherwise: the engine has gone, or does not move. */
bool engine_stopped(struct watchdog *w);
void end_without_engine(struct tensor *t);
/* The engine has gone, or does not move: what this rank is in will not end, and nothing begins any more.
 * Another rank may end it all the same; it sees by the mark that the elements may have changed. */
void lose_engine(void);
/* To the end, where it is up to nobody else. */
void finish_locked(struct tensor *t);
/* wait.c: the tensor's lock is held. Ends with the operation's status and frees it. */
int wait_locked(struct tensor *t);
/* The result is at `from`: copies it to where the caller wants it. */
void take_result(struct tensor *t, const void *from, size_t bytes);
/* The tensor, locked, of a handle that is pending or persistent; HANDLE_HELD: somebody else holds it (wait
 * false); HANDLE_ASIDE: it is locked, but what the handle names has ended and is put aside. */
enum { HANDLE_HELD = 1, HANDLE_ASIDE = 2 };
int lock_handle(hvd_handle handle, bool wait, struct tensor **found);

/* join.c: nothing of this rank begins any more; and, with what the join has come to, it does again. */
int join_claim(void);
void join_release(int status);
/* The join's tensor, locked, when no handle of it is left. */
int join_tensor(struct tensor **end);
/* This rank has joined: NULL after fail(); else *end, whose handle it is, is locked. Then all until every
 * rank has; the lock remains. The same thread calls both. *last is set with success. */
struct join *join_begin(struct tensor **end);
int join_through(struct join *j, int *last);
/* An operation has ended while this rank has joined. */
void join_hears(struct tensor *t);
/* The tensor's lock is held. The handle's operation is put aside; and: waits for it. */
bool join_has_aside(const struct tensor *t, hvd_handle handle);
int join_wait_aside(struct tensor *t);
/* join_async.c: the thread ends, if it has ended or will at once. */
void join_reap(void);

#endif
