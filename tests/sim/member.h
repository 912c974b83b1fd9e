/* A rank: what it does with the plan, and what came of it. */
#ifndef HVD_TESTS_MEMBER_H
#define HVD_TESTS_MEMBER_H

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

#endif
