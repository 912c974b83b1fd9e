/* hvd_shutdown opposite ranks that are not ready to leave: the call ends. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/job.h"

#define LONGER_US 1500000 /* than hvd_shutdown is patient */
#define LARGE     (1u << 18)

static const struct job_shape shapes[] = {{1, 2, false}, {1, 4, false}, {2, 1, false},
                                          {2, 2, true},  {3, 2, false}, {4, 1, false}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static void expect_refused(int status)
{
    job_check(status == HVD_ERR_MISMATCH && strstr(hvd_last_error(), "shutdown"));
}

/* Rank 0 wants what the others will never do. */
static void want_others(int size)
{
    float *large = calloc(LARGE, sizeof *large), x = 1, y;
    size_t rows[JOB_RANKS_MAX];
    hvd_handle first, second;

    job_check(large);
    expect_refused(hvd_allreduce("x", &x, &y, 1, HVD_FLOAT32, HVD_SUM, NULL));
    expect_refused(hvd_allreduce("large", large, large, LARGE, HVD_FLOAT32, HVD_SUM, NULL));
    expect_refused(hvd_broadcast("x", &x, 1, HVD_FLOAT32, 0, NULL));
    expect_refused(hvd_allgather("x", &x, 1, 1, HVD_FLOAT32, large, LARGE, rows, NULL));
    expect_refused(hvd_send("x", &x, 1, HVD_FLOAT32, size - 1, NULL));
    expect_refused(hvd_barrier(NULL));
    job_check(hvd_allreduce_async("a", &x, &y, 1, HVD_FLOAT32, HVD_SUM, NULL, &first) == HVD_SUCCESS);
    job_check(hvd_allreduce_async("b", &x, &y, 1, HVD_FLOAT32, HVD_MAX, NULL, &second) == HVD_SUCCESS);
    expect_refused(hvd_wait(second));
    expect_refused(hvd_wait(first));
    free(large);
}

static int all_but_one_leave(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;

    for (int k = 0; k < 2; k++) {
        float x = 1;
        job_check(hvd_init() == HVD_SUCCESS);
        job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS &&
                  x == (float)size);
        if (rank == 0 && k == 0)
            want_others(size);
        job_check(hvd_shutdown() == HVD_SUCCESS);
    }
    return 0;
}

START_TEST(operations_of_one_that_stays_fail)
{
    struct job job = job_of(shapes[_i], all_but_one_leave);

    job_run(&job, JOB_SECONDS);
    ck_assert(job_succeeded(&job));
    ck_assert_int_eq(job.shut_down, 2 * job.hosts * job.per_host);
}
END_TEST

/* Rank 0 is late, and needs nobody. */
static int one_is_late(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0)
        usleep(LONGER_US);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_late_rank_is_waited_for)
{
    job_must_succeed(job_ran(shapes[_i], one_is_late));
}
END_TEST

/* Rank 0 joins after the others have begun to refuse. Their hvd_shutdown fails, and they come to the join. */
static int one_joins_late(const struct job *job, int rank)
{
    float x = 1;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0)
        usleep(LONGER_US);
    else
        job_check(hvd_shutdown() == HVD_ERR_MISMATCH && strstr(hvd_last_error(), "join"));
    job_check(hvd_join(NULL) == HVD_SUCCESS);
    job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(x == (float)(job->hosts * job->per_host));
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_late_join_is_heard)
{
    job_must_succeed(job_ran(shapes[_i], one_joins_late));
}
END_TEST

static int one_dies_late(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        usleep(LONGER_US);
        _exit(3);
    }
    job_check(hvd_shutdown() == HVD_ERR_PEER && strstr(hvd_last_error(), "rank 0 on node1"));
    return 3;
}

START_TEST(a_death_ends_the_wait)
{
    struct job job = job_of(shapes[_i], one_dies_late);

    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r < job.hosts * job.per_host; r++)
        ck_assert_int_eq(job.status[r], 3 << 8);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("shutdown");
    TCase *work = tcase_create("work");
    TCase *failures = tcase_create("failures");

    tcase_set_timeout(work, 2 * JOB_SECONDS);
    tcase_set_timeout(failures, 2 * JOB_SECONDS);
    tcase_add_loop_test(work, operations_of_one_that_stays_fail, 0, SHAPES);
    tcase_add_loop_test(work, a_late_rank_is_waited_for, 2, 3);
    tcase_add_loop_test(work, a_late_join_is_heard, 1, 4);
    tcase_add_loop_test(failures, a_death_ends_the_wait, 0, 4);
    suite_add_tcase(s, work);
    suite_add_tcase(s, failures);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(make_suite());

    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
