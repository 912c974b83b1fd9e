/* A team's part in operations on GPUs. */
#pragma once

#include "collectives/client/gpu/gpu_op.h"
#include "collectives/client/gpu/gpu_staging.h"
#include "collectives/shm/order.h"

#define TEAM_STATES(X)                                                                                       \
    X(TEAM_NEW, "new")                                                                                       \
    X(TEAM_EXCHANGING, "exchanging") /* the ranks exchange abilities */                                      \
    X(TEAM_CONNECTING, "connecting") /* NCCL connects */                                                     \
    X(TEAM_JUDGING, "judging")       /* all ranks tell how far NCCL has come */                              \
    X(TEAM_NCCL, "nccl")                                                                                     \
    X(TEAM_STAGES, "stages") /* everything goes through host memory, for the reason in `refusal` */

#define AS_CONSTANT(constant, name) constant,
#define AS_NAME(constant, name)     name,
enum gpu_team_state { TEAM_STATES(AS_CONSTANT) };

/* A rank's word to the others of its team, before they make a communicator. */
struct gpu_capabilities {
    struct nccl_id id; /* of the team's first rank */
    struct gpu_abilities abilities;
    uint8_t gpu[16]; /* the GPU and its host, as NCCL tells them apart */
    uint32_t host;
    uint32_t by_engine; /* 1: the rank's engine can do it; then the engine's: */
    struct gpu_abilities engine;
    uint32_t engine_host;
    uint32_t own_context; /* 1: the rank's memory is not of the GPU's primary context */
    char why[112];        /* the reason why the rank cannot use NCCL */
    char remedy[96];
};

/* The streams and events between a team's operations and the engine, which runs one of them at a time. */
struct gpu_bridge {
    bool joined;      /* the engine has a communicator of this rank */
    cu_stream stream; /* waits for operations' input, in their order */
    cu_event input_ready, result_ready;
};

/* An allocation that the engine was asked to register. */
struct gpu_registration {
    uintptr_t at;
    bool registered;
};

struct gpu_registrations {
    struct gpu_registration *item;
    size_t number;
};

/* How far this rank's communicator has come, and how far those of all ranks. */
struct gpu_verdict {
    uint64_t connects; /* the time at which NCCL began to connect */
    uint64_t round;    /* the time at which the ranks began to tell one another last */
    int32_t own, least;
};

/* The reason against NCCL. */
struct gpu_refusal {
    struct gpu_why why;
    uint32_t blamed; /* the index of the rank that cannot use NCCL */
    const char *remedy;
};

/* Made with the team's first operation on a GPU. */
struct gpu_team {
    struct gpu_team *next;
    const struct team *team;
    struct fsm fsm;
    char label[24];
    struct gpu_context *context; /* of all operations of this rank in the team; NULL: not known */
    cu_stream stream;            /* of communication; NULL while the context is not known */
    struct tensor *head;         /* of SHM_DEVICE_NAME: the order's, and the agreements' */
    bool asking;                 /* an agreement is under way */
    struct order order;
    struct gpu_op *first, *last;           /* taken, not ended */
    struct gpu_capabilities *capabilities; /* [ranks] */
    struct gpu_capabilities own;
    struct gpu_abilities all;
    struct communicator *communicator;
    bool by_engine; /* all engines can run NCCL, and do */
    struct gpu_bridge bridge;
    struct gpu_registrations registrations;
    struct gpu_verdict verdict;
    struct gpu_refusal refusal;
    struct gpu_staging_slot slot[GPU_STAGING_SLOTS];
    uint32_t staged; /* operations that went through staging slots */
};

/* `context` NULL: it is not known yet. NULL after fail(). */
struct gpu_team *gpu_team_find(const struct team *team, struct gpu_context *context);
/* The team's context is known now; it gets a stream. */
int gpu_team_set_context(struct gpu_team *team, struct gpu_context *context, struct err *e);
/* true: it is known how operations are done. Begins to find out. */
bool gpu_team_ready(struct gpu_team *team);
enum gpu_need gpu_team_need(const struct gpu_team *team);
void gpu_team_free(struct gpu_team *team);

/* ---- gpu_way.c ----------------------------------------------------------------------------------------- */

#define GPU_INSTALL  "install one version of NCCL, 2.18 or newer, on all hosts"
#define GPU_DEBUG    "with NCCL_DEBUG=WARN it says more"
#define GPU_CAPTURED "do an operation of the process set before a stream is captured"
#define GPU_WAIT     "--gpu-connect-timeout gives it more time"
#define GPU_SHARE                                                                                            \
    "give each rank a GPU of its own, or let them share with --mps auto and, for NCCL 2.30, "                \
    "NCCL_MULTI_RANK_GPU_ENABLE=1"
#define GPU_USE_PRIMARY "allocate it as cudaMalloc does, in the primary context"
/* The ranks' capabilities are known. false: NCCL cannot be used; `refusal` says why. */
bool gpu_way_check(struct gpu_team *team);
/* The team's rank of this index cannot use NCCL. The reason is "rank 3 " and this text. */
void gpu_way_blame(struct gpu_team *team, uint32_t index, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The way is decided: reports it once in the job, or ends the job. */
void gpu_way_report(const struct gpu_team *team);
