/* The counts of operations: no operation is counted twice or lost, whichever thread ends it; and the choice
 * of operations whose time is taken.
 *
 * needs: hvd-engine client tests/unit/job.c */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/client/counts.h"

#include <check.h> /* behind: it has a macro fail() */

#include "tests/unit/job.h"

#define THREADS 4
#define ROUNDS  3000
#define LARGE   (SHM_TIMED_BYTES / sizeof(float))

START_TEST(the_times_that_are_taken_stand_for_all)
{
    uint64_t stands = 0;

    for (uint32_t i = 1; i <= 6400; i++) {
        stands += shm_stands_for(i);
        if (i % 64 == 0 || (i & (i - 1)) == 0)
            ck_assert_uint_eq(stands, i);
        ck_assert_uint_le(stands, i);
    }
}
END_TEST

static void *reduce_often(void *name)
{
    float x[2] = {1, 2}, sum[2];

    for (int i = 0; i < ROUNDS; i++)
        job_check(hvd_allreduce(name, x, sum, 2, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    return NULL;
}

static struct shm_count both(uint8_t kind)
{
    const struct shm_counts *c = &client.mailbox->counts;
    struct shm_count sum;

    atomic_init(&sum.operations, c->own[kind].operations + c->others[kind].operations);
    atomic_init(&sum.bytes, c->own[kind].bytes + c->others[kind].bytes);
    atomic_init(&sum.ns, c->own[kind].ns + c->others[kind].ns);
    return sum;
}

static int count_in_threads(const struct job *job, int rank)
{
    static const char *const name[THREADS] = {"a", "b", "c", "d"};
    static float large[LARGE];
    pthread_t thread[THREADS];
    struct timespec pause = {.tv_nsec = 50000000};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < THREADS; i++)
        job_check(pthread_create(&thread[i], NULL, reduce_often, (void *)(uintptr_t)name[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    struct shm_count c = both(SHM_ALLREDUCE);
    job_check(c.operations == (uint64_t)THREADS * ROUNDS && c.bytes == c.operations * 2 * sizeof(float));
    struct shm_count broadcasts = both(SHM_BROADCAST), barriers = both(SHM_BARRIER);
    job_check(broadcasts.operations == 0 && barriers.operations == 1);

    /* One that takes a while. */
    if (rank == 1)
        nanosleep(&pause, NULL);
    job_check(hvd_broadcast("large", large, LARGE, HVD_FLOAT32, 1, NULL) == HVD_SUCCESS);
    c = both(SHM_BROADCAST);
    job_check(c.operations == 1 && c.bytes == sizeof large);
    job_check(c.ns < 10 * NSEC_PER_SEC && (rank == 1 || c.ns > 40 * NSEC_PER_MSEC));

    /* An operation that fails is not counted. */
    job_check(hvd_allreduce("x", large, large, rank == 0 ? 1 : 2, HVD_FLOAT32, HVD_SUM, NULL) ==
              HVD_ERR_MISMATCH);
    c = both(SHM_ALLREDUCE);
    job_check(c.operations == (uint64_t)THREADS * ROUNDS);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(all_threads_are_counted)
{
    job_must_succeed(job_ran((struct job_shape){.hosts = 1 + _i, .per_host = 2 - _i}, count_in_threads));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("counts");
    TCase *c = tcase_create("counts");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, the_times_that_are_taken_stand_for_all);
    tcase_add_loop_test(c, all_threads_are_counted, 0, 2);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
