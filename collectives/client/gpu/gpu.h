/* Operations on memory of devices (GPUs), as the files of libhvd that do them share it.
 *
 *   gpu.c           what a buffer is; one operation from its call to its place in the user's stream
 *   gpu_context.c   contexts
 *   gpu_progress.c  the runner: agreement, the order of a team, what is begun when; failures
 *   gpu_team.c      how a team comes to a communicator of NCCL, or to none
 *   gpu_way.c       what is in the way of NCCL, and who hears of it
 *   gpu_launch.c    an operation as NCCL has it
 *   gpu_staging.c   an operation by way of host memory
 *   gpu_thread.c    who does all this while nobody is in a call of this library
 *   gpu_solo.c      in a job of one rank
 *   gpu_engine.c    an operation that the engine runs: --gpu-placement engine
 *   gpu_export.c    memory that the engine has as well
 *   gpu_memory.c    hvd_alloc_device
 *   gpu_no_elements.c  a rank without elements, which may not have a GPU yet
 *
 *   call: event `given` in the user's stream, entry published  ->  all agree  ->  its turn in the team's
 *   order  ->  the team's stream waits for `given`, NCCL's calls, event `done`  ->  hvd_wait: the user's
 *   stream waits for `done`
 *
 * With the engine, which has these two events of a team only (the driver has few that processes share):
 *
 *   its turn  ->  in a stream of the team: `given`, then the team's  ->  the engine's stream, NCCL  ->
 *   in the team's stream: the team's `done`, then the operation's
 *
 * Nothing here waits for a device. All of it is done under one lock, by whoever waits, polls or begins
 * something, else by the thread; so an operation's view and what follows belong to that lock from its start
 * until it is DEVICE_ENQUEUED or DEVICE_FAILED, which its tensor's owner then sees. */
#ifndef HVD_COLLECTIVES_CLIENT_GPU_GPU_H
#define HVD_COLLECTIVES_CLIENT_GPU_GPU_H

#include "collectives/client/internal.h"
#include "collectives/gpu/communicator.h"
#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"
#include "collectives/gpu/pack.h"
#include "collectives/gpu/pointer.h"
#include "collectives/shm/device_call.h"
#include "collectives/shm/order.h"
#include "common/base/err.h"
#include "common/base/fsm.h"

#define DEVICE_LANES 4u /* operations of a team that are on their way through host memory at once */

/* An allocation as the driver numbers them (`id`) and as the engine does; 0: it cannot have it. */
struct device_export {
    uintptr_t base;
    uint64_t bytes, id;
    uint32_t number;
};

/* Several of them, one behind the other, as one more memory of the engine's. */
struct device_span {
    uintptr_t base;
    uint64_t bytes;
    uint32_t number; /* 0: the engine cannot have it */
};

/* Of hvd_alloc_device. */
struct device_memory {
    uintptr_t at; /* the caller's address */
    size_t bytes;
    struct device_context *context;
    cu_pointer second; /* where it lies for NCCL; 0: nowhere else */
    size_t mapped;     /* bytes there */
    bool by_nccl;      /* ncclMemAlloc made it */
    bool freed;        /* by the caller, but something uses it still */
};

/* A CUDA context in which this rank has memory. */
struct device_context {
    struct device_context *next;
    cu_context context;
    bool retained; /* for it: the GPU's primary one */
    bool primary;
    int gpu;
    struct driver_device what;
    struct pack *pack;             /* what NCCL does not scale */
    bool engine_asked, engine_has; /* the engine uses this GPU too: */
    struct worker_device engine;
    struct device_export *exported; /* by ascending base */
    size_t exports, exports_room;
    struct device_span *span; /* by ascending base, then size */
    size_t spans, spans_room;
};

/* Memory of ours for stand-ins. */
struct device_room {
    struct device_op *op; /* whose */
    cu_context context;
    cu_pointer at; /* 0: none */
    uint64_t bytes;
    bool by_nccl;
};

/* Memory that the engine is to use instead of `own`. */
struct device_stand_in {
    void *own;
    uint64_t bytes, offset; /* in the operation's room */
    bool is_in, is_out;
    uint32_t *memory_at; /* in the description */
    uint64_t *offset_at;
};

enum device_phase {
    DEVICE_IDLE,
    DEVICE_ARRIVING,  /* published; not all are known to agree */
    DEVICE_AGREED,    /* its turn has not come */
    DEVICE_TAKEN,     /* it has: in the team's queue */
    DEVICE_LAUNCHING, /* NCCL has it, perhaps not all of it in the stream */
    DEVICE_STAGED,    /* a lane has it */
    DEVICE_ENQUEUED,  /* `done` is in the team's stream */
    DEVICE_FAILED,    /* `status`, and the tensor's text */
    DEVICE_NOWHERE    /* it has no elements, and the others' are on the host */
};

/* A tensor's operation. Made when the tensor is first one on a device, kept until hvd_shutdown. */
struct device_op {
    struct tensor *tensor;
    struct device_team *team;
    struct device_op *next;         /* in the team's queue */
    struct device_context *context; /* NULL: it has no elements, and no GPU before its turn */
    cu_event given, done;
    cu_stream stream; /* the user's */
    enum device_phase phase;
    int status;
    bool staged;
    bool elsewhere;         /* it has become one of the host's */
    bool waited;            /* by a thread that is counted in `waiters` */
    uint32_t taken;         /* how often, from the team's order */
    uint64_t begun, agreed; /* for a timeline */
    size_t operations, room;
    struct device_operation *operation; /* as NCCL has them; one, or those of a group; twice the room */
    bool known;                         /* all ranks' elements lie where NCCL knows it */
    uint64_t *table;                    /* elements for each rank, as the call said; NULL: it did not */
    size_t *counts, *sent;              /* of a ragged one */
    bool by_engine;                     /* it was given to the engine: */
    struct shm_device_call *call;
    uint64_t call_bytes;
    struct device_stand_in *stand_in;
    size_t stand_ins, stand_ins_room;
    struct device_room stand_in_room;
};

/* On its way through host memory. */
struct device_lane {
    struct fsm fsm;
    struct device_team *team;
    struct tensor *host;  /* the operation there */
    struct device_op *op; /* NULL: it is free */
    char *memory;         /* of the arena; in it: */
    char *block;          /* known to the driver */
    size_t block_bytes;
    char *older[64]; /* each at most half as large as the next: the stream may still copy from them */
    unsigned olders;
    char *out; /* in it */
    _Atomic bool copied;
    struct device_copy *copy; /* of the team's stream */
};

/* What a rank tells the others of its team before they make a communicator. */
struct device_card {
    struct nccl_id id; /* of the team's first rank */
    struct device_abilities abilities;
    uint8_t gpu[16]; /* which one, and of which host, as NCCL tells them apart: */
    uint32_t host;
    uint32_t by_engine; /* 1: its engine can do it; then that one's: */
    struct device_abilities engine;
    uint32_t engine_host;
    uint32_t own_context; /* 1: its memory is not of the GPU's primary one */
    char why[112];        /* it cannot use NCCL */
    char remedy[96];
};

/* An allocation that the engine was asked about. */
struct device_known {
    uintptr_t at;
    bool known;
};

/* A team's part in all this, made with its first operation on a device. */
struct device_team {
    struct device_team *next;
    const struct team *team;
    struct fsm fsm;
    char label[24];
    struct device_context *context; /* all operations of this rank in the team are there; NULL: not known */
    cu_stream stream;               /* of communication; NULL while that is not */
    struct tensor *head;            /* of SHM_DEVICE_NAME: the order's, and the agreements' */
    bool asking;                    /* an agreement is on its way */
    struct order order;
    struct device_op *first, *last; /* taken, not ended */
    struct device_card *cards;      /* [ranks] */
    struct device_card mine;
    struct device_abilities all;
    struct communicator *communicator;
    bool by_engine;             /* all engines can, and do */
    bool joined;                /* this host's has a communicator of this rank; then: */
    cu_stream front;            /* what operations wait for, in their order */
    cu_event given, done;       /* the engine's too, of the one operation that it has */
    struct device_known *known; /* [knowns]; by that */
    size_t knowns;
    uint64_t connects; /* since when */
    uint64_t round;    /* when telling how far that is began, the last time */
    int32_t verdict, verdict_of_all;
    struct device_why why; /* NCCL is not used */
    uint32_t blamed;       /* the index of the rank that is in the way */
    const char *remedy;
    struct device_lane lane[DEVICE_LANES];
    uint32_t staged; /* operations that went through lanes */
};

/* What there is to wait for. */
enum device_need { DEVICE_NOTHING, DEVICE_ALARM, DEVICE_BELL, DEVICE_POLL };

struct device {
    pthread_mutex_t lock;
    unsigned capture_mode; /* of who has it, before */
    const struct driver *driver;
    const struct nccl *nccl; /* NULL: there is none, see no_nccl */
    struct err no_nccl;
    struct device_context *contexts;
    struct device_team *teams;
    struct device_memory *memory; /* by ascending address */
    size_t memories, memories_room;
    size_t freed;             /* of them */
    struct device_room *left; /* by operations that needed more, or have moved to another GPU */
    size_t lefts;
    uint32_t pending; /* operations that are not ENQUEUED */
    uint32_t waiters; /* threads that wait for one */
    bool failed;      /* nothing begins or goes on any more */
    bool stranded;    /* the engine's events were seen to */
    bool closing;     /* the engine has not closed yet all that it was to */
    bool moved;       /* an operation has ended since the bell was rung for that */
    bool warned;      /* of host memory */
};
extern struct device device __attribute__((visibility("hidden")));

/* ---- for the rest of libhvd ---- */

/* The driver was in this process when somebody looked last. */
extern _Atomic bool device_seen __attribute__((visibility("hidden")));
/* Looks. */
bool device_look(void) __attribute__((cold));
static inline bool device_is_likely(const struct request *r)
{
    if (__builtin_expect(atomic_load_explicit(&device_seen, memory_order_relaxed), 0))
        return true;
    return __builtin_expect(r->stream != NULL || r->op.dtype >= HVD_FLOAT8_E4M3, 0) && device_look();
}
/* Finds out what the request's buffers are and marks it. */
int device_claim(struct request *r) __attribute__((cold));
/* The rest needs the tensor's lock. What is left to prepare when its tables are placed. */
int device_prepare(struct tensor *t, const struct request *r) __attribute__((cold));
int device_start(struct tensor *t, bool will_wait) __attribute__((cold));
/* What can be done now. Its status when it has ended; 1: it has not, or is one of the host's from now on. */
int device_step(struct tensor *t) __attribute__((cold));
/* It has ended, in whatever way. true: well. */
bool device_ended(struct tensor *t) __attribute__((cold));
/* A thread begins to wait for it; or ends: then the user's stream waits for the result, if it is one. */
void device_waits(struct tensor *t, bool begins);
/* The user's stream waits for the result of the last one. A status, after fail(). */
int device_result(struct tensor *t);
void device_free(struct device_op *op);
/* hvd_shutdown, while the others are still there: what is in the streams of communication ends, however long
 * it takes, or the job fails. */
void device_drain(void);
/* hvd_shutdown: everything, but for what tensors have; and when these are gone, that in which it was. */
void device_close(void);
void device_close_contexts(void);
int device_solo(struct tensor *t);

/* ---- among these files; device.lock is held ---- */

/* gpu_context.c: device.lock; who has it spoils no capture of the program's, whatever it calls. */
void device_lock(void);
bool device_trylock(void);
void device_unlock(void);
/* It is this thread's until device_leave. */
int device_enter(const struct device_context *context, struct err *e);
void device_leave(void);
/* Entered: whether the user's stream is being captured into a graph. A status, after fail(). */
int device_capturing(const struct device_op *op, bool *is);
int device_is_captured(const struct device_op *op); /* that it cannot be */
/* Entered: event `given`, in the user's stream, of whatever context that is. */
int device_record_given(struct device_op *op, struct err *e);
struct device_context *device_context_find(const struct pointer *at, struct err *e);

/* gpu.c */
/* Both, or none. */
int device_events(struct device_op *op, struct err *e);

/* gpu_no_elements.c: what such an operation says of where it is. */
uint8_t device_claim_empty(const struct request *r, bool on_device);
/* Where an operation without buffers on a device is to be. false: that cannot be told yet. */
bool device_place_of(const struct request *r, struct pointer *at);
/* The team has to have a GPU now. -1: it has none. */
int device_team_settles_down(struct device_team *team, struct err *e);
/* Its turn has come: with the team's GPU, if it has none itself. false: the job ends. */
bool device_take_part(struct device_op *op);

/* gpu.c: the set is gone, with what the team had. */
void device_set_removed(const struct team *team);

/* gpu_memory.c: hvd_free's, without the lock. false: it is not of hvd_alloc_device. */
bool device_memory_free(void *memory);
/* What was freed while it was in use goes, as far as it can. Never waits. */
void device_memory_sweep(void);
/* After all teams. */
void device_memory_close(void);
/* What a rank says of its elements: they lie at these places of memory that the team's communicator knows, or
 * 0. Where all say the same NCCL is given device_memory_known's addresses, valid until the operation begins
 * anew. */
uint64_t device_memory_mark(const struct device_op *op);
const struct device_operation *device_memory_known(struct device_op *op);

/* gpu_progress.c: does what can be done, for all teams. */
enum device_need device_progress(void);
/* All are there: compares, and puts it into the order if that is this rank's to do. */
void device_look_at(struct device_op *op);
void device_end(struct device_op *op, enum device_phase phase);
void device_fail(struct device_op *op, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* This rank cannot do its part: the job ends with this sentence, and nothing begins here any more. */
void device_break(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The job has failed: then everything was aborted. */
bool device_has_failed(void);
/* Whether NCCL has noticed a failure by itself, or a GPU has failed. */
void device_watch(void);
/* What NCCL does ends now, and nothing else begins. */
void device_abort(void);

/* gpu_way.c: what helps where NCCL cannot be used */
#define DEVICE_INSTALL     "install one version of NCCL, 2.18 or newer, on all hosts"
#define DEVICE_DEBUG       "with NCCL_DEBUG=WARN it says more"
#define DEVICE_WAIT        "--gpu-connect-timeout gives it more time"
#define DEVICE_SHARE       "give each rank a GPU of its own, or all NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL 2.30"
#define DEVICE_USE_PRIMARY "allocate it as cudaMalloc does, in the primary context"
/* The ranks' cards are known. false: NCCL cannot be used, see `why`. */
bool device_way_is_free(struct device_team *team);
/* A rank of the team, by index, cannot use NCCL: "rank 3" and then this. `remedy` stays. */
void device_way_blame(struct device_team *team, uint32_t index, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* It is decided: said once in the job, or the end of it. */
void device_way_say(const struct device_team *team);

/* gpu_team.c */
enum device_team_state {
    TEAM_NEW,
    TEAM_EXCHANGING, /* what the ranks are able to */
    TEAM_CONNECTING, /* NCCL does */
    TEAM_JUDGING,    /* how far all ranks are with that */
    TEAM_NCCL,
    TEAM_STAGES /* everything goes through host memory: `why` */
};
/* `context` NULL: it is not known yet. */
struct device_team *device_team_find(const struct team *team, struct device_context *context);
int device_team_equip(struct device_team *team, struct device_context *context, struct err *e);
/* true: it is known how operations are done. Wanted: begins to find out. */
bool device_team_ready(struct device_team *team);
enum device_need device_team_need(const struct device_team *team);
/* Until its stream is empty, or what hangs was aborted. goes_on: the other teams' operations do, meanwhile.
 */
void device_team_settle(struct device_team *team, bool goes_on);
void device_team_free(struct device_team *team);

/* gpu_launch.c */
int device_describe(struct device_op *op, const struct request *r);
/* After the agreement: how much each rank gives. false: that is not what this rank gives, or has room for. */
bool device_count(struct device_op *op);
/* Does NCCL do it? */
bool device_nccl_can(const struct device_op *op, struct device_why *why);
/* -1: the job ends. */
int device_launch(struct device_op *op);
bool device_launched(struct device_op *op);
/* Its result is what is in the team's stream by now. */
int device_record(struct device_op *op, struct err *e);
void device_undescribe(struct device_op *op);

/* gpu_engine.c */
/* It uses the context's GPU too; asked once. */
bool device_engine_has(struct device_context *context);
struct device_abilities device_engine_abilities(const struct device_context *context);
/* Before the call's event is recorded: the engine can reach all that the operation needs. The context is
 * entered. */
int device_engine_give(struct device_op *op, struct err *e);
/* Behind the result, in the stream. */
int device_engine_return(struct device_op *op, cu_stream stream, struct err *e);
void device_engine_forget(struct device_op *op);
/* Once the engine has let everything go. */
void device_engine_free(void);
/* As device_launch and device_launched. */
int device_engine_launch(struct device_op *op, struct err *e);
bool device_engine_launched(const struct device_op *op);
/* Then: `done` of the operation is what the engine has put into its stream. */
int device_engine_record(struct device_op *op, struct err *e);
/* -1: nothing of it stays. */
int device_engine_join(struct device_team *team, struct err *e);
enum communicator_state device_engine_state(const struct device_team *team);
void device_engine_leave(const struct device_team *team);
/* The team's stream goes on, whatever the engine does; and, when it has left, what the two had in common
 * goes.
 */
void device_engine_release(const struct device_team *team);
void device_engine_part(struct device_team *team);
void device_engine_close(void);
/* device_known.c: the team's communicator there knows all of it; and it will be freed. */
bool device_engine_knows(struct device_team *team, const struct device_memory *m);
void device_engine_knows_no_more(struct device_team *team, const struct device_memory *m);

/* gpu_export.c: where the engine has this memory; false: it has not. */
bool device_export(struct device_context *context, const void *at, uint64_t bytes, uint32_t *memory,
                   uint64_t *offset);
/* The allocation that begins there goes: the engine lets go of it now. What it did there has ended. */
void device_export_forget(const void *at);
/* The engine lets go of what it has by this number (0: of nothing more). true: nothing of this rank's that
 * it has let go is open there any more. */
bool device_export_close(uint32_t number);
/* The engine has let all go. */
void device_export_forget_all(void);

/* gpu_span.c: the engine's number of allocations that lie one behind the other, each of which it has; 0:
 * it cannot have them so. And one of them goes. */
uint32_t device_span(struct device_context *context, const struct device_export *piece, size_t n);
void device_spans_forget(struct device_context *context, const struct device_export *piece);

/* gpu_staging.c. false: no lane is free. */
bool device_stage(struct device_op *op);
void device_stages(struct device_team *team);
enum device_need device_stage_need(const struct device_team *team);
/* settled: its stream is empty; else it may still use the lanes' memory, and that is left to it. */
void device_lanes_free(struct device_team *team, bool settled);
/* An operation of the library's own on host memory, by name "hvd.device...": begins, and whether it has
 * ended. */
int device_host_begin(struct tensor *t, const struct request *r);
bool device_host_ended(struct tensor *t, int *status);

/* gpu_thread.c */
int device_thread_start(void);
void device_thread_stop(void);
/* What there is to wait for now; it is woken if that is more than it has seen. */
void device_thread_kick(enum device_need need);
/* The alarm is wanted, or not. */
void device_thread_wants(void);

#endif
