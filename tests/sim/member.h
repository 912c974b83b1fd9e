/* A rank: what it does with the plan, and what came of it. */
#pragma once

#include "tests/sim/plan.h"

#define MEMBER_NOT_RUN 1000 /* a status: it did not come so far */
#define MEMBER_TEXT    300

struct outcome {
    int status;
    uint64_t hash; /* of the result */
    char text[MEMBER_TEXT];
};

struct rank_report {
    struct outcome init, end, barrier[PLAN_ROUNDS], join[PLAN_ROUNDS], op[PLAN_ROUNDS][PLAN_TENSORS];
    int last[PLAN_ROUNDS];   /* of a join */
    bool leaving;            /* hvd_shutdown was called */
    char wrong[MEMBER_TEXT]; /* a state that is never right; "": none seen */
};

extern struct rank_report member_report[SIM_MEMBERS];
extern const struct plan *member_plan;

/* The library of each rank; -1: cannot be opened. */
int member_open_libraries(const char *path);
/* Makes ready for a run; the libraries of those who died are opened anew. */
void member_reset(void);
void member_close_libraries(void);
/* A fiber's work; `arg` is its struct sim_member. */
void member_run(void *arg);
/* The same in an elastic job. */
void elastic_member_run(void *arg);

/* The current rank's library. */
#define MEMBER_CALLS(X)                                                                                      \
    X(hvd_init)                                                                                              \
    X(hvd_reset)                                                                                             \
    X(hvd_membership)                                                                                        \
    X(hvd_membership_changed)                                                                                \
    X(hvd_rank)                                                                                              \
    X(hvd_size)                                                                                              \
    X(hvd_allreduce)                                                                                         \
    X(hvd_broadcast)                                                                                         \
    X(hvd_shutdown)                                                                                          \
    X(hvd_alloc)                                                                                             \
    X(hvd_free)                                                                                              \
    X(hvd_allreduce_async)                                                                                   \
    X(hvd_grouped_allreduce_async)                                                                           \
    X(hvd_allreduce_shared_async)                                                                            \
    X(hvd_allreduce_init)                                                                                    \
    X(hvd_start)                                                                                             \
    X(hvd_handle_free)                                                                                       \
    X(hvd_broadcast_async)                                                                                   \
    X(hvd_allgather_async)                                                                                   \
    X(hvd_alltoall_async)                                                                                    \
    X(hvd_reducescatter_async)                                                                               \
    X(hvd_allgather)                                                                                         \
    X(hvd_set_add)                                                                                           \
    X(hvd_set_remove)                                                                                        \
    X(hvd_set_open)                                                                                          \
    X(hvd_set_close)                                                                                         \
    X(hvd_set_rank)                                                                                          \
    X(hvd_set_size)                                                                                          \
    X(hvd_set_ranks)                                                                                         \
    X(hvd_set_count)                                                                                         \
    X(hvd_set_ids)                                                                                           \
    X(hvd_barrier)                                                                                           \
    X(hvd_join)                                                                                              \
    X(hvd_poll)                                                                                              \
    X(hvd_wait)                                                                                              \
    X(hvd_last_error)

#define MEMBER_FIELD(name) __typeof__(name) *name;
struct library {
    int file;
    void *handle;
    MEMBER_CALLS(MEMBER_FIELD)
};
struct library *member_library(void);
