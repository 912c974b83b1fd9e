/* Memory that outlives its job. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

#define BYTES (3u << 20)
#define COUNT (BYTES / sizeof(float))

job_unwatched static bool is_all(const float *x, float value)
{
    for (size_t i = 0; i < COUNT; i++)
        if (x[i] != value)
            return false;
    return true;
}

job_unwatched static void set_all(float *x, float value)
{
    for (size_t i = 0; i < COUNT; i++)
        x[i] = value;
}

/* The memory is in the job's shared memory: another rank reads this rank's result there. */
static void work_in(float *x)
{
    const void *shared;

    set_all(x, 1);
    job_check(hvd_allreduce("x", x, x, COUNT, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(is_all(x, (float)hvd_size()));
    job_check(hvd_allreduce_shared("y", x, COUNT, HVD_FLOAT32, HVD_AVERAGE, NULL, &shared) == HVD_SUCCESS);
    job_check(is_all(shared, (float)hvd_size()));
}

static void *free_in_thread(void *memory)
{
    hvd_free(memory);
    return NULL;
}

static int over_epochs(const struct job *job, int rank)
{
    float *early = hvd_alloc_lasting(BYTES), *x = NULL;
    pthread_t thread;

    (void)job, (void)rank;
    job_check(early && is_all(early, 0));
    for (int epoch = 0; epoch < 3; epoch++) {
        job_check(hvd_init() == HVD_SUCCESS);
        x = x ? x : hvd_alloc_lasting(BYTES);
        work_in(early);
        work_in(x);
        job_check(hvd_shutdown() == HVD_SUCCESS);
        job_check(is_all(x, (float)job->hosts * (float)job->per_host));
        set_all(x, 5);
        job_check(is_all(x, 5));
    }
    hvd_free(early);
    job_check(is_all(x, 5));
    job_check(pthread_create(&thread, NULL, free_in_thread, x) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}

START_TEST(memory_lasts_over_jobs)
{
    static const struct job_shape shape[] = {{1, 2, false}, {2, 2, false}};
    struct job job = job_of(shape[_i], over_epochs);

    job_run(&job, JOB_SECONDS);
    ck_assert(job_succeeded(&job));
}
END_TEST

static int over_a_death(const struct job *job, int rank)
{
    float *x = hvd_alloc_lasting(BYTES), *y = hvd_alloc_lasting(BYTES), *z, one = 1;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    work_in(x);
    work_in(y);
    set_all(x, 7);
    job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    if (rank == 1)
        _exit(3);
    while (hvd_allreduce("wait", &one, &one, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS)
        ;
    hvd_free(y);
    job_check(is_all(x, 7));
    hvd_shutdown();
    job_check(is_all(x, 7));
    set_all(x, 8);
    z = hvd_alloc_lasting(BYTES);
    job_check(z && is_all(z, 0) && hvd_init() == HVD_ERR_PEER && is_all(x, 8));
    hvd_free(x);
    hvd_free(z);
    return 0;
}

START_TEST(memory_lasts_over_a_failure)
{
    struct job job = job_ran((struct job_shape){1, 3, false}, over_a_death);

    ck_assert(!job.timed_out);
    ck_assert(job.status[0] == 0 && job.status[2] == 0);
}
END_TEST

/* A child's child has what the child has written. */
static bool is_seen_by_a_child(const float *x, float value)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(is_all(x, value) ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The child and what it writes. `value`: what it must find. */
static void fork_and_write(float *x, float value)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        bool right = is_all(x, value);
        set_all(x, 99);
        right = right && is_all(x, 99) && is_seen_by_a_child(x, 99);
        hvd_free(x);
        _exit(right ? 0 : 1);
    }
    job_check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    job_check(is_all(x, value));
}

static int with_children(const struct job *job, int rank)
{
    float *x = hvd_alloc_lasting(BYTES);

    (void)job, (void)rank;
    set_all(x, 3);
    fork_and_write(x, 3);
    job_check(hvd_init() == HVD_SUCCESS);
    work_in(x);
    fork_and_write(x, (float)hvd_size());
    work_in(x);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    fork_and_write(x, (float)job->per_host);
    hvd_free(x);
    return 0;
}

START_TEST(children_cannot_change_it)
{
    job_must_succeed(job_ran((struct job_shape){1, 2, false}, with_children));
}
END_TEST

/* Bytes of shared memory in this process. */
static unsigned long shared_bytes(void)
{
    unsigned long shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%*u %*u %lu", &shared), 1);
    fclose(f);
    return shared * (unsigned long)sysconf(_SC_PAGESIZE);
}

START_TEST(what_is_freed_is_given_back)
{
    char *one = NULL;

    for (int in_job = 0; in_job < 2; in_job++) {
        ck_assert(!in_job || hvd_init() == HVD_SUCCESS);
        for (int i = 0; i < 40; i++) {
            char *x = hvd_alloc_lasting(200u << 20);
            ck_assert_ptr_nonnull(x);
            ck_assert_int_eq(x[100 << 20], 0);
            memset(x, 1, 4u << 20);
            one = one ? one : hvd_alloc_lasting(100);
            hvd_free(x);
            ck_assert_uint_lt(shared_bytes(), 64u << 20);
        }
        ck_assert(!in_job || hvd_shutdown() == HVD_SUCCESS);
    }
    memcpy(one, "still here", sizeof "still here");
    hvd_free(one);
    hvd_free(NULL);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("lasting");
    TCase *t = tcase_create("lasting");

    tcase_set_timeout(t, 3 * JOB_SECONDS);
    tcase_add_loop_test(t, memory_lasts_over_jobs, 0, 2);
    tcase_add_test(t, memory_lasts_over_a_failure);
    tcase_add_test(t, children_cannot_change_it);
    tcase_add_test(t, what_is_freed_is_given_back);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(make_suite());
}
