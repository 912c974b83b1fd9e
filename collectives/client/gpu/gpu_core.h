/* Operations on memory of GPUs: the state that all files of this folder share, its lock, and CUDA contexts.
 *
 *   gpu_core.c         the lock, the ends of operations, the end of everything
 *   gpu_context.c      contexts, events, captures
 *   gpu_export.c       memory that the engine opens as well: --gpu-placement engine
 *   gpu_engine.c       an operation that the engine runs
 *   gpu_memory.c       memory of hvd_alloc_device that NCCL has registered
 *   gpu_launch.c       an operation as NCCL has it
 *   gpu_staging.c      an operation by way of host memory
 *   gpu_no_elements.c  a rank without elements, which may not have a GPU yet
 *   gpu_way.c          the reasons against NCCL, and their report
 *   gpu_team.c         a team gets a communicator of NCCL, or none
 *   gpu_progress.c     the runner: agreement, the order of a team, the begin of operations, failures
 *   gpu_thread.c       the thread that calls the runner while no thread is in a call of libhvd
 *   gpu_alloc.c        hvd_alloc_device
 *   gpu_solo.c         operations in a job of one rank
 *   gpu_claim.c        whether a call's buffers are memory of a GPU
 *   gpu_path.c         one operation from its call to its place in the user's stream
 *
 *   call           event `input_ready` in the user's stream; the entry is published
 *   all agree      the operation gets its place in the team's order
 *   its turn       the team's stream waits for `input_ready`, NCCL's calls, event `result_ready`
 *   hvd_wait       the user's stream waits for `result_ready`
 *
 * With --gpu-placement engine the engine has two events of the team only, because the driver has few events
 * that processes can share:
 *
 *   its turn       a stream of the team waits for `input_ready` and records the team's event
 *   the engine     its stream waits for the team's event, NCCL's calls, the team's second event
 *   after that     the team's stream waits for the second event and records `result_ready`
 *
 * Nothing here waits for a GPU. Everything is done under gpu_lock, by a thread that waits, polls or begins an
 * operation, else by libhvd's thread. An operation belongs to that lock from its start until its phase is
 * GPU_ENQUEUED or GPU_FAILED; then it belongs to the tensor's lock again. */
#pragma once

#include "collectives/client/operation.h"
#include "collectives/client/sets.h"
#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"
#include "collectives/gpu/pointer.h"
#include "collectives/shm/device_call.h"
#include "common/base/err.h"

struct gpu_op;
struct gpu_team;

/* Memory of a context that the engine has opened; gpu_export.c. */
struct gpu_exports {
    bool asked, has; /* asked once: the engine uses this GPU too; then: */
    struct worker_device engine;
    struct gpu_export *item; /* by ascending base */
    size_t number, capacity;
    struct gpu_span *span; /* by ascending base, then size */
    size_t spans, spans_capacity;
};

/* A CUDA context in which this rank has memory. */
struct gpu_context {
    struct gpu_context *next;
    cu_context context;
    bool retained; /* it is the GPU's primary context, and libhvd holds it */
    bool primary;
    int gpu;
    struct driver_device what;
    struct pack *pack; /* kernels for operations that NCCL does not scale */
    struct gpu_exports exports;
};

/* The way in which a thread waits for progress; a larger value needs more attention. */
enum gpu_need { GPU_NOTHING, GPU_ALARM, GPU_BELL, GPU_POLL };

struct gpu_state {
    pthread_mutex_t lock;
    unsigned capture_mode; /* of the thread that holds the lock, before it took the lock */
    const struct driver *driver;
    const struct nccl *nccl; /* NULL: there is none, see no_nccl */
    struct err no_nccl;
    struct gpu_context *contexts;
    struct gpu_team *teams;
    uint32_t pending; /* operations that are not enqueued */
    uint32_t waiters; /* threads that wait for an operation */
    bool failed;      /* no operation begins or goes on any more */
    bool stranded;    /* the engine has ended, and its events were recorded in its place */
    bool closing;     /* the engine has yet to close memory that this rank has freed */
    bool moved;       /* an operation has ended since the bell was rung for that */
    bool warned;      /* that tensors go through host memory */
};
extern struct gpu_state gpu_state __attribute__((visibility("hidden")));

/* ---- gpu_core.c ---------------------------------------------------------------------------------------- */

/* Whether the driver is in this process. */
bool gpu_look(void) __attribute__((cold));
/* A thread with the lock is in CUDA's relaxed capture mode: it breaks no capture of the program. */
void gpu_lock(void);
bool gpu_trylock(void);
void gpu_unlock(void);
/* The context becomes this thread's until gpu_leave. */
int gpu_enter(const struct gpu_context *context, struct err *e);
void gpu_leave(void);
/* Opens the driver at the first call; NULL: *e. */
const struct driver *gpu_open_driver(struct err *e);
/* Opens NCCL at the first call; NULL: gpu_state.no_nccl says why. */
const struct nccl *gpu_open_nccl(void);
/* Tells other ranks whether this rank wants the alarm. */
void gpu_want_alarm(void);
/* This rank cannot do its part: the job ends with this sentence, and no operation begins here any more. */
void gpu_fail_job(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for an error that may come from NCCL: `what` stands before the error. NCCL often hears of a death
 * before the session does. So this call waits a moment for the session, which knows how the rank ended. */
void gpu_fail_by_nccl(const char *what, const struct err *e);
/* Aborts all communicators. No operation begins any more. */
void gpu_abort(void);
/* Whether the region is poisoned or the engine has ended. */
bool gpu_job_has_failed(void);
/* Whether no operation goes on any more. If the job has failed, everything was aborted. */
bool gpu_has_failed(void);

/* ---- gpu_context.c ------------------------------------------------------------------------------------- */

/* The context of a place in memory, made on first use; NULL: *e. */
struct gpu_context *gpu_context_find(const struct pointer *at, struct err *e);
/* Makes both events of the operation, or none. */
int gpu_make_events(struct gpu_op *op, struct err *e);
void gpu_drop_events(struct gpu_op *op);
/* The operation's context is entered: whether the user's stream is being captured into a graph. A status,
 * after fail(). */
int gpu_is_capturing(const struct gpu_op *op, bool *is);
/* Fails: the operation's stream is being captured. */
int gpu_refuse_capture(const struct gpu_op *op);
/* The operation's context is entered: records `input_ready` in the user's stream, of whatever context. */
int gpu_record_input(struct gpu_op *op, struct err *e);
