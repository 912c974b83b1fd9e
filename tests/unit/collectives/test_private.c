/* Allreduces of memory that only its own rank sees, on one host: real processes and a real engine. Ranks come
 * in different orders, wait or not, and some have shared memory. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"

#define TENSORS 24
#define ROUNDS  3

/* Elements: around a cache line, a chunk, a piece, and several pieces with something over. */
static const size_t counts[] = {513, 4099, 16384, 65536, 100003, 131073, 400001, 1200007};
#define COUNTS (sizeof counts / sizeof *counts)

/* Sums of these are rounded: another order of ranks has other bits. */
job_unwatched static float value(int rank, size_t tensor, size_t i)
{
    return 1.0f / (float)(1 + (i * 7 + tensor * 13 + (size_t)rank * 29) % 1009);
}

struct tensor {
    char name[16];
    size_t number, count;
    void *block, *out_block;
    char *in, *out;
    bool shared, ended;
    hvd_handle handle;
};

job_unwatched static void make(struct tensor *t, size_t number, int round, int rank)
{
    unsigned form = (unsigned)(number + (size_t)round * 5);
    size_t bytes, odd = form % 4 == 1 ? 3 : 0;

    t->number = number;
    t->count = counts[number % COUNTS];
    t->shared = (form + (unsigned)rank) % 7 == 0;
    bytes = t->count * sizeof(float) + 8;
    snprintf(t->name, sizeof t->name, "t%zu", number);
    t->block = t->shared ? hvd_alloc(bytes) : malloc(bytes);
    t->out_block = form % 3 == 0 ? malloc(bytes) : NULL;
    job_check(t->block && (t->out_block || form % 3));
    t->in = (char *)t->block + odd;
    t->out = t->out_block ? (char *)t->out_block + odd : t->in;
    for (size_t i = 0; i < t->count; i++) {
        float x = value(rank, number, i);
        memcpy(t->in + i * sizeof x, &x, sizeof x);
    }
}

job_unwatched static void verify(const struct tensor *t, int rank)
{
    int size = hvd_size();

    for (size_t i = 0; i < t->count; i++) {
        float want = value(0, t->number, i), got, given, mine = value(rank, t->number, i);
        for (int r = 1; r < size; r++)
            want += value(r, t->number, i);
        memcpy(&got, t->out + i * sizeof got, sizeof got);
        memcpy(&given, t->in + i * sizeof given, sizeof given);
        job_check(got == want);
        job_check(t->in == t->out || given == mine);
    }
}

static void release(struct tensor *t)
{
    if (t->shared)
        hvd_free(t->block);
    else
        free(t->block);
    free(t->out_block);
}

/* Each rank starts and ends them in an order of its own, by waiting or by polling. */
static void all_at_once(struct tensor *t, int round, int rank)
{
    size_t step = rank % 2 ? 7 : 5, left = TENSORS;

    for (size_t k = 0; k < TENSORS; k++) {
        struct tensor *x = &t[(k * (round == 1 ? step : 1) + (size_t)rank) % TENSORS];
        job_check(
            !hvd_allreduce_async(x->name, x->in, x->out, x->count, HVD_FLOAT32, HVD_SUM, NULL, &x->handle));
        x->ended = false;
    }
    while (round == 2 && left > 0)
        for (size_t k = 0; k < TENSORS; k++)
            if (!t[k].ended && hvd_poll(t[k].handle) == 1) {
                t[k].ended = true;
                left--;
            }
    for (size_t k = 0; k < TENSORS; k++) {
        size_t i = rank % 2 ? TENSORS - 1 - k : k;
        job_check(hvd_wait(t[i].handle) == HVD_SUCCESS);
    }
}

/* Some ranks call what blocks, others wait for a handle a little later. */
static void one_by_one(struct tensor *t, int round, int rank)
{
    for (size_t k = 0; k < TENSORS; k++) {
        if ((k + (size_t)round) % 3 && (k + (size_t)rank) % 2) {
            job_check(!hvd_allreduce_async(t[k].name, t[k].in, t[k].out, t[k].count, HVD_FLOAT32, HVD_SUM,
                                           NULL, &t[k].handle));
            job_check(hvd_wait(t[k].handle) == HVD_SUCCESS);
        } else {
            job_check(hvd_allreduce(t[k].name, t[k].in, t[k].out, t[k].count, HVD_FLOAT32, HVD_SUM, NULL) ==
                      HVD_SUCCESS);
        }
    }
}

static int sums(const struct job *job, int rank)
{
    struct tensor t[TENSORS];

    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t k = 0; k < TENSORS; k++)
            make(&t[k], k, round, rank);
        if (job->ctx)
            one_by_one(t, round, rank);
        else
            all_at_once(t, round, rank);
        for (size_t k = 0; k < TENSORS; k++) {
            verify(&t[k], rank);
            release(&t[k]);
        }
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

static void run(int ranks, bool in_turn)
{
    struct job job = job_of((struct job_shape){1, ranks, false}, sums);

    job.ctx = in_turn ? &job : NULL;
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}

START_TEST(many_at_once_in_any_order)
{
    run(_i, false);
}
END_TEST

START_TEST(blocking_and_not_belong_together)
{
    run(_i, true);
}
END_TEST

/* A rank that waits with private memory has to copy it when a rank with shared memory arrives: it must hear
 * of that. */
job_unwatched static int late_and_shared(const struct job *job, int rank)
{
    enum { COUNT = 300000, TIMES = 20, SLEEP_MS = 250 };
    bool late = rank == job->per_host - 1;
    int slow = 0;
    float *block;

    job_check(hvd_init() == HVD_SUCCESS);
    block = late ? hvd_alloc(COUNT * sizeof *block) : calloc(COUNT, sizeof *block);
    job_check(block != NULL);
    job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    for (int k = 0; k < TIMES; k++) {
        uint64_t since = clock_now();
        if (late)
            usleep(5000); /* the others sleep */
        for (size_t i = 0; i < COUNT; i++)
            block[i] = 1;
        job_check(hvd_allreduce("x", block, block, COUNT, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(block[COUNT - 1] == (float)job->per_host);
        job_check(hvd_broadcast("y", block, COUNT, HVD_FLOAT32, 0, NULL) == HVD_SUCCESS);
        slow += clock_now() - since >= SLEEP_MS * NSEC_PER_MSEC;
    }
    job_check(slow * 3 < TIMES); /* a busy machine is slow now and then */
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(who_has_to_copy_is_woken)
{
    job_must_succeed(job_ran((struct job_shape){1, _i, false}, late_and_shared));
}
END_TEST

/* The last to come, or somebody else, says something else: all hear of it, and no input is changed. */
static int disagree(const struct job *job, int rank)
{
    enum { COUNT = 300000 };
    struct tensor t;
    int last = job->per_host - 1;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < 8; k++) {
        bool odd_one = rank == (k & 1 ? last : 0), late = k & 2 && rank == last;
        make(&t, COUNTS - 1, 1, rank); /* with an output of its own */
        job_check(t.out != t.in);
        t.count = odd_one ? COUNT - 1 : COUNT;
        if (late)
            usleep(20000);
        if (k & 4)
            job_check(hvd_allreduce("odd", t.in, t.out, t.count, HVD_FLOAT32, HVD_SUM, NULL) ==
                      HVD_ERR_MISMATCH);
        else
            job_check(
                !hvd_allreduce_async("odd", t.in, t.out, t.count, HVD_FLOAT32, HVD_SUM, NULL, &t.handle) &&
                hvd_wait(t.handle) == HVD_ERR_MISMATCH);
        job_check(strstr(hvd_last_error(), "299999") && strstr(hvd_last_error(), "300000"));
        for (size_t i = 0; i < COUNT; i++) {
            float x, mine = value(rank, COUNTS - 1, i);
            memcpy(&x, t.in + i * sizeof x, sizeof x);
            job_check(x == mine);
        }
        release(&t);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(disagreement_changes_no_input)
{
    job_must_succeed(job_ran((struct job_shape){1, _i, false}, disagree));
}
END_TEST

/* The last rank is killed in the middle of something: some time after all others have ended hvd_init. */
struct death {
    int way;
    _Atomic int started;
};

static int die(const struct job *job, int rank)
{
    enum { COUNT = 3000001 };
    float *x[2] = {calloc(COUNT, sizeof(float)), calloc(COUNT, sizeof(float))};
    struct death *death = job->ctx;
    int way = death->way, status = HVD_SUCCESS;
    hvd_handle h[2] = {0, 0};

    job_check(x[0] && x[1] && hvd_init() == HVD_SUCCESS);
    if (rank < job->per_host - 1) {
        atomic_fetch_add(&death->started, 1);
    } else {
        job_await(&death->started, job->per_host - 1);
        signal(SIGALRM, SIG_DFL); /* not the handler of the test program */
        struct itimerval soon = {.it_value = {0, 15000 + 7000 * way}};
        job_check(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    }
    while (status == HVD_SUCCESS && way & 1)
        status = hvd_allreduce("x", x[0], x[0], COUNT, HVD_FLOAT32, HVD_SUM, NULL);
    while (status == HVD_SUCCESS) {
        for (int k = 0; k < 2 && status == HVD_SUCCESS; k++)
            status = hvd_allreduce_async(k ? "y" : "x", x[k], x[k], COUNT, HVD_FLOAT32, HVD_SUM, NULL, &h[k]);
        for (int k = 0; k < 2 && status == HVD_SUCCESS; k++)
            status = hvd_wait(h[k ^ (rank & 1)]);
    }
    job_check(status == HVD_ERR_PEER && strstr(hvd_last_error(), "on node1"));
    job_check(hvd_shutdown() == HVD_ERR_PEER);
    free(x[0]);
    free(x[1]);
    return 0;
}

START_TEST(a_death_in_the_middle)
{
    struct death *death = job_shared(sizeof *death);
    struct job job = {.hosts = 1, .per_host = 2 + _i / 4 % 2, .worker = die, .ctx = death};

    death->way = _i;
    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r + 1 < job.per_host; r++)
        ck_assert_int_eq(job.status[r], 0);
    ck_assert(WIFSIGNALED(job.status[job.per_host - 1]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("private");
    TCase *tc = tcase_create("private");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, many_at_once_in_any_order, 2, 5);
    tcase_add_loop_test(tc, blocking_and_not_belong_together, 2, 5);
    tcase_add_loop_test(tc, who_has_to_copy_is_woken, 2, 4);
    tcase_add_loop_test(tc, disagreement_changes_no_input, 2, 4);
    tcase_add_loop_test(tc, a_death_in_the_middle, 0, 8);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
