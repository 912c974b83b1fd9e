/* The worker of the elastic phases: trains until the file `go` appears, whoever dies and comes meanwhile.
 *
 * A step adds up numbers that the ranks share among themselves, so the sum of a step is the same for any
 * number of ranks. The state is the number of steps and a value that each sum changes: a step that was lost,
 * or was done twice, gives another value in the end. A commit takes 10 ms, and is half done for most of them.
 *
 * Lines of output: "steps WORKER PID SIZE MEMBERSHIP STEP" after the first step of a membership; at the end
 * "left WORKER", "right WORKER STEP SIZE" or "wrong ...". The file resets.WORKER appears before hvd_reset.
 * While there is a file `hold`, worker 2 does not call hvd_reset; with a file `pause` it takes no step. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hvd.h"
#include "tests/faults/worker.h"

#define ITEMS 24 /* of a step; the ranks share them */

struct state {
    int64_t step;
    uint64_t value;
};

static struct state now, kept;
static int worker;

static int64_t item_of(int64_t step, int64_t item)
{
    return (step * 31 + item * 7) % 1009;
}

static void take_sum(struct state *s, int64_t sum)
{
    s->value = s->value * 6364136223846793005u + (uint64_t)sum;
    s->step++;
}

static bool is_there(const char *name)
{
    char path[512];
    fault_path(path, sizeof path, name);
    return access(path, F_OK) == 0;
}

static void wait_for_end(const char *file)
{
    while (worker == 2 && is_there(file))
        usleep(2000);
}

static void commit(void)
{
    kept.value = now.value;
    usleep(10000);
    kept.step = now.step;
}

/* HVD_SUCCESS, an error, or 1: the ranks are to change. *over: all steps are done. */
static int take_step(bool *over)
{
    int32_t flags[2] = {hvd_membership_changed() > 0, is_there("go")};
    int64_t sum = 0;
    wait_for_end("pause");
    for (int i = hvd_rank(); i < ITEMS; i += hvd_size())
        sum += item_of(now.step, i);
    int status = hvd_allreduce("sum", &sum, &sum, 1, HVD_INT64, HVD_SUM, NULL);
    if (status == HVD_SUCCESS)
        status = hvd_allreduce("flags", flags, flags, 2, HVD_INT32, HVD_MAX, NULL);
    if (status != HVD_SUCCESS)
        return status;
    take_sum(&now, sum);
    commit();
    *over = flags[1] != 0;
    return flags[1] ? HVD_SUCCESS : flags[0];
}

static void say_steps(void)
{
    printf("steps %d %d %d %d %" PRId64 "\n", worker, (int)getpid(), hvd_size(), hvd_membership(), now.step);
    fflush(stdout);
}

/* All ranks go on from the state of rank 0. */
static int take_state(void)
{
    return hvd_broadcast("state", &now, sizeof now, HVD_UINT8, 0, NULL);
}

static int enter_next(void)
{
    now = kept;
    fault_mark("resets");
    wait_for_end("hold");
    int status = hvd_reset();
    return status == HVD_SUCCESS ? take_state() : status;
}

/* Until all is done, or the worker has no rank any more. */
static int train(void)
{
    int told = 0, status = take_state();
    for (bool over = false; !over;) {
        while (status == HVD_ERR_PEER || status == 1)
            status = enter_next();
        if (status != HVD_SUCCESS)
            return status;
        commit();
        status = take_step(&over);
        if (status >= 0 && told != hvd_membership()) {
            told = hvd_membership();
            say_steps();
        }
    }
    return HVD_SUCCESS;
}

/* As one process alone gets it. */
static bool is_right(void)
{
    struct state s = {0};
    while (s.step < now.step) {
        int64_t sum = 0;
        for (int i = 0; i < ITEMS; i++)
            sum += item_of(s.step, i);
        take_sum(&s, sum);
    }
    return s.value == now.value;
}

int fault_train(void)
{
    const char *number = getenv("HVD_WORKER");
    char host[64] = "";
    worker = number ? (int)strtol(number, NULL, 10) : -1;
    gethostname(host, sizeof host - 1);
    fault_mark_number(host, getpid());
    int status = hvd_init();
    if (status == HVD_SUCCESS)
        status = train();
    if (status == HVD_ERR_LEFT) {
        printf("left %d\n", worker);
        return 0;
    }
    if (status != HVD_SUCCESS) {
        fprintf(stderr, "worker %d: %s\n", worker, hvd_last_error());
        return 1;
    }
    printf("%s %d %" PRId64 " %d\n", is_right() ? "right" : "wrong", worker, now.step, hvd_size());
    fflush(stdout);
    if (hvd_shutdown() == HVD_SUCCESS)
        return 0;
    fprintf(stderr, "worker %d: hvd_shutdown: %s\n", worker, hvd_last_error());
    return 1;
}
