/* Operations on devices that the engine runs for the ranks of its host (--gpu-placement engine).
 *
 *   gpu.c           the ranks' questions: memory; the part
 *   gpu_open.c      GPUs
 *   gpu_run.c       communicators, and operations from the rings to the streams
 *   gpu_call.c      a rank's description of an operation, copied and checked
 *   gpu_mappings.c  memory that NCCL knows, or that has gone
 *
 * The ranks agree, order and count as they do where each runs NCCL itself; what comes here is a rank's next
 * operation of a team: its stream here waits for the event `given`, then NCCL's calls, then the event `done`.
 * Both are the rank's for all its operations in the team: the driver has few that processes share.
 * Nothing waits for a device.
 * A failure of the job aborts all communicators; memory is let go when the rank says so, or with this
 * process. */
#pragma once

#include "collectives/engine/engine.h"
#include "collectives/gpu/communicator.h"
#include "collectives/shm/device_call.h"

#define ENGINE_GPUS_MAX         64u
#define ENGINE_GPU_MEMORIES_MAX 65536u              /* memories that a rank may name */
#define ENGINE_GPU_LAUNCH_NS    (2 * NSEC_PER_MSEC) /* so long the loop does not sleep while NCCL launches */

struct opened_gpu {
    struct driver_device what;
    cu_context context; /* NULL: nobody has asked for it */
    struct pack *pack;
    uint32_t closing; /* how many memories of it */
    bool lost;        /* something in it does not end: nothing of it is closed any more */
};

/* Memory of a rank, as it lies here. */
struct gpu_memory {
    uint32_t gpu;
    cu_pointer at; /* 0: the number is free */
    bool closing;  /* nobody's any more */
    uint64_t bytes;
    cu_allocation allocation; /* of a descriptor; 0: it was an IPC handle */
    cu_pointer second;        /* the mapping that communicators know; 0: no rank has asked for it */
    bool span;                /* several such, mapped once more, one behind the other */
    uint32_t named;           /* by which span last, as owner->spans counts them */
};

/* The memories that a rank of this host has named; numbers begin with 1. */
struct gpu_owner {
    struct gpu_memory *memory;
    uint32_t memories, spans;
    bool asks; /* for this GPU, and has no answer yet */
    uint8_t uuid[16];
};

/* A description, checked. */
struct gpu_given {
    struct gpu_operation *operation;
    size_t operations, capacity;
    size_t *counts; /* and `sent` behind them */
};

/* A rank's part in a team. */
struct gpu_member {
    uint32_t gpu;
    cu_stream stream;     /* NULL: the rank is not here (any more) */
    cu_event given, done; /* the rank's too; NULL: closed */
    struct communicator *communicator;
    enum communicator_state told; /* that stands in the region */
    bool leaves;
    bool pending, launching;
    uint32_t slot, operation;
    struct gpu_given call;
};

struct gpu_set {
    struct gpu_set *next;
    struct set *set;
    uint32_t head;              /* the slot of SHM_DEVICE_NAME */
    struct gpu_member member[]; /* [members of the team] */
};

struct gpu_opening;

struct engine_gpus {
    struct gpu_opening *opening; /* of a GPU, in a thread; NULL: none */
    const struct driver *driver;
    const struct nccl *nccl;
    struct opened_gpu gpu[ENGINE_GPUS_MAX];
    struct gpu_owner *owner; /* [members of the engine] */
    struct gpu_set *sets;
    uint64_t since, watched; /* that something is on its way to a stream; that NCCL was asked last */
    uint64_t looked;         /* whether GPUs are idle, of which memory is to be closed: */
    uint32_t closing;
    bool aborted;
};

/* The context is current until engine_gpu_leave. */
int engine_gpu_enter(const struct engine_gpus *d, uint32_t gpu, struct err *e);
void engine_gpu_leave(const struct engine_gpus *d);

/* gpu_open.c: the member is answered at once or later; and what has been opened by now. */
void engine_gpu_open(struct engine *engine, uint32_t member, const uint8_t uuid[16]);
void engine_gpu_open_progress(struct engine *engine);

/* gpu_mappings.c: the member's memory of that number; NULL: it has none. */
struct gpu_memory *engine_gpu_memory_of(const struct gpu_owner *o, uint32_t number);
/* The memory has gone: it is closed now or later. */
void engine_gpu_close(struct engine *engine, struct gpu_memory *m);
/* How many of the member's are still to be closed. */
uint32_t engine_gpu_closing_of(const struct gpu_owner *o);
/* Closes the memory that can be closed now, on this GPU or on all. true: some is left, call again in so
 * long. */
#define ENGINE_GPU_CLOSE_MS 10
void engine_gpu_close_idle(struct engine *engine, uint32_t gpu);
bool engine_gpu_close_progress(struct engine *engine, uint64_t now);
/* Nothing is put into the stream any more. Waits for its end, until then at most. */
void engine_gpu_settle(struct engine_gpus *d, uint32_t gpu, cu_stream stream, uint64_t until);

/* gpu_call.c: what lies at `address` is what the member asks for next in the team, where it is `rank`; to
 * gpu_member->call. -1: it cannot be. */
int engine_gpu_take_call(struct engine *engine, uint32_t member, struct gpu_member *gpu_member, int rank,
                         int size, uint64_t address, struct err *e);

/* Maps the memory a second time, for NCCL, if it is not mapped so and came as a descriptor. */
void engine_gpu_map_again(const struct engine_gpus *d, struct gpu_memory *m);
/* The memory's address as this communicator knows it; 0: it does not. */
cu_pointer engine_gpu_known_at(const struct gpu_member *gpu_member, const struct gpu_memory *m);
/* gpu_run.c */
int engine_gpu_join(struct engine *engine, uint32_t member, struct set *set, const struct worker_device *q,
                    struct err *e);
int engine_gpu_leave_set(struct engine *engine, uint32_t member, int32_t id, struct err *e);
/* Its part in that set; NULL: it has none. */
struct gpu_member *engine_gpu_member_of(const struct engine *engine, uint32_t member, int32_t id);
/* Nothing of this member's is used any more, or can be. */
bool engine_gpu_is_idle(const struct engine *engine, uint32_t member);
void engine_gpu_sets_free(struct engine *engine);
/* Takes what lies in the rings `launch`, and does what can be done. Milliseconds until it wants to run again;
 * -1: no time limit. */
int engine_gpus_progress(struct engine *engine, uint64_t now);
/* Ends all that NCCL does; nothing else begins. */
void engine_gpus_abort(struct engine *engine);

/* ---- for the loop and for questions.c ------------------------------------------------------------------ */

extern const struct engine_part gpus_part;

/* Something lies in the rings `launch`. */
bool engine_gpus_waiting(const struct engine *engine);
/* The member has a new connection, where nothing was asked yet. */
void engine_gpus_begin(struct engine *engine, uint32_t member);
/* A question WORKER_DEVICE_... of a member's. false: it is answered later. */
bool engine_gpus_answer(struct engine *engine, uint32_t member, struct worker_reader *reader,
                        struct worker_message *answer);
