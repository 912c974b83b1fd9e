/* libhvd and hvd-engine together: real processes, one host or two (two engines linked over loopback). The
 * parent plays session and launcher (job.c). */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
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

/* Notes of the workers of one job for the parent and for one another. */
static struct notes {
    _Atomic uint64_t died_at;
    _Atomic uint64_t seen_at[JOB_RANKS_MAX];
    _Atomic int done[JOB_RANKS_MAX], left_init;
    char text[JOB_RANKS_MAX][512];
    uint64_t checksum[JOB_RANKS_MAX];
} * notes;

static void setup(void)
{
    notes = job_shared(sizeof *notes);
}

/* one host with 1, 2, 4 ranks; two hosts with 1 and 2 each; three with 1; two whose
 * ranks go round */
static const struct job_shape shapes[] = {{1, 1, false}, {1, 2, false}, {1, 4, false}, {2, 1, false},
                                          {2, 2, false}, {3, 1, false}, {2, 2, true}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* ---- results ------------------------------------------------------------------------------------------- */

job_unwatched static double value(int rank, size_t i)
{
    return (double)((int)((i * 31 + (size_t)rank * 17) % 101) - 50);
}

job_unwatched static double expected(hvd_op op, int size, size_t i, bool whole)
{
    double r = value(0, i);

    for (int k = 1; k < size; k++) {
        double v = value(k, i);
        r = op == HVD_MIN ? (v < r ? v : r) : op == HVD_MAX ? (v > r ? v : r) : r + v;
    }
    if (op == HVD_AVERAGE)
        r = whole ? (double)((long)r / size) : r / size;
    return r;
}

#define CHECK_TYPE(type, dtype, whole)                                                                       \
    do {                                                                                                     \
        type *a = in, *b = out;                                                                              \
        for (size_t i = 0; i < count; i++)                                                                   \
            a[i] = (type)value(rank, i);                                                                     \
        job_check(hvd_allreduce(name, in, out, count, dtype, op, NULL) == HVD_SUCCESS);                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            job_check(b[i] == (type)expected(op, hvd_size(), i, whole) &&                                    \
                      (in == out || a[i] == (type)value(rank, i)));                                          \
    } while (0)

job_unwatched static void one_allreduce(int rank, hvd_dtype dtype, hvd_op op, size_t count, void *in,
                                        void *out)
{
    char name[64];

    snprintf(name, sizeof name, "%d-%d-%zu-%d", dtype, op, count, in == out);
    if (dtype == HVD_FLOAT32)
        CHECK_TYPE(float, dtype, false);
    else if (dtype == HVD_FLOAT64)
        CHECK_TYPE(double, dtype, false);
    else if (dtype == HVD_INT32)
        CHECK_TYPE(int32_t, dtype, true);
    else
        CHECK_TYPE(int64_t, dtype, true);
}

static int all_allreduces(const struct job *job, int rank)
{
    static const hvd_dtype dtypes[] = {HVD_INT32, HVD_INT64, HVD_FLOAT32, HVD_FLOAT64};
    static const hvd_op ops[] = {HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX};
    static const size_t counts[] = {0, 1, 7, 256, 257, 5000, 70001};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS && strcmp(hvd_last_error(), "") == 0);
    job_check(hvd_rank() == rank && hvd_size() == job->hosts * job->per_host);
    job_check(hvd_local_rank() == job_local_rank(job, rank) && hvd_local_size() == job->per_host);
    job_check(hvd_cross_rank() == job_host(job, rank) && hvd_cross_size() == job->hosts);
    void *arena_in = hvd_alloc(70001 * 8), *arena_out = hvd_alloc(70001 * 8);
    void *private_in = malloc(70001 * 8 + 1), *private_out = malloc(70001 * 8 + 1);
    job_check(arena_in && arena_out && (uintptr_t)arena_in % 64 == 0);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int k = 0; k < 16; k++) {
            void *in = k & 1 ? arena_in : private_in, *out = k & 2 ? arena_out : private_out;
            hvd_dtype dtype = dtypes[(k + (int)c) % 4];
            one_allreduce(rank, dtype, ops[k / 4], counts[c], in, out);
            one_allreduce(rank, dtype, ops[k / 4], counts[c], in, in);
        }
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    job_check(!hvd_is_initialized() && hvd_rank() == HVD_ERR_NOT_INITIALIZED);
    free(private_in);
    free(private_out);
    return 0;
}

START_TEST(allreduce_is_right)
{
    job_must_succeed(job_ran(shapes[_i], all_allreduces));
}
END_TEST

static int all_broadcasts(const struct job *job, int rank)
{
    static const size_t counts[] = {1, 300, 70001};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    int32_t *arena = hvd_alloc(70001 * 4), *private = malloc(70001 * 4);
    for (int root = 0; root < hvd_size(); root++) {
        for (size_t c = 0; c < 3; c++) {
            int32_t *buffer = (root + rank + (int)c) % 2 ? arena : private; /* ranks need not do alike */
            char name[32];
            snprintf(name, sizeof name, "b%d-%zu", root, c);
            for (size_t i = 0; i < counts[c]; i++)
                buffer[i] = rank == root ? (int32_t)i * 3 + root : -1;
            job_check(hvd_broadcast(name, buffer, counts[c], HVD_INT32, root, NULL) == HVD_SUCCESS);
            for (size_t i = 0; i < counts[c]; i++)
                job_check(buffer[i] == (int32_t)i * 3 + root);
        }
        job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    }
    free(private);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(broadcast_is_right)
{
    job_must_succeed(job_ran(shapes[_i], all_broadcasts));
}
END_TEST

/* Many operations at once, begun in another order on each rank, waited for in a third. */
static int overlapping(const struct job *job, int rank)
{
    enum { MANY = 60, MOST = 40000 };
    float *buffer[MANY];
    hvd_handle handle[MANY], again;
    int size = job->hosts * job->per_host;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int t = 0; t < MANY; t++)
        buffer[t] = t % 2 ? malloc(MOST * 4) : hvd_alloc(MOST * 4);
    for (int round = 0; round < 6; round++) {
        for (int k = 0; k < MANY; k++) {
            int t = (k * 7 + rank * 13 + round) % MANY;
            size_t count = t % 3 == 0 ? 3 : t % 3 == 1 ? 700 : MOST;
            char name[16];
            snprintf(name, sizeof name, "t%d", t);
            for (size_t i = 0; i < count; i++)
                buffer[t][i] = (float)(rank + t + round + (int)(i % 10));
            job_check(hvd_allreduce_async(name, buffer[t], buffer[t], count, HVD_FLOAT32, HVD_SUM, NULL,
                                          &handle[t]) == 0);
            job_check(hvd_allreduce_async(name, buffer[t], buffer[t], count, HVD_FLOAT32, HVD_SUM, NULL,
                                          &again) == HVD_ERR_IN_PROGRESS &&
                      strstr(hvd_last_error(), name));
        }
        for (int k = 0; k < MANY; k++) {
            int t = (k * 11 + rank * 5) % MANY;
            size_t count = t % 3 == 0 ? 3 : t % 3 == 1 ? 700 : MOST;
            while (t % 4 == 0 && hvd_poll(handle[t]) == 0)
                ;
            job_check(hvd_wait(handle[t]) == HVD_SUCCESS);
            job_check(hvd_wait(handle[t]) == HVD_ERR_INVALID && hvd_poll(handle[t]) == HVD_ERR_INVALID);
            for (size_t i = 0; i < count; i++)
                job_check(buffer[t][i] ==
                          (float)(size * (t + round + (int)(i % 10)) + size * (size - 1) / 2));
        }
    }
    for (int t = 0; t < MANY; t++) {
        if (t % 2)
            free(buffer[t]);
        else
            hvd_free(buffer[t]);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(operations_overlap_in_any_order)
{
    job_must_succeed(job_ran(shapes[_i], overlapping));
}
END_TEST

/* As many as a large model has parameters, all at once. */
static int many_names(const struct job *job, int rank)
{
    enum { MANY = 10000 };
    static hvd_handle handle[MANY];
    static float x[MANY];
    int size = job->hosts * job->per_host;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 2; round++) {
        for (int t = 0; t < MANY; t++) {
            char name[32];
            snprintf(name, sizeof name, "layer.%d.weight", t);
            x[t] = (float)(rank + t);
            job_check(hvd_allreduce_async(name, &x[t], &x[t], 1, HVD_FLOAT32, HVD_SUM, NULL, &handle[t]) ==
                      HVD_SUCCESS);
        }
        for (int t = MANY; t-- > 0;)
            job_check(hvd_wait(handle[t]) == HVD_SUCCESS &&
                      x[t] == (float)(size * t + size * (size - 1) / 2));
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(ten_thousand_names_are_in_flight)
{
    job_must_succeed(job_ran(shapes[_i], many_names));
}
END_TEST

/* Rounding differs with the order of a sum: the bits must be the same on every rank, and in a second run. */
static int rounding(const struct job *job, int rank)
{
    enum { COUNT = 100003 };
    float *x = hvd_init() == 0 ? hvd_alloc(COUNT * 4) : NULL;
    uint64_t sum = 14695981039346656037u;

    (void)job;
    job_check(x != NULL);
    for (int i = 0; i < COUNT; i++)
        x[i] = 1.0f / (float)(i * 7 + rank * 3 + 1) * (rank % 2 ? 1e5f : 1e-3f);
    job_check(hvd_allreduce("x", x, x, COUNT, HVD_FLOAT32, HVD_AVERAGE, NULL) == HVD_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        sum = (sum ^ bits) * 1099511628211u;
    }
    notes->checksum[rank] = sum;
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(bits_are_the_same_on_every_rank_and_in_every_run)
{
    int ranks = shapes[_i].hosts * shapes[_i].per_host;
    uint64_t first = 0;

    for (int again = 0; again < 2; again++) {
        job_must_succeed(job_ran(shapes[_i], rounding));
        first = again ? first : notes->checksum[0];
        for (int r = 0; r < ranks; r++)
            ck_assert_uint_eq(notes->checksum[r], first);
    }
}
END_TEST

/* Large enough for several pieces of several packets. */
static int sum_large(const struct job *job, int rank)
{
    enum { COUNT = 3 << 20 };
    float *x = hvd_init() == 0 ? hvd_alloc(COUNT * sizeof *x) : NULL;
    int ranks = job->hosts * job->per_host;

    job_check(x != NULL);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)(i % 1000 + rank);
        job_check(hvd_allreduce("x", x, x, again ? COUNT : COUNT / 6, HVD_FLOAT32, HVD_SUM, NULL) ==
                  HVD_SUCCESS);
        for (int i = 0; i < (again ? COUNT : COUNT / 6); i++)
            job_check(x[i] == (float)(ranks * (i % 1000) + ranks * (ranks - 1) / 2));
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

/* Release 0.1.0 cuts tensors into other pieces. If one host does, all do. */
START_TEST(hosts_cut_tensors_alike)
{
    struct job job = {.hosts = 3, .per_host = 1, .worker = sum_large, .without_fit = _i};
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}
END_TEST

/* The others connect to the first host before it has heard how they cut. */
START_TEST(a_host_that_hears_late_cuts_as_the_others)
{
    struct job job = {.hosts = 2, .per_host = 2, .worker = sum_large, .late_ms = 300};
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}
END_TEST

/* ---- faults -------------------------------------------------------------------------------------------- */

static int mismatch(const struct job *job, int rank)
{
    float x[1000] = {0};
    int last = job->hosts * job->per_host - 1, status;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 3; round++) {
        size_t small = rank == last ? 11 : 10, large = rank == last ? 999 : 1000;
        status = hvd_allreduce("weight.7", x, x, round == 1 ? large : small, HVD_FLOAT32, HVD_SUM, NULL);
        job_check(status == HVD_ERR_MISMATCH);
        job_check(strstr(hvd_last_error(), "weight.7") && strstr(hvd_last_error(), "rank"));
        snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
        status = hvd_broadcast("root", x, 3, HVD_FLOAT32, rank == last ? 0 : last, NULL);
        job_check(status == HVD_ERR_MISMATCH && strstr(hvd_last_error(), "root"));
        job_check(hvd_allreduce("fine", x, x, 1000, HVD_FLOAT32, HVD_SUM, NULL) ==
                  HVD_SUCCESS); /* the job goes on */
        job_check(hvd_allreduce("weight.7", x, x, 10, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_mismatch_is_an_error_on_every_rank)
{
    if (shapes[_i].hosts * shapes[_i].per_host == 1)
        return;
    job_must_succeed(job_ran(shapes[_i], mismatch));
    for (int r = 0; r < shapes[_i].hosts * shapes[_i].per_host; r++)
        ck_assert_msg(strcmp(notes->text[r], notes->text[0]) == 0, "rank %d: %s; rank 0: %s", r,
                      notes->text[r], notes->text[0]);
}
END_TEST

/* The last rank dies while all others wait. */
static int die(const struct job *job, int rank)
{
    int last = job->hosts * job->per_host - 1;
    float *x = hvd_init() == 0 ? hvd_alloc(1 << 20) : NULL;
    char expect[64];
    hvd_handle handle[2];

    job_check(x != NULL);
    job_check(hvd_allreduce("before", x, x, 1000, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    if (rank == last) {
        usleep(100000); /* the others sleep by now, or spin */
        atomic_store(&notes->died_at, clock_now());
        raise(SIGKILL);
    }
    job_check(hvd_allreduce_async("small", x, x, 1, HVD_FLOAT32, HVD_SUM, NULL, &handle[0]) == HVD_SUCCESS);
    job_check(hvd_allreduce_async("large", x, x, 1 << 18, HVD_FLOAT32, HVD_SUM, NULL, &handle[1]) ==
              HVD_SUCCESS);
    job_check(hvd_wait(handle[1]) == HVD_ERR_PEER);
    atomic_store(&notes->seen_at[rank], clock_now());
    snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
    snprintf(expect, sizeof expect, "rank %d on node%d (pid ", last, job->hosts);
    job_check(strncmp(hvd_last_error(), expect, strlen(expect)) == 0);
    job_check(hvd_wait(handle[0]) == HVD_ERR_PEER);
    job_check(hvd_allreduce("later", x, x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_PEER);
    job_check(hvd_barrier(NULL) == HVD_ERR_PEER);
    job_check(strcmp(hvd_last_error(), notes->text[rank]) == 0);
    job_check(hvd_shutdown() == HVD_ERR_PEER);
    for (int again = 0; again < 2; again++) /* it may be called, and says the same */
        job_check(hvd_init() == HVD_ERR_PEER && strcmp(hvd_last_error(), notes->text[rank]) == 0 &&
                  !hvd_is_initialized());
    return 0;
}

/* The longest that a rank did not know of it. */
static double check_death(struct job job)
{
    int last = job.hosts * job.per_host - 1;
    double longest = 0;

    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    ck_assert(WIFSIGNALED(job.status[last]));
    for (int r = 0; r < last; r++) {
        double ms = (double)(notes->seen_at[r] - notes->died_at) / 1e6;
        longest = ms > longest ? ms : longest;
        ck_assert_int_eq(job.status[r], 0);
        ck_assert_msg(strstr(notes->text[r],
                             job.silent_sessions ? "without hvd_shutdown" : "killed by signal 9 (Killed)"),
                      "%s", notes->text[r]);
    }
    return longest;
}

/* Other work on the machine delays one job or another; a fault delays all. */
START_TEST(a_death_ends_every_call_and_names_the_cause)
{
    for (int silent = 0; silent < 2; silent++) {
        struct job job = job_of(shapes[_i], die);
        double limit = job.hosts == 1 ? 50 : 100, least = 1e9;
        job.silent_sessions = silent;
        if (job.hosts * job.per_host == 1)
            return;
        for (int attempt = 0; attempt < 5 && least >= limit; attempt++) {
            double ms = check_death(job);
            least = ms < least ? ms : least;
        }
        ck_assert_msg(least < limit * (getenv("CK_TIMEOUT_MULTIPLIER") ? 6 : 1), "%.1f ms", least);
    }
}
END_TEST

/* A rank ends while others are still in hvd_init, or with status 0 without hvd_shutdown. */
static int leave_early(const struct job *job, int rank)
{
    int ended = job->ctx != NULL;

    if (rank == 0 && !ended)
        return 0;
    if (ended)
        job_check(hvd_init() == HVD_SUCCESS);
    atomic_fetch_add(&notes->left_init, ended);
    if (rank == 0) {
        job_await(&notes->left_init, job->hosts * job->per_host);
        return 0;
    }
    if (ended)
        job_check(hvd_barrier(NULL) == HVD_ERR_PEER && strstr(hvd_last_error(), "rank 0 on node1") &&
                  strstr(hvd_last_error(), "exit status 0 without hvd_shutdown"));
    else
        job_check(hvd_init() == HVD_ERR_PEER && strstr(hvd_last_error(), "rank 0 on node1") &&
                  strstr(hvd_last_error(), "exit status 0") && hvd_barrier(NULL) == HVD_ERR_NOT_INITIALIZED);
    return 0;
}

START_TEST(leaving_without_a_word_is_a_death)
{
    struct job job = job_of(shapes[_i], leave_early);

    if (job.hosts * job.per_host == 1)
        return;
    job_run(&job, JOB_SECONDS);
    ck_assert(job_succeeded(&job));
    job.ctx = &job;
    /* The engine waits 20 ms for the status; other work on the machine delays it in one job or another. */
    for (int attempt = 0; attempt == 0 || (attempt < 5 && !job_succeeded(&job)); attempt++) {
        atomic_store(&notes->left_init, 0);
        job_run(&job, JOB_SECONDS);
    }
    ck_assert(job_succeeded(&job));
}
END_TEST

/* Rank 1 polls, rank 2 waits, rank 0 comes when the engine is dead. A rank that has heard of the end begins
 * nothing more. */
static int lose_engine(const struct job *job, int rank)
{
    float x = 0;
    hvd_handle h;
    int polled = 0;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        job_await_fault(job);
        job_check(hvd_allreduce_async("y", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) ==
                  HVD_ERR_ENGINE); /* a new name */
        job_check(hvd_barrier(NULL) == HVD_ERR_ENGINE);
        return 0;
    }
    job_check(hvd_allreduce_async("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) == HVD_SUCCESS);
    job_ready(job);
    while (rank == 1 && (polled = hvd_poll(h)) == 0)
        ;
    job_check(rank == 2 || polled == 1);
    job_check(hvd_wait(h) == HVD_ERR_ENGINE && strstr(hvd_last_error(), "engine has gone"));
    job_check(hvd_broadcast_async("x", &x, 1, HVD_FLOAT32, 0, NULL, &h) == HVD_ERR_ENGINE &&
              strstr(hvd_last_error(), "nothing can begin"));
    return 0;
}

START_TEST(a_killed_engine_ends_every_wait)
{
    struct job job = {
        .hosts = 1, .per_host = 3, .worker = lose_engine, .fault = JOB_KILL_ENGINE, .fault_after = 3};

    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r < 3; r++)
        ck_assert_int_eq(job.status[r], 0);
}
END_TEST

/* Rank 0 polls, rank 1 waits, rank 2 does not come, and the engine does not move. */
static int stopped_engine(const struct job *job, int rank)
{
    float x = 0;
    hvd_handle h;
    int polled = 0;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 2) {
        job_ready(job); /* an engine that stops before has not answered this rank's hvd_init */
        while (atomic_load(&notes->done[0]) + atomic_load(&notes->done[1]) < 2)
            usleep(10000);
        return 0;
    }
    job_check(hvd_allreduce_async("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) == HVD_SUCCESS);
    job_ready(job);
    while (rank == 0 && (polled = hvd_poll(h)) == 0)
        usleep(1000);
    job_check(rank == 1 || polled == 1);
    job_check(hvd_wait(h) == HVD_ERR_ENGINE && strstr(hvd_last_error(), "does not move"));
    atomic_store(&notes->done[rank], 1);
    return 0;
}

START_TEST(a_stopped_engine_ends_every_wait)
{
    struct job job = {
        .hosts = 1, .per_host = 3, .worker = stopped_engine, .fault = JOB_FREEZE_ENGINE, .fault_after = 3};

    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r < 3; r++)
        ck_assert_int_eq(job.status[r], 0);
}
END_TEST

/* The engine of node2 has nowhere to put what leaves its host, or what comes. */
static int starved_engine(const struct job *job, int rank)
{
    enum { ROWS = 2 << 20 };
    int32_t *in = hvd_init() == 0 ? hvd_alloc(ROWS * 4) : NULL, *out = in ? hvd_alloc(ROWS * 4) : NULL;
    size_t got[2];
    hvd_handle h;

    (void)rank;
    job_check(in && out);
    job_check(hvd_allreduce("map", in, out, ROWS, HVD_INT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(hvd_alltoall("x", in, 2, NULL, 1, HVD_INT32, out, ROWS, got, NULL) == HVD_SUCCESS);
    job_await_fault(job);
    job_check(hvd_alltoall_async("x", in, ROWS, NULL, 1, HVD_INT32, out, ROWS, got, NULL, &h) == HVD_SUCCESS);
    job_check(hvd_wait(h) == HVD_ERR_ENGINE && strstr(hvd_last_error(), "engine of node2") &&
              strstr(hvd_last_error(), "no memory"));
    return 0;
}

START_TEST(an_engine_without_memory_says_so_everywhere)
{
    struct job job = {
        .hosts = 2, .per_host = 1, .worker = starved_engine, .fault = JOB_STARVE_ENGINE, .fault_after = 2};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return; /* these end a process that gets no memory */
#endif
    if (is_emulated()) /* the emulator has memory of its own */
        return;
    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(job.status[r], 0);
}
END_TEST

static int lose_host(const struct job *job, int rank)
{
    float x = 0;
    int status;

    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_ready(job);
    while ((status = hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL)) == HVD_SUCCESS)
        usleep(1000);
    if (rank < job->per_host)
        job_check(status == HVD_ERR_PEER && (strstr(hvd_last_error(), "node2")));
    return 0;
}

START_TEST(a_frozen_host_is_lost)
{
    struct job job = {
        .hosts = 2, .per_host = 1, .worker = lose_host, .fault = JOB_FREEZE_ENGINE, .fault_after = 2};

    job_run(&job, JOB_SECONDS);
    ck_assert_int_eq(job.status[0], 0);
    ck_assert_int_eq(job.status[1], 0);
    ck_assert(job.fault_at && clock_now() - job.fault_at < 25 * NSEC_PER_SEC);
}
END_TEST

/* ---- one process --------------------------------------------------------------------------------------- */

static int forks(const struct job *job, int rank)
{
    float x = 0;
    int status;

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_FORKED &&
                  hvd_barrier(NULL) == HVD_ERR_FORKED && hvd_rank() == HVD_ERR_FORKED &&
                  hvd_init() == HVD_ERR_FORKED && hvd_shutdown() == HVD_ERR_FORKED && hvd_alloc(10) == NULL &&
                  hvd_poll(5) == HVD_ERR_FORKED && strstr(hvd_last_error(), "fork");
        _exit(ok ? 0 : 1);
    }
    job_check(waitpid(pid, &status, 0) == pid && status == 0);
    job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) ==
              HVD_SUCCESS); /* the parent goes on */
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_child_may_not_call)
{
    job_must_succeed(job_ran((struct job_shape){1, 2, false}, forks));
}
END_TEST

static int bad_arguments(const struct job *job, int rank)
{
    float x[4] = {0};
    char name[300];
    hvd_handle h;

    (void)job, (void)rank;
    job_check(hvd_barrier(NULL) == HVD_ERR_NOT_INITIALIZED && hvd_shutdown() == HVD_ERR_NOT_INITIALIZED);
    job_check(hvd_alloc(1) == NULL && !hvd_is_initialized());
    job_check(hvd_init() == HVD_SUCCESS && hvd_init() == HVD_SUCCESS && hvd_is_initialized());
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    job_check(hvd_allreduce(name, x, x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_INVALID);
    name[255] = '\0';
    job_check(hvd_allreduce(name, x, x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(hvd_allreduce("", x, x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce(NULL, x, x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, x + 1, 3, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", NULL, x, 3, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, x, SIZE_MAX / 2, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, x, 1, (hvd_dtype)13, HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, x, 1, (hvd_dtype)(256 + HVD_INT32), HVD_SUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, x, 1, HVD_INT32, (hvd_op)12, NULL) == HVD_ERR_INVALID);
    job_check(hvd_broadcast("a", x, 1, HVD_INT32, -1, NULL) == HVD_ERR_INVALID);
    job_check(hvd_broadcast("a", x, 1, HVD_INT32, hvd_size(), NULL) == HVD_ERR_INVALID);
    job_check(hvd_allreduce_async("a", x, x, 1, HVD_INT32, HVD_SUM, NULL, NULL) == HVD_ERR_INVALID);
    job_check(hvd_wait(0) == HVD_ERR_INVALID && hvd_poll(-5) == HVD_ERR_INVALID &&
              hvd_wait(1 << 30) == HVD_ERR_INVALID);
    job_check(hvd_allreduce_async("a", x, x, 0, HVD_INT32, HVD_SUM, NULL, &h) == HVD_SUCCESS &&
              hvd_wait(h) == HVD_SUCCESS);
    job_check(hvd_alloc(SIZE_MAX) == NULL && hvd_alloc((size_t)1 << 60) == NULL);
    hvd_free(NULL);
    hvd_free(x); /* not ours: nothing happens */
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(bad_arguments_start_nothing)
{
    job_must_succeed(job_ran((struct job_shape){1, 2, false}, bad_arguments));
}
END_TEST

static int allocations(const struct job *job, int rank)
{
    char *block[64] = {0};

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 2000; round++) {
        int k = (round * 29) % 64;
        size_t bytes = (size_t)(round * 7919) % 300000 + 1;
        if (block[k]) {
            hvd_free(block[k]);
            block[k] = NULL;
            continue;
        }
        block[k] = hvd_alloc(bytes);
        job_check(block[k] && (uintptr_t)block[k] % 64 == 0);
        for (size_t i = 0; i < bytes; i += 97)
            job_check(block[k][i] == 0);
        job_check(block[k][bytes - 1] == 0);
        memset(block[k], 0x5a, bytes);
    }
    char *huge = hvd_alloc(200 << 20);
    job_check(huge && huge[0] == 0 && huge[(200 << 20) - 1] == 0);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(allocations_are_zeroed_and_apart)
{
    job_must_succeed(job_ran((struct job_shape){1, 1, false}, allocations));
}
END_TEST

static void *thread_main(void *arg)
{
    int which = *(int *)arg;
    char name[16];

    snprintf(name, sizeof name, "thread%d", which);
    for (int i = 0; i < 300; i++) {
        double x[600];
        size_t count = i % 2 ? 600 : 2;
        for (size_t k = 0; k < count; k++)
            x[k] = hvd_rank() + which;
        job_check(hvd_allreduce(name, x, x, count, HVD_FLOAT64, HVD_MAX, NULL) == HVD_SUCCESS);
        job_check(x[0] == hvd_size() - 1 + which && x[count - 1] == x[0]);
        if (i % 50 == 0)
            job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    }
    return NULL;
}

static int many_threads(const struct job *job, int rank)
{
    pthread_t thread[3];
    int which[3] = {0, 1, 2};

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < 3; i++)
        job_check(pthread_create(&thread[i], NULL, thread_main, &which[i]) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(threads_may_call)
{
    job_must_succeed(job_ran(shapes[_i], many_threads));
}
END_TEST

/* While one thread starts and ends operations of a name, another one starts many, each time looking after all
 * that are pending: that may not be taken for a pending operation. */
enum { LOOKED_ELEMENTS = 600, LOOKED_SECONDS = 4 };

static uint64_t looked_until;

/* The first element is 1 when this rank has had enough: all see the sum, and end at the same operation. */
static void look_begin(const char *name, float *x, hvd_handle *handle)
{
    x[0] = clock_now() > looked_until;
    job_check(hvd_allreduce_async(name, x, x, LOOKED_ELEMENTS, HVD_FLOAT32, HVD_SUM, NULL, handle) ==
              HVD_SUCCESS);
}

static void *looking(void *arg)
{
    static float x[4][LOOKED_ELEMENTS];
    static const char *const name[] = {"look0", "look1", "look2", "look3"};
    hvd_handle handle[4];

    (void)arg;
    do {
        for (int k = 0; k < 4; k++)
            look_begin(name[k], x[k], &handle[k]);
        for (int k = 0; k < 4; k++)
            job_check(hvd_wait(handle[k]) == HVD_SUCCESS);
    } while (x[0][0] == 0);
    return NULL;
}

static int looked_at(const struct job *job, int rank)
{
    static float x[LOOKED_ELEMENTS];
    pthread_t thread;
    hvd_handle handle;

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    looked_until = clock_now() + LOOKED_SECONDS * NSEC_PER_SEC;
    job_check(pthread_create(&thread, NULL, looking, NULL) == 0);
    do {
        look_begin("free", x, &handle);
        job_check(hvd_wait(handle) == HVD_SUCCESS);
    } while (x[0] == 0);
    pthread_join(thread, NULL);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_name_that_is_only_looked_at_is_free)
{
    job_must_succeed(job_ran((struct job_shape){1, 2, false}, looked_at));
}
END_TEST

/* Without hvdrun. */
START_TEST(alone)
{
    float x[3] = {1, 2, 3}, y[3] = {0};
    hvd_handle h, again;

    setenv("WORLD_SIZE", "4", 1);
    ck_assert_int_eq(hvd_init(), HVD_ERR_SYSTEM);
    ck_assert_ptr_nonnull(strstr(hvd_last_error(), "hvdrun -np 4"));
    setenv("WORLD_SIZE", "1", 1);
    ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
    ck_assert(hvd_rank() == 0 && hvd_size() == 1 && hvd_local_size() == 1 && hvd_cross_size() == 1);
    ck_assert_int_eq(hvd_allreduce_async("x", x, y, 3, HVD_FLOAT32, HVD_AVERAGE, NULL, &h), HVD_SUCCESS);
    ck_assert_int_eq(hvd_allreduce_async("x", x, y, 3, HVD_FLOAT32, HVD_AVERAGE, NULL, &again),
                     HVD_ERR_IN_PROGRESS);
    ck_assert_int_eq(hvd_poll(h), 1);
    ck_assert_int_eq(hvd_wait(h), HVD_SUCCESS);
    ck_assert(y[0] == 1 && y[2] == 3);
    ck_assert_int_eq(hvd_broadcast("x", x, 3, HVD_FLOAT32, 0, NULL), HVD_SUCCESS);
    char *memory = hvd_alloc(1000);
    ck_assert(memory && memory[999] == 0);
    ck_assert_int_eq(hvd_barrier(NULL), HVD_SUCCESS);
    ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
    ck_assert_int_eq(hvd_init(), HVD_SUCCESS); /* and again */
    ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
    ck_assert_str_eq(hvd_status_name(HVD_ERR_PEER), "HVD_ERR_PEER");
    ck_assert_str_eq(hvd_status_name(-1000), "unknown status");
}
END_TEST

static int stranger(const struct job *job, int rank)
{
    (void)job;
    if (rank == 1) {
        char right[64];
        snprintf(right, sizeof right, "%s", getenv("HVD_JOB_TOKEN"));
        setenv("HVD_JOB_TOKEN", "00112233445566778899aabbccddeeff", 1);
        job_check(hvd_init() == HVD_ERR_SYSTEM && strstr(hvd_last_error(), "HVD_JOB_TOKEN"));
        setenv("HVD_JOB_TOKEN", "zz", 1);
        job_check(hvd_init() == HVD_ERR_SYSTEM);
        setenv("HVD_JOB_TOKEN", right, 1);
        setenv("HVD_EPOCH", "8", 1);
        job_check(hvd_init() == HVD_ERR_SYSTEM && strstr(hvd_last_error(), "HVD_EPOCH"));
        setenv("HVD_EPOCH", "7", 1);
        setenv("HVD_RANK", "x1", 1);
        job_check(hvd_init() == HVD_ERR_SYSTEM && strstr(hvd_last_error(), "HVD_RANK is \"x1\""));
        setenv("HVD_RANK", "1", 1);
    }
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(strangers_are_refused)
{
    job_must_succeed(job_ran((struct job_shape){1, 2, false}, stranger));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collectives");
    TCase *tc = tcase_create("collectives"), *threads = tcase_create("threads"),
          *engines = tcase_create("engines");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 90);
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_loop_test(tc, allreduce_is_right, 0, SHAPES);
    tcase_add_loop_test(tc, broadcast_is_right, 0, SHAPES);
    tcase_add_loop_test(tc, operations_overlap_in_any_order, 0, SHAPES);
    tcase_add_loop_test(tc, ten_thousand_names_are_in_flight, 1, 4);
    tcase_add_loop_test(tc, bits_are_the_same_on_every_rank_and_in_every_run, 1, SHAPES);
    tcase_add_loop_test(tc, hosts_cut_tensors_alike, 0, 3);
    tcase_add_test(tc, a_host_that_hears_late_cuts_as_the_others);
    tcase_add_loop_test(tc, a_mismatch_is_an_error_on_every_rank, 1, SHAPES);
    tcase_add_loop_test(tc, a_death_ends_every_call_and_names_the_cause, 1, SHAPES);
    tcase_add_loop_test(tc, leaving_without_a_word_is_a_death, 1, SHAPES);
    tcase_add_test(tc, a_child_may_not_call);
    tcase_add_test(tc, bad_arguments_start_nothing);
    tcase_add_test(tc, allocations_are_zeroed_and_apart);
    tcase_add_test(tc, alone);
    tcase_add_test(tc, strangers_are_refused);
    suite_add_tcase(suite, tc);
    tcase_set_timeout(engines, 90);
    tcase_add_checked_fixture(engines, setup, NULL);
    tcase_add_test(engines, a_killed_engine_ends_every_wait);
    tcase_add_test(engines, a_stopped_engine_ends_every_wait);
    tcase_add_test(engines, a_frozen_host_is_lost);
    tcase_add_test(engines, an_engine_without_memory_says_so_everywhere);
    suite_add_tcase(suite, engines);
    tcase_set_timeout(threads, 90);
    tcase_add_checked_fixture(threads, setup, NULL);
    tcase_add_loop_test(threads, threads_may_call, 1, SHAPES - 1);
    tcase_add_test(threads, a_name_that_is_only_looked_at_is_free);
    suite_add_tcase(suite, threads);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
