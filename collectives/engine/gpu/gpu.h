/* Operations on devices that the engine runs for the ranks of its host (--gpu-placement engine).
 *
 *   gpu.c         the ranks' questions: memory
 *   gpu_open.c    GPUs
 *   gpu_close.c   memory that has gone
 *   gpu_call.c    a rank's description of an operation, copied and checked
 *   gpu_run.c     communicators, and operations from the rings to the streams
 *
 * The ranks agree, order and count as they do where each runs NCCL itself; what comes here is a rank's next
 * operation of a team: its stream here waits for the event `given`, then NCCL's calls, then the event `done`.
 * Both are the rank's for all its operations in the team: the driver has few that processes share.
 * Nothing waits for a device.
 * A failure of the job aborts all communicators; memory is let go when the rank says so, or with this
 * process. */
#ifndef HVD_COLLECTIVES_ENGINE_GPU_GPU_H
#define HVD_COLLECTIVES_ENGINE_GPU_GPU_H

#include "collectives/gpu/communicator.h"
#include "collectives/engine/engine.h"
#include "collectives/shm/device_call.h"

#define DEVICE_GPUS_MAX   64u
#define DEVICE_THINGS_MAX 65536u              /* memories that a rank may name */
#define DEVICE_LAUNCH_NS  (2 * NSEC_PER_MSEC) /* so long the loop does not sleep while NCCL launches */

struct device_gpu {
    struct driver_device what;
    cu_context context; /* NULL: nobody has asked for it */
    struct pack *pack;
    uint32_t closing; /* how many memories of it */
    bool lost;        /* something in it does not end: nothing of it is closed any more */
};

/* Memory of a rank, as it lies here. */
struct device_memory {
    uint32_t gpu;
    cu_pointer at; /* 0: the number is free */
    bool closing;  /* nobody's any more */
    uint64_t bytes;
    cu_allocation allocation; /* of a descriptor; 0: it was an IPC handle */
    cu_pointer second;        /* where communicators know it; 0: nobody has asked for that */
    bool span;                /* several such, mapped once more, one behind the other */
    uint32_t named;           /* by which span last, as owner->spans counts them */
};

/* What a rank of this host has named; numbers begin with 1. */
struct device_owner {
    struct device_memory *memory;
    uint32_t memories, spans;
    bool asks; /* for this GPU, and has no answer yet */
    uint8_t uuid[16];
};

/* A description, checked. */
struct device_given {
    struct device_operation *operation;
    size_t operations, room;
    size_t *counts; /* and `sent` behind them */
};

/* A rank's part in a team. */
struct device_seat {
    uint32_t gpu;
    cu_stream stream;     /* NULL: the rank is not here (any more) */
    cu_event given, done; /* the rank's too; NULL: closed */
    struct communicator *communicator;
    enum communicator_state told; /* that stands in the region */
    bool leaves;
    bool pending, launching;
    uint32_t slot, operation;
    struct device_given call;
};

struct device_set {
    struct device_set *next;
    struct set *set;
    uint32_t head;             /* the slot of SHM_DEVICE_NAME */
    struct device_seat seat[]; /* [members of the team] */
};

struct device_opening;

struct devices {
    struct device_opening *opening; /* of a GPU, in a thread; NULL: none */
    const struct driver *driver;
    const struct nccl *nccl;
    struct device_gpu gpu[DEVICE_GPUS_MAX];
    struct device_owner *owner; /* [members of the engine] */
    struct device_set *sets;
    uint64_t since, watched; /* that something is on its way to a stream; that NCCL was asked last */
    uint64_t looked;         /* whether GPUs are idle, of which memory is to be closed: */
    uint32_t closing;
    bool aborted;
};

/* The context is current until device_leave. */
int device_enter(const struct devices *d, uint32_t gpu, struct err *e);
void device_leave(const struct devices *d);

/* gpu_open.c: the member is answered at once or later; and what has been opened by now. */
void device_open(struct engine *engine, uint32_t member, const uint8_t uuid[16]);
void device_open_progress(struct engine *engine);

/* gpu_close.c: the member's memory of that number; NULL: it has none. */
struct device_memory *device_memory_of(const struct device_owner *o, uint32_t number);
/* The memory has gone: it is closed now or later. */
void device_close(struct engine *engine, struct device_memory *m);
/* How many of the member's are still to be closed. */
uint32_t device_closing_of(const struct device_owner *o);
/* What can be closed on this GPU is; on all of them: true: not everything, look again in so long. */
#define DEVICE_CLOSE_MS 10
void device_close_idle(struct engine *engine, uint32_t gpu);
bool device_close_progress(struct engine *engine, uint64_t now);
/* Nothing is put into the stream any more. Waits for its end, until then at most. */
void device_settle(struct devices *d, uint32_t gpu, cu_stream stream, uint64_t until);

/* gpu_call.c: what lies at `address` is what the member asks for next in the team, where it is `rank`; to
 * seat->call. -1: it cannot be. */
int device_take_call(struct engine *engine, uint32_t member, struct device_seat *seat, int rank, int size,
                     uint64_t address, struct err *e);

/* device_known.c: the answer to WORKER_DEVICE_KNOW, an enum shm_device_known. -1: there is no such set or
 * memory. */
int device_make_known(struct engine *engine, uint32_t member, const struct worker_message *q, uint32_t *known,
                      struct err *e);
/* Where this communicator knows it; 0: it does not. */
cu_pointer device_known_at(const struct device_seat *seat, const struct device_memory *m);
/* The GPU's context is current, and nothing uses the memory. */
void device_make_unknown(const struct devices *d, struct device_memory *m);

/* gpu_run.c */
int device_join(struct engine *engine, uint32_t member, struct set *set, const struct worker_device *q,
                struct err *e);
int device_leave_set(struct engine *engine, uint32_t member, int32_t id, struct err *e);
/* Its part in that set; NULL: it has none. */
struct device_seat *device_seat_of(const struct engine *engine, uint32_t member, int32_t id);
/* Nothing of this member's is used any more, or can be. */
bool device_is_idle(const struct engine *engine, uint32_t member);
void device_sets_free(struct engine *engine);

#endif
