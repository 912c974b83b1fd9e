/* hvd_wait_for: real processes and engines, on one host and on several (job.c). */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"

#define LARGE  (100u << 10) /* elements */
#define PIECES (3u << 18)   /* elements: 3 MiB, enough to go by pieces */
#define LONG   30000        /* ms: the operation ends before that */

static _Atomic int *given_up; /* by rank 0 */

static void setup(void)
{
    given_up = job_shared(sizeof *given_up);
}

static const struct job_shape shapes[] = {{1, 2, false}, {1, 4, false}, {2, 1, false}, {2, 2, true}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static hvd_handle start_sum(const char *name, float *x, size_t count)
{
    hvd_handle handle;

    job_check(hvd_allreduce_async(name, x, x, count, HVD_FLOAT32, HVD_SUM, NULL, &handle) == HVD_SUCCESS);
    return handle;
}

/* The time passes, and nothing has changed. */
static void must_time_out(hvd_handle handle)
{
    static const unsigned limit[] = {0, 1, 60, 0};

    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        uint64_t began = clock_now();
        job_check(hvd_wait_for(handle, limit[i]) == HVD_ERR_TIMEOUT);
        job_check(clock_now() - began >= limit[i] * NSEC_PER_MSEC);
        job_check(strstr(hvd_last_error(), "pending") != NULL);
    }
    job_check(hvd_poll(handle) == 0);
}

static int wait_in_slices(hvd_handle handle)
{
    int status;

    while ((status = hvd_wait_for(handle, 20)) == HVD_ERR_TIMEOUT)
        ;
    return status;
}

static void one_sum(int rank, int size, size_t count, bool slices)
{
    float *x = malloc(count * sizeof *x);
    hvd_handle handle;

    for (size_t i = 0; i < count; i++)
        x[i] = (float)(rank + 1);
    if (rank != 0)
        job_await(given_up, count == 1 ? 1 : 2);
    handle = start_sum("late", x, count);
    if (rank == 0) {
        must_time_out(handle);
        atomic_fetch_add(given_up, 1);
    }
    job_check((slices ? wait_in_slices(handle) : hvd_wait_for(handle, LONG)) == HVD_SUCCESS);
    job_check(hvd_wait_for(handle, 0) == HVD_ERR_INVALID); /* the handle is gone */
    job_check(x[0] == (float)(size * (size + 1) / 2) && x[count - 1] == x[0]);
    free(x);
}

static int sum_late(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;

    job_check(hvd_init() == HVD_SUCCESS);
    one_sum(rank, size, 1, false);
    one_sum(rank, size, LARGE, true);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_time_limit_changes_nothing)
{
    job_must_succeed(job_ran(shapes[_i], sum_late));
}
END_TEST

/* A thread of the library holds the tensor of a join until the join has ended. */
static int join_late(const struct job *job, int rank)
{
    hvd_handle handle;
    int last = -1;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank != 0)
        job_await(given_up, 1);
    job_check(hvd_join_async(&last, &handle) == HVD_SUCCESS);
    if (rank == 0) {
        must_time_out(handle);
        atomic_fetch_add(given_up, 1);
    }
    job_check(hvd_wait_for(handle, LONG) == HVD_SUCCESS);
    job_check(last > 0);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_join_has_a_limit_too)
{
    job_must_succeed(job_ran(shapes[_i], join_late));
}
END_TEST

static int persist(const struct job *job, int rank)
{
    float x = 1, y = 0;
    hvd_handle handle;

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_allreduce_init("again", &x, &y, 1, HVD_FLOAT32, HVD_SUM, NULL, &handle) == HVD_SUCCESS);
    for (int i = 0; i < 3; i++) {
        job_check(hvd_wait_for(handle, 0) == HVD_SUCCESS); /* it was not started */
        job_check(hvd_start(handle) == HVD_SUCCESS);
        job_check(wait_in_slices(handle) == HVD_SUCCESS && y == 2);
    }
    job_check(hvd_handle_free(handle) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(persistent_handles_start_again)
{
    job_must_succeed(job_ran((struct job_shape){1, 2, false}, persist));
}
END_TEST

static void fill_pieces(float *x, int rank)
{
    for (size_t i = 0; i < PIECES; i++)
        x[i] = (float)(rank + 1);
}

/* The sum of what the ranks filled in. */
static void check_pieces(const float *x, int size)
{
    for (size_t i = 0; i < PIECES; i++)
        job_check(x[i] == (float)(size * (size + 1) / 2));
}

/* Ranks that said that they would wait: all have arrived, and each needs the others' threads. Nothing was
 * copied as a whole, and no engine works. */
static int keep_waiting_for(const struct job *job, int rank)
{
    const hvd_options options = {.will_wait = 1};
    int size = job->per_host;
    float *x = malloc(PIECES * sizeof *x);
    hvd_handle handle;

    fill_pieces(x, rank);
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_allreduce_async("pieces", x, x, PIECES, HVD_FLOAT32, HVD_SUM, &options, &handle) ==
              HVD_SUCCESS);
    if (rank == 0) {
        job_await(given_up, size - 1);
    } else {
        job_check(hvd_wait_for(handle, 300) == HVD_ERR_TIMEOUT);
        atomic_fetch_add(given_up, 1);
    }
    job_check(wait_in_slices(handle) == HVD_SUCCESS);
    check_pieces(x, size);
    free(x);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(ranks_that_will_wait_work_for_themselves)
{
    job_must_succeed(job_ran(shapes[_i], keep_waiting_for));
}
END_TEST

/* The ranks need not say the same. */
static int wait_in_any_way(const struct job *job, int rank)
{
    const hvd_options options = {.will_wait = 1};
    int size = job->hosts * job->per_host;
    float *x = malloc(PIECES * sizeof *x);
    hvd_handle handle;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int turn = 0; turn < 6; turn++) {
        fill_pieces(x, rank);
        if ((rank + turn) % 3 == 0) {
            job_check(hvd_allreduce("x", x, x, PIECES, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        } else {
            job_check(hvd_allreduce_async("x", x, x, PIECES, HVD_FLOAT32, HVD_SUM,
                                          (rank + turn) % 3 == 1 ? &options : NULL, &handle) == HVD_SUCCESS);
            job_check(wait_in_slices(handle) == HVD_SUCCESS);
        }
        check_pieces(x, size);
    }
    free(x);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(ranks_may_wait_in_any_way)
{
    job_must_succeed(job_ran(shapes[_i], wait_in_any_way));
}
END_TEST

/* Short waits see that the engine has gone, as one long wait does. */
static int lose_engine(const struct job *job, int rank)
{
    float x = 1;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        hvd_handle handle = start_sum("never", &x, 1);
        job_ready(job);
        job_check(wait_in_slices(handle) == HVD_ERR_ENGINE);
    } else {
        job_await_fault(job);
    }
    return 0;
}

START_TEST(an_engine_that_died_ends_short_waits)
{
    struct job job = job_of((struct job_shape){1, 2, false}, lose_engine);

    job.fault = JOB_KILL_ENGINE;
    job.fault_after = 2;
    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int rank = 0; rank < 2; rank++)
        ck_assert_int_eq(job.status[rank], 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wait_for");
    TCase *tc = tcase_create("wait_for");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, a_time_limit_changes_nothing, 0, SHAPES);
    tcase_add_loop_test(tc, a_join_has_a_limit_too, 0, SHAPES);
    tcase_add_loop_test(tc, ranks_that_will_wait_work_for_themselves, 0, 2); /* on one host */
    tcase_add_loop_test(tc, ranks_may_wait_in_any_way, 0, SHAPES);
    tcase_add_test(tc, persistent_handles_start_again);
    tcase_add_test(tc, an_engine_that_died_ends_short_waits);
    suite_add_tcase(s, tc);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
