/* hvd_abort: a rank that gives up says why. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

#define LATE_NS (100 * NSEC_PER_MSEC)
#define LONG    600 /* bytes of a sentence */

static struct notes {
    _Atomic uint64_t said_at;
    _Atomic uint64_t heard_at[JOB_RANKS_MAX];
} * notes;

static void setup(void)
{
    notes = job_shared(sizeof *notes);
}

static const struct job_shape shapes[] = {{1, 3, false}, {2, 1, false}, {2, 2, false}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static const char cause[] = "gave up: ValueError: bad batch??[2J";

static void check_failed(int status, const struct job *job)
{
    char rank[64];

    snprintf(rank, sizeof rank, "rank 1 on node%d (pid ", job_host(job, 1) + 1);
    job_check(status == HVD_ERR_PEER && strstr(hvd_last_error(), rank) && strstr(hvd_last_error(), cause));
}

static int say_and_leave(const struct job *job)
{
    float x = 1;
    hvd_handle handle;

    job_check(hvd_allreduce_async("pending", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &handle) == HVD_SUCCESS);
    notes->said_at = clock_now();
    job_check(hvd_abort("ValueError: bad batch\n\x1b[2J") == HVD_SUCCESS);
    check_failed(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL), job);
    job_check(hvd_abort("again") == HVD_SUCCESS);
    check_failed(hvd_wait(handle), job);
    check_failed(hvd_barrier(NULL), job);
    job_check(hvd_shutdown() == HVD_ERR_PEER && hvd_abort("late") == HVD_ERR_NOT_INITIALIZED);
    check_failed(hvd_init(), job);
    return 0;
}

/* Ranks wait in an allreduce, in a join, or are in no call. */
static int gives_up(const struct job *job, int rank)
{
    float x = 1;
    int status = HVD_SUCCESS;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 1) {
        usleep(50000);
        return say_and_leave(job);
    }
    if (rank == 3)
        status = hvd_join(NULL);
    while (status == HVD_SUCCESS)
        status = hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL);
    notes->heard_at[rank] = clock_now();
    check_failed(status, job);
    check_failed(hvd_barrier(NULL), job);
    hvd_shutdown();
    return 0;
}

START_TEST(every_rank_hears_why)
{
    struct job job = job_ran(shapes[_i], gives_up);
    int ranks = job.hosts * job.per_host;

    ck_assert(!job.timed_out);
    for (int r = 0; r < ranks; r++)
        ck_assert_int_eq(job.status[r], 0);
    for (int r = 0; r < ranks; r++)
        ck_assert(r == 1 || notes->heard_at[r] < notes->said_at + LATE_NS);
}
END_TEST

static int says_much(const struct job *job, int rank)
{
    char why[LONG + 1];

    (void)job;
    memset(why, 'w', LONG);
    why[LONG] = '\0';
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0)
        job_check(hvd_abort(why) == HVD_SUCCESS);
    job_check(hvd_barrier(NULL) == HVD_ERR_PEER);
    why[300] = '\0';
    job_check(strstr(hvd_last_error(), why) && !strstr(strstr(hvd_last_error(), why), "wwwwx"));
    job_check(strlen(strstr(hvd_last_error(), why)) == 300);
    hvd_shutdown();
    return 0;
}

START_TEST(a_sentence_is_bounded)
{
    struct job job = job_ran((struct job_shape){1, 2, false}, says_much);

    ck_assert(job.status[0] == 0 && job.status[1] == 0);
}
END_TEST

START_TEST(alone_its_own_calls_fail)
{
    float x = 1;

    ck_assert_int_eq(hvd_abort("early"), HVD_ERR_NOT_INITIALIZED);
    ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
    ck_assert_int_eq(hvd_abort(NULL), HVD_SUCCESS);
    ck_assert_int_eq(hvd_abort("again"), HVD_SUCCESS);
    ck_assert_int_eq(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL), HVD_ERR_PEER);
    ck_assert_str_eq(hvd_last_error(), "rank 0 gave up: it did not say why");
    ck_assert_int_eq(hvd_rank(), 0);
    hvd_shutdown();
    ck_assert_int_eq(hvd_abort("late"), HVD_ERR_NOT_INITIALIZED);
    ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
    ck_assert_int_eq(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL), HVD_SUCCESS);
    ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("abort");
    TCase *t = tcase_create("abort");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 3 * JOB_SECONDS);
    tcase_add_loop_test(t, every_rank_hears_why, 0, SHAPES);
    tcase_add_test(t, a_sentence_is_bounded);
    tcase_add_test(t, alone_its_own_calls_fail);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(make_suite());
}
