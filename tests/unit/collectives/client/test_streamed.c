/* Allreduces of private memory between hosts that go piece by piece: real processes and engines (job.c). */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/job.h"

#define COUNT ((2u << 20) + 4099) /* float32: some more than 8 MiB, which is the least that goes by pieces */

static const struct job_shape shapes[] = {{2, 1, false}, {2, 2, false}, {2, 3, true}, {3, 1, false}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static _Atomic int *stage; /* raised by ranks, for job_await */

static void make_stage(void)
{
    stage = job_shared(sizeof *stage);
}

static int size_of(const struct job *job)
{
    return job->hosts * job->per_host;
}

/* Sums of these are rounded: another order of ranks has other bits. */
job_unwatched static void fill(float *x, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        x[i] = 1.0f / (float)(1 + (i * 7 + (size_t)rank * 29) % 1009);
}

job_unwatched static float *make(int rank, bool shared)
{
    float *x = shared ? hvd_alloc(COUNT * sizeof *x) : malloc(COUNT * sizeof *x);
    job_check(x != NULL);
    fill(x, COUNT, rank);
    return x;
}

static int reduce_floats(const char *name, const float *in, float *out, size_t count, hvd_op op,
                         const hvd_options *options)
{
    return hvd_allreduce(name, in, out, count, HVD_FLOAT32, op, options);
}

/* ---- results ------------------------------------------------------------------------------------------- */

struct variant {
    hvd_op op;
    hvd_options options;
    bool in_place;
};

static const struct variant variants[] = {{HVD_SUM, {0}, true},
                                          {HVD_AVERAGE, {.postscale = 3}, false},
                                          {HVD_SUM, {.prescale = 0.3}, true},
                                          {HVD_MIN, {0}, false}};
#define VARIANTS (sizeof variants / sizeof *variants)

/* The bits are those of memory that the ranks share. */
static int compare_bits(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (size_t k = 0; k < VARIANTS; k++) {
        const struct variant *v = &variants[k];
        float *x = make(rank, false), *y = v->in_place ? x : make(77, false), *right = make(rank, true);
        job_check(reduce_floats("shared", right, right, COUNT, v->op, &v->options) == HVD_SUCCESS);
        job_check(reduce_floats("private", x, y, COUNT, v->op, &v->options) == HVD_SUCCESS);
        job_check(memcmp(y, right, COUNT * sizeof *y) == 0);
        if (!v->in_place)
            free(y);
        free(x);
        hvd_free(right);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(bits_are_those_of_shared_memory)
{
    job_must_succeed(job_ran(shapes[_i], compare_bits));
}
END_TEST

/* Each rank has its elements elsewhere in each turn, and waits in another way. If not all of a host pass
 * pieces, those that wanted to copy the whole. */
static int mix_ranks(const struct job *job, int rank)
{
    const hvd_options will_wait = {.will_wait = 1};
    job_check(hvd_init() == HVD_SUCCESS);
    float *right = make(rank, true), *private = make(rank, false), *shared = make(rank, true);
    job_check(reduce_floats("right", right, right, COUNT, HVD_SUM, NULL) == HVD_SUCCESS);
    for (int turn = 0; turn < 6; turn++) {
        int form = (rank * 5 + turn) % 4 % (turn % 2 ? 4 : 2);
        float *x = form == 3 ? shared : private;
        hvd_handle handle;
        fill(x, COUNT, rank);
        if (form == 0) {
            job_check(reduce_floats("mixed", x, x, COUNT, HVD_SUM, NULL) == HVD_SUCCESS);
        } else {
            job_check(hvd_allreduce_async("mixed", x, x, COUNT, HVD_FLOAT32, HVD_SUM,
                                          form == 1 ? &will_wait : NULL, &handle) == HVD_SUCCESS);
            job_check(hvd_wait(handle) == HVD_SUCCESS);
        }
        job_check(memcmp(x, right, COUNT * sizeof *x) == 0);
    }
    (void)job;
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(ranks_need_not_be_alike)
{
    job_must_succeed(job_ran(shapes[_i], mix_ranks));
}
END_TEST

/* ---- errors -------------------------------------------------------------------------------------------- */

/* The ranks of a host agree, so they bring pieces together before they hear of the other host. */
static int disagree_by_host(const struct job *job, int rank)
{
    float *x = make(rank, false);
    job_check(hvd_init() == HVD_SUCCESS);
    for (int turn = 0; turn < 3; turn++) {
        size_t count = job_host(job, rank) == 1 ? COUNT - 64 : COUNT;
        job_check(reduce_floats("x", x, x, count, HVD_SUM, NULL) == HVD_ERR_MISMATCH);
        job_check(strstr(hvd_last_error(), "elements") != NULL);
        fill(x, COUNT, 0);
        job_check(reduce_floats("x", x, x, COUNT, HVD_MAX, NULL) == HVD_SUCCESS);
        job_check(x[0] == 1 && x[COUNT - 1] == 1.0f / (float)(1 + (COUNT - 1) * 7ull % 1009));
    }
    free(x);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(hosts_that_disagree_get_an_error)
{
    job_must_succeed(job_ran(shapes[_i], disagree_by_host));
}
END_TEST

/* The last rank has arrived, and ends before it has brought anything. */
static int die_unpacked(const struct job *job, int rank)
{
    const hvd_options will_wait = {.will_wait = 1};
    float *x = make(rank, false);
    hvd_handle handle;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == size_of(job) - 1) {
        job_check(hvd_allreduce_async("x", x, x, COUNT, HVD_FLOAT32, HVD_SUM, &will_wait, &handle) ==
                  HVD_SUCCESS);
        job_await(stage, size_of(job) - 1);
        kill(getpid(), SIGKILL);
    }
    atomic_fetch_add(stage, 1);
    job_check(reduce_floats("x", x, x, COUNT, HVD_SUM, NULL) == HVD_ERR_PEER);
    return 0;
}

START_TEST(a_death_ends_it)
{
    struct job job = job_of(shapes[_i], die_unpacked);
    int last = size_of(&job) - 1;

    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int rank = 0; rank < last; rank++)
        ck_assert_int_eq(job.status[rank], 0);
    ck_assert(WIFSIGNALED(job.status[last]) && WTERMSIG(job.status[last]) == SIGKILL);
}
END_TEST

/* ---- waits that time out ------------------------------------------------------------------------------- */

/* Rank 0 gives up its wait, and waits for something else. The others need its elements first: the list has
 * the operation before the others' next one. */
static int leave_wait(const struct job *job, int rank)
{
    const hvd_options will_wait = {.will_wait = 1};
    float *x = make(rank, false), *right = make(rank, false), one = 1;
    hvd_handle handle;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(reduce_floats("right", right, right, COUNT, HVD_SUM, NULL) == HVD_SUCCESS);
    if (rank == 0) {
        job_check(hvd_allreduce_async("left", x, x, COUNT, HVD_FLOAT32, HVD_SUM, &will_wait, &handle) ==
                  HVD_SUCCESS);
        job_check(hvd_wait_for(handle, 20) == HVD_ERR_TIMEOUT);
        atomic_fetch_add(stage, 1);
        job_check(reduce_floats("next", &one, &one, 1, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(hvd_wait(handle) == HVD_SUCCESS);
    } else {
        job_await(stage, 1);
        job_check(reduce_floats("left", x, x, COUNT, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(reduce_floats("next", &one, &one, 1, HVD_SUM, NULL) == HVD_SUCCESS);
    }
    job_check(one == (float)size_of(job));
    job_check(memcmp(x, right, COUNT * sizeof *x) == 0);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(a_wait_that_timed_out_holds_nobody_up)
{
    job_must_succeed(job_ran(shapes[_i], leave_wait));
}
END_TEST

/* Rank 0 gives up its wait and leaves. The others come when its patience has ended. All get an answer. */
static int leave_the_job(const struct job *job, int rank)
{
    const hvd_options will_wait = {.will_wait = 1};
    float *x = make(rank, false);
    hvd_handle handle;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        job_check(hvd_allreduce_async("left", x, x, COUNT, HVD_FLOAT32, HVD_SUM, &will_wait, &handle) ==
                  HVD_SUCCESS);
        job_check(hvd_wait_for(handle, 20) == HVD_ERR_TIMEOUT);
        atomic_fetch_add(stage, 1);
        (void)hvd_shutdown();
        return 0;
    }
    job_await(stage, 1);
    usleep(1500000);
    (void)reduce_floats("left", x, x, COUNT, HVD_SUM, NULL);
    (void)hvd_shutdown();
    return 0;
}

START_TEST(a_rank_that_leaves_holds_nobody_up)
{
    struct job job = job_of(shapes[_i], leave_the_job);

    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("streamed");
    TCase *tc = tcase_create("streamed");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tc, make_stage, NULL);
    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, bits_are_those_of_shared_memory, 0, SHAPES);
    tcase_add_loop_test(tc, ranks_need_not_be_alike, 0, SHAPES);
    tcase_add_loop_test(tc, hosts_that_disagree_get_an_error, 0, SHAPES);
    tcase_add_loop_test(tc, a_death_ends_it, 0, SHAPES);
    tcase_add_loop_test(tc, a_wait_that_timed_out_holds_nobody_up, 0, SHAPES);
    tcase_add_loop_test(tc, a_rank_that_leaves_holds_nobody_up, 0, SHAPES);
    suite_add_tcase(s, tc);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
