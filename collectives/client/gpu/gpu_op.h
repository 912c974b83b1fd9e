/* One operation on GPUs. */
#pragma once

#include "collectives/client/gpu/gpu_core.h"
#include "collectives/gpu/communicator.h"

enum gpu_phase {
    GPU_IDLE,
    GPU_ARRIVING,  /* published; not all ranks are known to agree */
    GPU_AGREED,    /* its turn has not come */
    GPU_TAKEN,     /* its turn has come: in the team's queue */
    GPU_LAUNCHING, /* NCCL has it, perhaps not all of it is in the stream */
    GPU_STAGED,    /* in a staging slot */
    GPU_ENQUEUED,  /* `result_ready` is in the team's stream */
    GPU_FAILED,    /* `status`, and the tensor's text */
    GPU_NOWHERE    /* it has no elements, and the other ranks' elements are on the host */
};

/* The operation as NCCL has it: one piece, or one for each tensor of a group. */
struct gpu_pieces {
    struct gpu_operation *piece; /* twice the capacity: with the caller's and with registered addresses */
    size_t number, capacity;
    uint64_t *table;       /* elements for each rank, as the call said; NULL: the call did not say */
    size_t *counts, *sent; /* of a ragged operation */
};

/* Memory of libhvd for bounce buffers. */
struct gpu_bounce_memory {
    const struct gpu_op *op; /* its user */
    cu_context context;
    cu_pointer at; /* 0: none */
    uint64_t bytes;
    bool by_nccl;
};

/* An operation that the engine runs; gpu_engine.c. */
struct gpu_call {
    struct shm_device_call *call; /* of the arena */
    uint64_t bytes;
    struct gpu_bounce *bounce;
    size_t bounces, bounces_capacity;
    struct gpu_bounce_memory memory; /* the bounce buffers lie in it */
};

/* A tensor's operation. Made when the tensor is first on a GPU, kept until hvd_shutdown. */
struct gpu_op {
    struct tensor *tensor;
    struct gpu_team *team;
    struct gpu_op *next;         /* in the team's queue */
    struct gpu_context *context; /* NULL: it has no elements, and no GPU before its turn */
    cu_event input_ready, result_ready;
    cu_stream stream; /* the user's */
    enum gpu_phase phase;
    int status;
    bool staged;
    bool elsewhere;         /* it has become an operation of the host */
    bool waited;            /* by a thread that is counted in `waiters` */
    bool registered;        /* all ranks' elements lie in memory that NCCL has registered */
    bool by_engine;         /* the engine runs it */
    uint32_t taken;         /* how often it was taken from the team's order */
    uint64_t begun, agreed; /* for a timeline */
    struct gpu_pieces pieces;
    struct gpu_call call;
};

/* The operation has come to an end: its phase is the last one. */
void gpu_op_end(struct gpu_op *op, enum gpu_phase phase);
/* The operation has failed with a status and a sentence. */
void gpu_op_fail(struct gpu_op *op, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- gpu_launch.c -------------------------------------------------------------------------------------- */

/* The request as NCCL has it. A status, after fail(). */
int gpu_describe(struct gpu_op *op, const struct request *r);
void gpu_describe_free(struct gpu_op *op);
/* After the agreement: the number of elements that each rank gives. false: this rank gives another number, or
 * has no space for that many. */
bool gpu_count_elements(struct gpu_op *op);
/* Whether NCCL does the operation; else the reason. */
bool gpu_nccl_can(const struct gpu_op *op, struct gpu_why *why);
/* Gives the operation to NCCL. -1: the job ends. */
int gpu_launch(struct gpu_op *op);
/* Whether all of it is in the stream. */
bool gpu_launched(struct gpu_op *op);
/* Records `result_ready` behind all that is in the team's stream by now. */
int gpu_record_result(struct gpu_op *op, struct err *e);

/* ---- gpu_no_elements.c --------------------------------------------------------------------------------- */

/* The mark of a request whose buffers have no elements. */
uint8_t gpu_claim_empty(const struct request *r, bool on_device);
/* The place of an operation without buffers on a GPU. false: the place is not known yet. */
bool gpu_locate_empty(const struct request *r, struct pointer *at);
/* The team needs a GPU now. -1: this rank has none. */
int gpu_team_choose_gpu(struct gpu_team *team, struct err *e);
/* The turn of an operation has come: an operation without a GPU gets the team's. false: the job ends. */
bool gpu_op_take_part(struct gpu_op *op);
