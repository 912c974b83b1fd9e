/* One tensor name of this process and the operation that it has.
 *
 *   request.c    a call's arguments become a request, or are refused
 *   placement.c  the request becomes an operation: the places of its elements
 *   operation.c  the operation is published
 *   streamed.c   several hosts: this rank brings its elements into its host's buffer, piece by piece
 *   progress.c   a rank that waits or polls does the steps of the operation until it has ended
 *   sized.c      results that the caller allocates when their size is known
 *
 * A tensor's lock is held by the thread that submits, polls or waits for its operation, so an operation needs
 * no other protection. All functions here want that lock, but where they say otherwise. */
#pragma once

#include "collectives/client/core.h"
#include "collectives/client/link/rank_link.h"
#include "collectives/gpu/pointer.h"
#include "collectives/local/tensor.h"

struct flight_record;
struct group;
struct gpu_op;
struct part;

enum phase {
    PHASE_IDLE,   /* no operation */
    PHASE_ARRIVE, /* published; other members of this host are missing */
    PHASE_WORK,   /* all members agree; the ranks do the chunks */
    PHASE_PACK,   /* several hosts: this rank brings its elements into its host's buffer (streamed.c) */
    PHASE_REMOTE, /* several hosts: the engine will complete it */
    PHASE_LINK,   /* hosts of one rank: the ranks exchange their elements (rank_link.h) */
    PHASE_PATH,   /* published; the steps are those of the operation's path */
    PHASE_ENDED   /* `status` holds; waits to be waited for */
};

/* The caller's memory for a result, when the number of its rows is known. */
struct allocator {
    void *(*allocate)(void *context, size_t rows); /* NULL: there is a place for the result */
    void *context;
};

/* Of hvd_options.will_wait. A caller that WAITS_NEXT does nothing else before, as a blocking call. */
enum { WAITS_LATER = 1, WAITS_NEXT };

/* The arguments of a call. */
struct request {
    const struct team *team; /* the ranks that take part; this rank is one of them */
    struct tensor_op op;
    const void *in;
    void *out;
    uint64_t capacity;     /* bytes that `out` holds, and no more than can be needed */
    const uint64_t *table; /* [ranks of the team] elements, NULL: none; read until the request is submitted */
    size_t *rows;          /* NULL, or [ranks]: receives the number of rows that each rank gave */
    const void **result;   /* of a shared allreduce */
    void *stream;          /* of the options; for a GPU */
    uint8_t will_wait;     /* of the options: 0, WAITS_LATER or WAITS_NEXT */
    struct group *group;   /* NULL: none; the tensor takes it over; in and out are then NULL */
    struct pointer at;     /* of memory of a GPU, from the claim that found it there */
    struct allocator allocator;
};

/* A way in which operations are done. NULL members: the path does nothing there.
 *
 *   claim -> prepare -> start -> { step } -> ended -> (the thread that waits) result */
struct path_ops {
    /* Whether the path may be needed in this process. Cheap; called until it says true. */
    bool (*look)(void);
    /* Finds out whether the request is for this path and marks it. A status. */
    int (*claim)(struct request *r);
    /* The request becomes the tensor's operation. A status. */
    int (*prepare)(struct tensor *t, const struct request *r);
    /* Begins the operation. A status. */
    int (*start)(struct tensor *t, bool will_wait);
    /* Does what can be done now. The operation's status when it has ended; 1: it has not, or its phase is
     * another one than PHASE_PATH from now on. */
    int (*step)(struct tensor *t);
    /* The operation has ended, in whatever way. true: well. */
    bool (*ended)(struct tensor *t);
    /* A thread begins to wait for the operation, or has ended to wait. */
    void (*wait)(struct tensor *t, bool begins);
    /* Makes the result of an operation that has ended visible to its user. A status, after fail(). */
    int (*result)(struct tensor *t);
    void (*free_tensor)(struct tensor *t);
    /* hvd_free. false: the memory is not of this path. */
    bool (*free_memory)(void *memory);
    void (*remove_set)(const struct team *team);
    /* hvd_shutdown: while other ranks still take part; then, without them; then, when no tensor is left. */
    void (*drain)(void);
    void (*close)(void);
    void (*close_contexts)(void);
};

/* client.gpu->look() has said true. */
extern _Atomic bool path_gpu_seen __attribute__((visibility("hidden")));

/* A sized operation (sized.c). */
struct sized {
    struct allocator allocator; /* allocate NULL: the operation is none, and nothing else here holds */
    bool is_taken;              /* a thread waits for it, and takes the result */
    enum phase due; /* PHASE_IDLE, or it counts as ended, and this is its phase for the thread that waits */
    int status;     /* of the allocation */
    bool is_held;   /* the result was taken, but its caller has yet to come for it: */
    void *held;
    size_t rows;
};

/* A request once it is submitted, until its result is taken. */
struct operation {
    struct tensor_op what;
    const struct path_ops *path; /* NULL: through shared memory */
    struct tensor_where where;
    uint64_t bytes;               /* that this rank gives */
    bool small;                   /* they are in its entry */
    bool waits_later;             /* its caller has promised to wait, and may do something else before */
    uint8_t timed;                /* operations that its time stands for; 0: its time is not taken */
    uint64_t since;               /* when it began */
    struct flight_record *record; /* NULL: it is not recorded */
    uint32_t recorded;            /* the number of that record */
    const void *in;
    void *out;             /* the user's; NULL: this rank wants no result */
    void *bounce_in;       /* shared memory that `in` is copied to at the start, or NULL */
    void *bounce_out;      /* shared memory that the result is copied from in the end, or NULL */
    void *staging;         /* the arena's block that bounce buffers and tables lie in, or NULL */
    uint64_t *recv_counts; /* in that block: elements that came of each rank, as the engine says */
    uint64_t capacity;     /* bytes of the result at most */
    size_t *rows;
    const void **result;
    struct group *group;
    int status;
    struct sized sized;
};

/* Results of shared allreduces. */
struct shared_result {
    void *memory;
    void *before; /* a block that became too small; other ranks may still read it */
    size_t bytes;
};

/* One tensor name. Made on first use, lives until the name is forgotten. */
/* For a prefetch: the next tensor, and the places of this one's entries. Other threads read these while the
 * team may have gone. */
#define AHEAD_MEMBERS 8u
struct ahead {
    struct tensor *_Atomic follows; /* the tensor that was looked up after this one the last time */
    uint16_t members, me;           /* the number of those below; this rank's own place */
    uint16_t other[AHEAD_MEMBERS];  /* among this host's ranks */
};

struct tensor {
    struct tensor *_Atomic next; /* in its bucket */
    struct tensor *older;        /* of all tensors */
    _Atomic uint32_t stamp;      /* changes with the name, odd: the tensor has none */
    uint32_t hash, slot;
    pthread_mutex_t lock;
    uint32_t sequence;   /* operations so far, all ranks count alike */
    uint32_t generation; /* handles so far */
    enum phase phase;
    bool persistent; /* a handle of hvd_allreduce_init has this name */
    bool kept;       /* libhvd itself uses it, until its set is removed */
    struct watchdog polls;
    uint32_t index;    /* of this rank, in the view's team */
    uint32_t notified; /* the position in the engine's ring where its slot was put last */
    struct tensor_view view;
    struct ahead ahead;
    uint32_t traced; /* the timeline that knows its track; timeline.c */
    uint32_t lane;   /* that track */
    uint8_t open;    /* events begun there: none, NEGOTIATE_..., the operation */
    struct operation op;
    struct shared_result shared;
    struct linked_name *link; /* rank_link.h; NULL: no operation of this name was to go that way */
    struct gpu_op *gpu;       /* NULL: no operation of this name was on a GPU; gpu/ */
    struct part *deferred;    /* an operation that hvd_join has set aside; api/join.h */
    _Atomic bool is_over;     /* while this rank has joined: the operation has ended, and the thread that saw
                                 the end holds the lock for a moment only */
    struct tensor *next_free;
    struct tensor *next_left; /* pending.c */
    bool is_left;
    char text[SHM_TEXT_MAX]; /* the reason of a status that is not 0; here, because it is hardly ever read */
    char name[SHM_NAME_MAX + 1];
};

static inline hvd_handle tensor_handle(const struct tensor *t)
{
    return (hvd_handle)t->generation * SHM_SLOTS + t->slot;
}

/* ---- placement.c --------------------------------------------------------------------------------------- */

/* Finds or makes the places of all elements. The tensor takes over r->group. */
int operation_prepare(struct tensor *t, const struct request *r, bool will_wait);
/* Finds or makes places in shared memory for elements, tables and counts. */
int operation_place(struct tensor *t);
/* Copies the elements to their place in shared memory. `small` has space for an entry's elements. */
void operation_give(struct tensor *t, uint8_t *small);
/* The others want all elements at once, not piece by piece: makes a place for all of them. */
void operation_stage(struct tensor *t);
/* Frees what operation_prepare has made. */
void operation_release(struct tensor *t);

/* ---- operation.c --------------------------------------------------------------------------------------- */

/* A request from the checks to the published operation. The tensor takes r->group in every case. */
int operation_submit(struct tensor *t, const struct request *r, bool will_wait);
/* Begins an operation that is prepared. */
int operation_start(struct tensor *t, bool will_wait);
/* The operation is published: the other ranks, and the engine if it has a part in it, may look. */
void operation_announce(struct tensor *t, bool will_wait);
/* In PHASE_LINK: does what can be done now, or gives the operation to the engine. true: it has ended. */
bool operation_step_on_link(struct tensor *t);
/* Begins a barrier or a shutdown. `t` NULL: last_failure(). */
int operation_begin_fixed(struct tensor *t, uint8_t kind);
/* The same, from beginning to end; then the lock is free. */
int operation_run_fixed(struct tensor *t, uint8_t kind);

/* ---- progress.c ---------------------------------------------------------------------------------------- */

/* Does what can be done now, once. true: the operation has ended. */
bool operation_step(struct tensor *t);
/* Does what can be done now. true: the operation has ended. */
bool operation_progress(struct tensor *t);
/* To the end, where no other rank is needed. */
void operation_finish(struct tensor *t);
/* Waits for the end. Returns the operation's status, after fail(), and the tensor is idle. HVD_ERR_TIMEOUT:
 * that time of clock_now() has come first; without fail(), and the operation goes on. */
#define WAIT_FOREVER UINT64_MAX
int operation_wait_until(struct tensor *t, uint64_t until);
static inline int operation_wait(struct tensor *t)
{
    return operation_wait_until(t, WAIT_FOREVER);
}
/* The engine has stopped: the operation ends with HVD_ERR_ENGINE. */
void operation_lose_engine(struct tensor *t);

/* ---- neighbours.c: ranks that share a processor -------------------------------------------------------- */

/* Writes the calling thread's processor into the mailbox of this rank. */
void neighbours_note_processor(void);
/* The calling thread begins to wait, at clock_now(), where ranks share processors. It may move to another
 * processor: collectives/shm/patience.h says when. lost_slice: a yield has given a slice away lately. */
void neighbours_begin_wait(const struct tensor_view *v, uint64_t now, bool lost_slice);
/* A yield may help: a member that has not arrived, or chunks that nobody has taken, may need the processor of
 * the calling thread. If few chunks are left and all are taken, their end is near. */
bool neighbours_need_processor(const struct tensor_view *v);

/* ---- streamed.c ---------------------------------------------------------------------------------------- */

/* The operation is one of several hosts, and its elements go piece by piece, as far as this rank knows. */
static inline bool is_streamed_far(const struct tensor *t)
{
    return __builtin_expect(t->op.where.is_streamed, 0) && !team_is_here(t->view.team);
}
/* In PHASE_REMOTE and PHASE_PACK: does what can be done now, once. false: what the engine or another rank has
 * written cannot be, or its memory cannot be mapped. */
bool streamed_step(struct tensor *t);
/* Something can be done. */
bool streamed_has_step(const struct tensor *t);
/* The engine has settled the operation well: copies the rest of the result. */
void streamed_take(struct tensor *t);

/* ---- sized.c ------------------------------------------------------------------------------------------- */

/* The caller allocates the result. */
static inline bool is_sized(const struct operation *o)
{
    return __builtin_expect(o->sized.allocator.allocate != NULL, 0);
}

/* The operation could be taken. If no thread waits for it, it counts as ended from now on: true. */
bool sized_put_off(struct tensor *t);
static inline bool sized_is_for_later(struct tensor *t)
{
    return is_sized(&t->op) && sized_put_off(t);
}
/* A thread waits for the operation, and its phase is what it was. */
void sized_claim(struct tensor *t);
/* All members of this host agree: makes the result, or the place of one that comes by pieces. A status. */
int sized_take(struct tensor *t);
/* The engine has settled the operation. A status. */
int sized_take_settled(struct tensor *t);
/* The result for nobody yet: the name is needed for another operation. */
void sized_hold(struct tensor *t);
/* Gives the caller the result that was held for it. A status, with its sentence in `text`. */
int sized_hand_over(struct operation *o, const char *name, char *text, size_t size);
int sized_run_alone(struct tensor *t);
/* Frees the elements that other ranks have read meanwhile; and forgets all, when the arena is closed. */
void sized_reap(void);
void sized_forget(void);

/* ---- forget.c ------------------------------------------------------------------------------------------ */

/* Makes a tensor's memory nobody's. names_lock is held, too. */
void forget_tensor(struct tensor *t);
/* Forgets all idle tensors, and gives their slots back to the engine. The caller holds no names_lock. */
void forget_idle(void);
/* The same for tensors of a set that was removed, those that libhvd itself has used included. */
void forget_team(const struct team *removed);
/* And for these; NULL: none. */
void forget_tensors(struct tensor *const *tensor, uint32_t n);

/* The engine wants idle slots. */
static inline bool forget_is_wanted(void)
{
    return !client.solo && atomic_load_explicit(&client.region.header->wanting, memory_order_relaxed) !=
                               atomic_load_explicit(&client.tensors.answered, memory_order_relaxed);
}

/* ---- pending.c ----------------------------------------------------------------------------------------- */

/* Asynchronous operations with copies in shared memory, oldest first. An operation that can end does so
 * while its elements are still in a cache, and the next operation reuses its memory. */
void pending_add(struct tensor *t);
void pending_progress(void); /* the caller holds no lock */
/* No thread waits for the operation, which may need turns of this rank. */
void pending_leave(struct tensor *t);
/* A thread waits for the operation, which may have been left, and gives it its turns. */
void pending_take_back(struct tensor *t);
/* A wait for something else sleeps so long at most. */
unsigned pending_slice_ms(void);
/* Gives such operations a turn, while a thread waits for another one. true: one of them has moved. */
bool pending_move_left(void);
void pending_forget(void);

/* ---- solo.c -------------------------------------------------------------------------------------------- */

extern const struct path_ops solo_path;
/* Does a whole operation by `run`, which returns its status. */
int solo_run(struct tensor *t, int (*run)(struct tensor *t));
/* Reduces `count` elements that lie at `in`. */
void solo_reduce(const struct tensor_op *op, const void *in, void *out, size_t count);
/* Checks the number of ragged rows and tells it to the caller. */
int solo_rows(struct tensor *t);
