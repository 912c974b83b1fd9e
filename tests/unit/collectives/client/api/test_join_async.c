/* hvd_join_async: real processes and engines, on one host and on several (job.c). test_join tests the part
 * of a joined rank in the operations of others; this test is about the rank itself meanwhile. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

#define LARGE  (300u << 10) /* elements */
#define EPOCHS 3

static struct notes {
    _Atomic int come, go, late, first, won;
    char text[JOB_RANKS_MAX][512];
} * notes;

static void setup(void)
{
    notes = job_shared(sizeof *notes);
}

static const struct job_shape shapes[] = {{1, 2, false}, {1, 4, false}, {2, 1, false},
                                          {2, 2, true},  {3, 2, false}, {4, 1, false}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static void pause_ms(unsigned ms)
{
    usleep(ms * 1000);
}

static int sum(float *value, const char *name)
{
    float in = *value;

    return hvd_allreduce(name, &in, value, 1, HVD_FLOAT32, HVD_SUM, NULL);
}

static void must_sum(const char *name, float give, float expected)
{
    job_check(sum(&give, name) == HVD_SUCCESS);
    job_check(give == expected);
}

static void wait_for(hvd_handle join, int expected)
{
    int ended;

    while ((ended = hvd_poll(join)) == 0)
        pause_ms(1);
    job_check(ended == 1);
    job_check(hvd_wait(join) == expected);
    job_check(hvd_wait(join) == HVD_ERR_INVALID); /* the handle is gone */
}

/* Nothing of this rank can begin. */
static void must_refuse(void)
{
    float x = 1;
    hvd_handle h = 5;
    hvd_set set;

    job_check(sum(&x, "refused") == HVD_ERR_IN_PROGRESS && strstr(hvd_last_error(), "hvd_join"));
    job_check(hvd_allreduce_async("refused", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) ==
              HVD_ERR_IN_PROGRESS);
    job_check(hvd_barrier(NULL) == HVD_ERR_IN_PROGRESS);
    job_check(hvd_set_add((const int[]){0}, 1, &set) == HVD_ERR_IN_PROGRESS);
    job_check(hvd_join(NULL) == HVD_ERR_IN_PROGRESS);
    job_check(hvd_join_async(NULL, &h) == HVD_ERR_IN_PROGRESS && h == 0);
    job_check(hvd_shutdown() == HVD_ERR_IN_PROGRESS);
    job_check(hvd_is_initialized() == 1 && hvd_size() > 1);
}

/* ---- both forms ---------------------------------------------------------------------------------------- */

/* Rank r has r times three steps to do, then joins in one form or the other. */
static void uneven(int rank, int size, int round)
{
    float *large = hvd_alloc(LARGE * sizeof *large);
    int last = -1;
    hvd_handle join;

    for (int k = 0; k < 3 * rank; k++) {
        int works = 0;
        for (int r = 0; r < size; r++)
            works += 3 * r > k;
        for (size_t i = 0; i < LARGE; i++)
            large[i] = 1;
        must_sum("small", 2, 2 * (float)works);
        job_check(hvd_allreduce("large", large, large, LARGE, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(large[0] == (float)works && large[LARGE - 1] == (float)works);
        job_check(hvd_barrier(NULL) == (works == size ? HVD_SUCCESS : HVD_ERR_MISMATCH));
    }
    if (rank == size - 1) {
        job_await(&notes->come, (round + 1) * (size - 1));
        must_sum("alone", 1, 1); /* the others have joined, or this would not end */
        pause_ms(2);             /* later by the clock, which is read in milliseconds */
    }
    if ((rank + round) % 2 == 0) {
        atomic_fetch_add(&notes->come, rank < size - 1);
        job_check(hvd_join(&last) == HVD_SUCCESS);
    } else {
        job_check(hvd_join_async(&last, &join) == HVD_SUCCESS && join > 0);
        if (rank < size - 1)
            must_refuse();
        atomic_fetch_add(&notes->come, rank < size - 1);
        wait_for(join, HVD_SUCCESS);
    }
    job_check(last == size - 1);
    must_sum("after", 1, (float)size);
    hvd_free(large);
}

static int mixed(const struct job *job, int rank)
{
    for (int k = 0; k < EPOCHS; k++) {
        job_check(hvd_init() == HVD_SUCCESS);
        for (int round = 0; round < 2; round++)
            uneven(rank, job->hosts * job->per_host, 2 * k + round);
        job_check(hvd_shutdown() == HVD_SUCCESS);
    }
    return 0;
}

static void must_shut_down(struct job job, int times)
{
    job_run(&job, JOB_SECONDS);
    ck_assert(job_succeeded(&job));
    ck_assert_int_eq(job.shut_down, times * job.hosts * job.per_host);
}

START_TEST(both_forms_are_one_join)
{
    must_shut_down(job_of(shapes[_i], mixed), EPOCHS);
}
END_TEST

/* ---- operations that were begun before ----------------------------------------------------------------- */

struct own {
    hvd_handle few, many, persistent, idle, wrong;
    float in[3], out[3], again[3], at_rest[3];
    float *large;
};

static void begin_own(struct own *o, int rank)
{
    for (int i = 0; i < 3; i++)
        o->in[i] = (float)(rank + 1);
    o->large = calloc(LARGE, sizeof *o->large);
    o->large[LARGE - 1] = (float)(rank + 1);
    job_check(hvd_allreduce_async("few", o->in, o->out, 3, HVD_FLOAT32, HVD_SUM, NULL, &o->few) == 0);
    job_check(hvd_allreduce_async("many", o->large, o->large, LARGE, HVD_FLOAT32, HVD_SUM, NULL, &o->many) ==
              0);
    job_check(hvd_allreduce_init("kept", o->in, o->again, 3, HVD_FLOAT32, HVD_SUM, NULL, &o->persistent) ==
              0);
    job_check(hvd_start(o->persistent) == 0);
    job_check(hvd_allreduce_init("idle", o->in, o->at_rest, 3, HVD_FLOAT32, HVD_SUM, NULL, &o->idle) == 0);
    job_check(hvd_allreduce_async("wrong", o->in, o->out, rank == 0 ? 3 : 2, HVD_FLOAT32, HVD_SUM, NULL,
                                  &o->wrong) == 0);
}

static void wait_own(struct own *o, int size)
{
    float all = (float)(size * (size + 1) / 2);

    job_check(hvd_wait(o->few) == HVD_SUCCESS && o->out[2] == all);
    job_check(hvd_wait(o->few) == HVD_ERR_INVALID);
    job_check(hvd_wait(o->many) == HVD_SUCCESS && o->large[LARGE - 1] == all);
    job_check(hvd_wait(o->persistent) == HVD_SUCCESS && o->again[0] == all);
    job_check(hvd_wait(o->persistent) == HVD_SUCCESS && hvd_poll(o->persistent) == 1);
    job_check(hvd_wait(o->idle) == HVD_SUCCESS && hvd_poll(o->idle) == 1);
    job_check(hvd_wait(o->wrong) == HVD_ERR_MISMATCH && strstr(hvd_last_error(), "wrong"));
}

/* The others go on with the same names, where the first rank's own operations have ended and were not waited
 * for. Until the last one comes, its parts are in progress. */
static void go_on(int rank, int size)
{
    static const char *const names[] = {"few", "many", "kept", "idle", "wrong"};
    float *x = calloc(5 * LARGE, sizeof *x);
    hvd_handle h[5];

    if (rank == size - 1)
        pause_ms(20);
    for (size_t i = 0; i < 5; i++) {
        size_t count = i == 1 ? LARGE : i == 4 ? 4 : 3;
        float *at = x + i * LARGE;
        at[0] = 1;
        job_check(hvd_allreduce_async(names[i], at, at, count, HVD_FLOAT32, HVD_SUM, NULL, &h[i]) == 0);
    }
    atomic_store(&notes->go, 1);
    for (size_t i = 0; i < 5; i++) {
        job_check(hvd_wait(h[i]) == HVD_SUCCESS);
        job_check(x[i * LARGE] == (float)(size - 1));
    }
    free(x);
}

/* The one that has joined: its handles name what they did. */
static void wait_while_joined(struct own *o, int size)
{
    hvd_handle join;

    job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
    while (hvd_poll(o->few) == 0 || hvd_poll(o->wrong) == 0)
        pause_ms(1);
    atomic_store(&notes->first, 1);
    job_await(&notes->go, 1);
    pause_ms(5); /* it takes part in all of them */
    job_check(hvd_poll(o->few) == 1 && hvd_poll(o->wrong) == 1);
    wait_own(o, size);
    job_check(hvd_start(o->idle) == HVD_ERR_IN_PROGRESS && hvd_handle_free(o->idle) == HVD_ERR_IN_PROGRESS);
    atomic_store(&notes->late, 1);
    wait_for(join, HVD_SUCCESS);
}

static int own_operations(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    struct own o;

    job_check(hvd_init() == HVD_SUCCESS);
    begin_own(&o, rank);
    if (rank == 0) {
        wait_while_joined(&o, size);
    } else {
        wait_own(&o, size);
        job_await(&notes->first, 1);
        for (int k = 0; k < 3; k++) {
            job_check(k > 0 || (hvd_handle_free(o.persistent) == HVD_SUCCESS &&
                                hvd_handle_free(o.idle) == HVD_SUCCESS));
            go_on(rank, size);
        }
        job_await(&notes->late, 1);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    }
    if (rank == 0)
        job_check(hvd_start(o.idle) == HVD_SUCCESS && hvd_wait(o.idle) == HVD_SUCCESS);
    else
        job_check(hvd_allreduce("idle", o.in, o.at_rest, 3, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(o.at_rest[1] == (float)(size * (size + 1) / 2));
    free(o.large);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(handles_of_before_name_what_they_did)
{
    must_shut_down(job_of(shapes[_i], own_operations), 1);
}
END_TEST

#define TIMES    8
#define ATTEMPTS 5

/* How many of TIMES joins heard late of the end of what this thread waits for. */
static int hear(int rank, int size)
{
    int slow = 0;

    for (int k = 0; k < TIMES; k++) {
        float in = 1, out;
        hvd_handle h, join;
        uint64_t at;
        if (rank > 0)
            pause_ms(20);
        job_check(hvd_allreduce_async("x", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) == 0);
        job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
        job_check(hvd_wait(h) == HVD_SUCCESS && out == (float)size);
        at = clock_now();
        job_check(hvd_wait(join) == HVD_SUCCESS);
        slow += clock_now() - at > 150 * NSEC_PER_MSEC;
    }
    return slow;
}

/* This thread's own operation has ended. The thread that has joined must hear of it at once; it must not find
 * it only when it looks again, a quarter of a second later. Other work on the machine delays one attempt or
 * another; a fault delays all. */
static int heard(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    float late = 1;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int attempt = 0; attempt < ATTEMPTS && late > 0; attempt++) {
        late = hear(rank, size) > TIMES / 2;
        job_check(sum(&late, "late") == HVD_SUCCESS);
    }
    job_check(late == 0);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

#define CLOSE 400

/* Joins follow each other closely, and ranks come in changing orders. Words that come late about an operation
 * of one join must not be taken for the next operation of that name. */
static int join_closely(const struct job *job, int rank)
{
    float size = (float)(job->hosts * job->per_host);
    unsigned seed = (unsigned)rank + 1;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < CLOSE; k++) {
        float in = 1, out;
        hvd_handle h, join;
        usleep((useconds_t)(rand_r(&seed) % 500));
        job_check(hvd_allreduce_async("x", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) == HVD_SUCCESS);
        job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
        job_check(hvd_wait(h) == HVD_SUCCESS && out == size);
        job_check(hvd_wait(join) == HVD_SUCCESS);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(joins_follow_each_other_closely)
{
    must_shut_down(job_of(shapes[_i], join_closely), 1);
}
END_TEST

START_TEST(the_end_of_what_another_thread_waits_for_is_heard)
{
    must_shut_down(job_of(shapes[_i], heard), 1);
}
END_TEST

/* ---- the handle ---------------------------------------------------------------------------------------- */

static int not_waited(const struct job *job, int rank)
{
    hvd_handle join, other = 7;
    int last = -1;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_join_async(&last, NULL) == HVD_ERR_INVALID);
    job_check(hvd_join_async(&last, &join) == HVD_SUCCESS);
    while (hvd_poll(join) == 0)
        pause_ms(1);
    must_sum("x", 1, 2); /* the join has ended, so this may begin */
    job_check(hvd_join(NULL) == HVD_ERR_IN_PROGRESS && strstr(hvd_last_error(), "not waited for"));
    job_check(hvd_join_async(NULL, &other) == HVD_ERR_IN_PROGRESS && other == 0);
    must_sum("x", 1, 2);
    if (rank == 0)
        job_check(hvd_wait(join) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    job_check(hvd_poll(join) == HVD_ERR_NOT_INITIALIZED);
    job_check(hvd_join_async(NULL, &other) == HVD_ERR_NOT_INITIALIZED);
    return 0;
}

START_TEST(a_handle_that_is_not_waited_for)
{
    must_shut_down(job_of(shapes[_i], not_waited), 1);
}
END_TEST

static void *wait_in_thread(void *join)
{
    job_check(hvd_wait(*(hvd_handle *)join) == HVD_SUCCESS);
    return NULL;
}

static void *join_in_thread(void *unused)
{
    hvd_handle join;
    int status;

    (void)unused;
    while (!atomic_load(&notes->first))
        sched_yield();
    status = hvd_join_async(NULL, &join);
    job_check(status == HVD_SUCCESS || status == HVD_ERR_IN_PROGRESS);
    atomic_fetch_add(&notes->won, status == HVD_SUCCESS);
    atomic_fetch_add(&notes->late, 1);
    job_check(status != HVD_SUCCESS || hvd_wait(join) == HVD_SUCCESS);
    return NULL;
}

static int threads(const struct job *job, int rank)
{
    pthread_t thread[4];
    hvd_handle join;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
        pthread_create(&thread[0], NULL, wait_in_thread, &join);
        while (hvd_poll(join) == 0) /* then the other thread has it, or has ended it */
            sched_yield();
        pthread_join(thread[0], NULL);
        for (int i = 0; i < 4; i++)
            pthread_create(&thread[i], NULL, join_in_thread, NULL);
        atomic_store(&notes->first, 1);
        job_await(&notes->late, 4);
        job_check(atomic_load(&notes->won) == 1);
        atomic_store(&notes->go, 1);
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
    } else {
        pause_ms(20);
        must_sum("x", 1, (float)(job->hosts * job->per_host - 1));
        job_check(hvd_join(NULL) == HVD_SUCCESS);
        job_await(&notes->go, 1);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(threads_wait_and_join)
{
    must_shut_down(job_of(shapes[_i], threads), 1);
}
END_TEST

static int set_apart(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, odd[JOB_RANKS_MAX], odds = 0;
    float x[2] = {1, 2};
    hvd_options o = {0};
    hvd_handle join;

    for (int r = 1; r < size; r += 2)
        odd[odds++] = r;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_set_add(odd, odds, &o.set) == HVD_SUCCESS);
    if (rank != 1 || size == 2) {
        job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
        if (size > 2)
            job_check(hvd_allreduce("x", x, x, 2, HVD_FLOAT32, HVD_SUM, &o) == HVD_ERR_IN_PROGRESS);
        atomic_fetch_add(&notes->come, 1);
        job_check(hvd_wait(join) == HVD_SUCCESS);
    } else {
        job_await(&notes->come,
                  size - 1); /* later that would be no join in progress, and would wait for this rank */
        job_check(hvd_allreduce("x", x, x, 2, HVD_FLOAT32, HVD_SUM, &o) == HVD_SUCCESS && x[1] == 2);
        job_check(hvd_barrier(&o) == (odds == 1 ? HVD_SUCCESS : HVD_ERR_MISMATCH));
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    }
    job_check(hvd_set_remove(o.set) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(sets)
{
    must_shut_down(job_of(shapes[_i], set_apart), 1);
}
END_TEST

/* ---- the process --------------------------------------------------------------------------------------- */

static void in_child(hvd_handle join)
{
    bool forked = hvd_poll(join) == HVD_ERR_FORKED && hvd_wait(join) == HVD_ERR_FORKED &&
                  hvd_join(NULL) == HVD_ERR_FORKED && hvd_join_async(NULL, &join) == HVD_ERR_FORKED &&
                  hvd_shutdown() == HVD_ERR_FORKED;

    _exit(forked ? 0 : 1);
}

/* A fork while joined concerns the child only; a signal is for the program's own threads. */
static int forks(const struct job *job, int rank)
{
    hvd_handle join;
    sigset_t one, pending;
    int status;
    pid_t pid;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS || rank > 0);
    if (rank == 0) {
        if ((pid = fork()) == 0)
            in_child(join);
        job_check(waitpid(pid, &status, 0) == pid && status == 0);
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &one, NULL);
        kill(getpid(), SIGUSR1); /* would end the process */
        pause_ms(10);
        job_check(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
        atomic_store(&notes->go, 1);
    }
    job_check(hvd_wait(join) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(forks_and_signals)
{
    must_shut_down(job_of(shapes[0], forks), 1);
}
END_TEST

START_TEST(a_job_of_one_rank)
{
    hvd_handle join, other;
    int last = -1;

    unsetenv("HVD_WORKER_SOCKET");
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
        ck_assert_int_eq(hvd_join_async(&last, &join), HVD_SUCCESS);
        ck_assert_int_eq(last, 0);
        ck_assert_int_eq(hvd_join_async(NULL, &other), HVD_ERR_IN_PROGRESS);
        ck_assert_int_eq(hvd_poll(join), 1);
        ck_assert_int_eq(hvd_wait(join), HVD_SUCCESS);
        ck_assert_int_eq(hvd_wait(join), HVD_ERR_INVALID);
        ck_assert_int_eq(hvd_join(&last), HVD_SUCCESS);
        ck_assert_int_eq(hvd_join_async(NULL, &join), HVD_SUCCESS);
        ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
    }
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------ */

/* The last rank dies when the others have joined. Half of them do not wait. */
static int killed(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    hvd_handle join;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == size - 1) {
        job_await(&notes->come, size - 1);
        for (int i = 0; i < 20; i++)
            must_sum("x", 1, 1);
        kill(getpid(), SIGKILL);
    }
    job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
    atomic_fetch_add(&notes->come, 1);
    while (hvd_poll(join) == 0)
        pause_ms(1);
    if (rank % 2 == 0) {
        job_check(hvd_wait(join) == HVD_ERR_PEER);
        snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
        job_check(hvd_join_async(NULL, &join) == HVD_ERR_PEER && join == 0);
    }
    job_check(hvd_shutdown() == HVD_ERR_PEER);
    return 3;
}

START_TEST(a_death_ends_the_join)
{
    struct job job = job_ran(shapes[_i], killed);
    int size = job.hosts * job.per_host;
    char name[32];

    ck_assert(!job.timed_out);
    snprintf(name, sizeof name, "rank %d ", size - 1);
    for (int r = 0; r < size - 1; r++) {
        ck_assert_int_eq(job.status[r], 3 << 8);
        if (r % 2 == 0)
            ck_assert_ptr_nonnull(strstr(notes->text[r], name));
    }
}
END_TEST

/* The others do not poll, so hvd_shutdown finds the join in progress and the job failed. */
static int leaves_at_once(const struct job *job, int rank)
{
    hvd_handle join;
    float x = 1;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 1) {
        job_await(&notes->come, 1);
        pause_ms(10);
        kill(getpid(), SIGKILL);
    }
    if (rank > 1 && hvd_join_async(NULL, &join) != HVD_SUCCESS)
        return 1; /* the job has failed already */
    job_check(rank > 0 || hvd_join_async(NULL, &join) == HVD_SUCCESS);
    atomic_fetch_add(&notes->come, rank == 0);
    while (hvd_shutdown() == HVD_ERR_IN_PROGRESS)
        ;
    job_check(hvd_is_initialized() == 0);
    job_check(sum(&x, "x") == HVD_ERR_NOT_INITIALIZED);
    return 3;
}

START_TEST(a_failed_job_is_left_without_a_wait)
{
    struct job job = job_ran(shapes[_i], leaves_at_once);

    ck_assert(!job.timed_out);
    ck_assert_int_eq(job.status[0], 3 << 8);
}
END_TEST

static int joined_dies(const struct job *job, int rank)
{
    hvd_handle join;
    int status = HVD_SUCCESS;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
        job_await(&notes->go, 1);
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; status == HVD_SUCCESS; i++) {
        float x = 1;
        status = sum(&x, "x");
        if (i == 50)
            atomic_store(&notes->go, 1);
    }
    job_check(status == HVD_ERR_PEER && strstr(hvd_last_error(), "rank 0 "));
    hvd_shutdown();
    return 3;
}

START_TEST(a_joined_rank_that_dies_ends_the_others)
{
    struct job job = job_ran(shapes[_i], joined_dies);

    ck_assert(!job.timed_out);
    for (int r = 1; r < job.hosts * job.per_host; r++)
        ck_assert_int_eq(job.status[r], 3 << 8);
}
END_TEST

static int engine_dies(const struct job *job, int rank)
{
    hvd_handle join;
    int status;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        job_await_fault(job);
        hvd_shutdown();
        return 3;
    }
    job_check(hvd_join_async(NULL, &join) == HVD_SUCCESS);
    job_ready(job);
    status = hvd_wait(join);
    job_check(status == HVD_ERR_ENGINE || status == HVD_ERR_PEER);
    job_check(hvd_join_async(NULL, &join) == status);
    hvd_shutdown();
    return 3;
}

START_TEST(an_engine_that_dies_ends_the_join)
{
    struct job job = job_of(shapes[0], engine_dies);

    job.fault = JOB_KILL_ENGINE;
    job.fault_after = 2;
    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(job.status[r], 3 << 8);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("join_async");
    TCase *work = tcase_create("work");
    TCase *failures = tcase_create("failures");

    tcase_add_checked_fixture(work, setup, NULL);
    tcase_set_timeout(work, 2 * JOB_SECONDS);
    tcase_add_loop_test(work, both_forms_are_one_join, 0, SHAPES);
    tcase_add_loop_test(work, handles_of_before_name_what_they_did, 0, SHAPES);
    tcase_add_loop_test(work, joins_follow_each_other_closely, 0, SHAPES);
    tcase_add_loop_test(work, the_end_of_what_another_thread_waits_for_is_heard, 0, 3);
    tcase_add_test(work, a_handle_that_is_not_waited_for);
    tcase_add_loop_test(work, threads_wait_and_join, 0, 3);
    tcase_add_loop_test(work, sets, 0, SHAPES);
    tcase_add_test(work, forks_and_signals);
    tcase_add_test(work, a_job_of_one_rank);
    suite_add_tcase(s, work);
    tcase_add_checked_fixture(failures, setup, NULL);
    tcase_set_timeout(failures, 2 * JOB_SECONDS);
    tcase_add_loop_test(failures, a_death_ends_the_join, 0, SHAPES);
    tcase_add_loop_test(failures, a_failed_job_is_left_without_a_wait, 0, 3);
    tcase_add_loop_test(failures, a_joined_rank_that_dies_ends_the_others, 0, SHAPES);
    tcase_add_test(failures, an_engine_that_dies_ends_the_join);
    suite_add_tcase(s, failures);
    return s;
}

int main(void)
{
    return run_suite(make_suite());
}
