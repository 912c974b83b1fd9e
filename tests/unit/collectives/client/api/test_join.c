/* hvd_join: real processes and engines, on one host and on several (job.c). */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

#define SECONDS 30
#define LARGE   (300u << 10) /* elements */
#define EPOCHS  4

static struct notes {
    _Atomic int go;
    _Atomic uint64_t died_at;
    char text[JOB_RANKS_MAX][512];
} * notes;

static void setup(void)
{
    notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(notes, MAP_FAILED);
}

static const struct {
    int hosts, per_host;
} shapes[] = {{1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 2}, {3, 2}, {4, 1}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* `epochs`: how often each rank calls hvd_shutdown. */
static void must_succeed(int shape, int epochs, int (*worker)(const struct job *, int))
{
    struct job job = {.hosts = shapes[shape].hosts, .per_host = shapes[shape].per_host, .worker = worker};

    job_run(&job, SECONDS);
    ck_assert(job_succeeded(&job));
    ck_assert_int_eq(job.shut_down, epochs * job.hosts * job.per_host);
}

static void pause_ms(unsigned ms)
{
    usleep(ms * 1000);
}

/* Returns when all others have joined: it would not end before. */
static void await_others(void)
{
    float in = 1, out = 0;

    job_check(hvd_allreduce("alone", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS && out == 1);
}

/* The last one gets there later than the others, by the clock too, which is read in milliseconds. */
static void join_after(int rank, int last)
{
    int got = -1;

    if (rank == last) {
        await_others();
        pause_ms(2);
    }
    job_check(hvd_join(&got) == HVD_SUCCESS);
    job_check(got == last);
}

/* ---- uneven work --------------------------------------------------------------------------------------- */

job_unwatched static float value(int rank, size_t i)
{
    return (float)(i % 61) + 100.0f * (float)(rank + 1);
}

job_unwatched static float sum(const bool *works, int size, size_t i)
{
    float s = 0;

    for (int r = 0; r < size; r++)
        s += works[r] ? value(r, i) : 0;
    return s;
}

struct buffers {
    float *small, *mine, *out, *arena, *arena_out;
    hvd_handle persistent;
    float persistent_out[7];
};

job_unwatched static void make_buffers(struct buffers *b, int rank)
{
    b->small = malloc(7 * sizeof *b->small);
    b->mine = malloc(LARGE * sizeof(float));
    b->out = malloc(LARGE * sizeof(float));
    b->arena = hvd_alloc(LARGE * sizeof(float));
    b->arena_out = hvd_alloc(LARGE * sizeof(float));
    for (size_t i = 0; i < LARGE; i++)
        b->mine[i] = b->arena[i] = value(rank, i);
    for (size_t i = 0; i < 7; i++)
        b->small[i] = value(rank, i);
    job_check(hvd_allreduce_init("persistent", b->small, b->persistent_out, 7, HVD_FLOAT32, HVD_SUM, NULL,
                                 &b->persistent) == HVD_SUCCESS);
}

static void free_buffers(struct buffers *b)
{
    job_check(hvd_handle_free(b->persistent) == HVD_SUCCESS);
    free(b->small);
    free(b->mine);
    free(b->out);
    hvd_free(b->arena);
    hvd_free(b->arena_out);
}

job_unwatched static void check_sum(const float *out, size_t count, const bool *works, int size,
                                    float divisor)
{
    for (size_t i = 0; i < count; i++)
        if (out[i] != sum(works, size, i) / divisor)
            fprintf(stderr, "element %zu is %g, not %g\n", i, out[i], sum(works, size, i) / divisor);
    for (size_t i = 0; i < count; i++)
        job_check(out[i] == sum(works, size, i) / divisor);
}

/* One step of those ranks that have one, everything in flight together. */
static void step(struct buffers *b, const bool *works, int size, int number)
{
    hvd_handle h[40];
    const void *shared[2];
    float few[7], one[20][7], many[3][7], scaled[7];
    char name[32];
    int n = 0;

    job_check(hvd_allreduce_async("large", b->mine, b->out, LARGE, HVD_FLOAT32, HVD_SUM, NULL, &h[n++]) == 0);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "small.%d", i);
        job_check(hvd_allreduce_async(name, b->small, one[i], 7, HVD_FLOAT32, HVD_SUM, NULL, &h[n++]) == 0);
    }
    const void *in[3] = {b->small, b->small, b->small};
    void *out[3] = {many[0], many[1], many[2]};
    size_t counts[3] = {7, 5, 7};
    job_check(hvd_grouped_allreduce_async("group", 3, in, out, counts, HVD_FLOAT32, HVD_SUM, NULL, &h[n++]) ==
              0);
    job_check(hvd_allreduce_shared_async("shared", b->small, 7, HVD_FLOAT32, HVD_SUM, NULL, &shared[0],
                                         &h[n++]) == 0);
    job_check(hvd_allreduce_shared_async("shared.large", b->arena, LARGE, HVD_FLOAT32, HVD_SUM, NULL,
                                         &shared[1], &h[n++]) == 0);
    hvd_options o = {.prescale = 0.5, .postscale = 4};
    job_check(hvd_allreduce_async("scaled", b->small, scaled, 7, HVD_FLOAT32, HVD_SUM, &o, &h[n++]) == 0);
    job_check(hvd_start(b->persistent) == HVD_SUCCESS);
    snprintf(name, sizeof name, "of step %d", number); /* those that have joined have never heard of it */
    job_check(hvd_allreduce(name, b->small, few, 7, HVD_FLOAT32, HVD_AVERAGE, NULL) == HVD_SUCCESS);
    check_sum(few, 7, works, size, (float)size);
    job_check(hvd_allreduce("blocking", b->arena, b->arena_out, LARGE, HVD_FLOAT32, HVD_SUM, NULL) == 0);
    check_sum(b->arena_out, LARGE, works, size, 1);
    for (int i = 0; i < n; i++)
        job_check(hvd_wait(h[i]) == HVD_SUCCESS);
    job_check(hvd_wait(b->persistent) == HVD_SUCCESS);
    check_sum(b->out, LARGE, works, size, 1);
    check_sum(b->persistent_out, 7, works, size, 1);
    for (int i = 0; i < 20; i++)
        check_sum(one[i], 7, works, size, 1);
    for (int i = 0; i < 3; i++)
        check_sum(many[i], counts[i], works, size, 1);
    check_sum(shared[0], 7, works, size, 1);
    check_sum(shared[1], LARGE, works, size, 1);
    check_sum(scaled, 7, works, size, 0.5f);
    job_check(hvd_allreduce("stream", b->mine, b->out, LARGE, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    check_sum(b->out, LARGE, works, size, 1);
}

static void steps_then_join(struct buffers *b, const int *steps, int rank, int size, int last)
{
    for (int k = 0; k < steps[rank]; k++) {
        bool works[JOB_RANKS_MAX];
        for (int r = 0; r < size; r++)
            works[r] = steps[r] > k;
        step(b, works, size, k);
    }
    join_after(rank, last);
}

static int uneven(const struct job *job, int rank)
{
    int steps[JOB_RANKS_MAX] = {0}, size = job->hosts * job->per_host;
    struct buffers b;

    job_check(hvd_init() == HVD_SUCCESS);
    make_buffers(&b, rank);
    for (int r = 0; r < size; r++)
        steps[r] = 1 + r;
    steps_then_join(&b, steps, rank, size, size - 1);
    for (int r = 0; r < size; r++) /* the next join, in another order, one rank without any work */
        steps[r] = size - 1 - r;
    steps_then_join(&b, steps, rank, size, 0);
    for (int r = 0; r < size; r++) /* whole hosts at once: they hear of it from others only */
        steps[r] = r < job->per_host ? 6 : 0;
    steps_then_join(&b, steps, rank, size, 0);
    join_after(rank, size / 2); /* nobody has any */
    job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    free_buffers(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(ranks_with_uneven_work)
{
    must_succeed(_i, 1, uneven);
}
END_TEST

/* ---- in flight ----------------------------------------------------------------------------------------- */

/* The first rank begins and does not wait, the others follow late and go on with the same names. */
static int in_flight(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    float *in = malloc(LARGE * sizeof *in), *out = malloc(LARGE * sizeof *out), few[3], again[3];
    bool all[JOB_RANKS_MAX], others[JOB_RANKS_MAX], other[JOB_RANKS_MAX];
    hvd_handle h[2], alone;

    for (int r = 0; r < size; r++) {
        all[r] = true;
        others[r] = r > 0;
        other[r] = r == 0;
    }
    for (size_t i = 0; i < LARGE; i++)
        in[i] = value(rank, i);
    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 3; round++) {
        if (rank > 0)
            pause_ms(10);
        if (rank == 0) /* of which nobody else knows: the others give zeros when they have joined */
            job_check(hvd_allreduce_async("alone", in, again, 3, HVD_FLOAT32, HVD_SUM, NULL, &alone) == 0);
        job_check(hvd_allreduce_async("few", in, few, 3, HVD_FLOAT32, HVD_SUM, NULL, &h[0]) == 0);
        job_check(hvd_allreduce_async("many", in, out, LARGE, HVD_FLOAT32, HVD_SUM, NULL, &h[1]) == 0);
        if (rank > 0) {
            for (int i = 0; i < 2; i++)
                job_check(hvd_wait(h[i]) == HVD_SUCCESS);
            check_sum(few, 3, all, size, 1);
            check_sum(out, LARGE, all, size, 1);
            for (int k = 0; k < 2; k++) {
                job_check(hvd_allreduce("few", in, again, 3, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
                check_sum(again, 3, others, size, 1);
                job_check(hvd_allreduce("many", in, out, LARGE, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
                check_sum(out, LARGE, others, size, 1);
            }
        }
        job_check(hvd_join(NULL) == HVD_SUCCESS);
        if (rank == 0) {
            for (int i = 0; i < 2; i++)
                job_check(hvd_poll(h[i]) == 1 && hvd_wait(h[i]) == HVD_SUCCESS);
            job_check(hvd_wait(alone) == HVD_SUCCESS);
            check_sum(few, 3, all, size, 1);
            check_sum(out, LARGE, all, size, 1);
            check_sum(again, 3, other, size, 1);
        }
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    free(in);
    free(out);
    return 0;
}

START_TEST(operations_in_flight)
{
    must_succeed(_i, 1, in_flight);
}
END_TEST

/* ---- operations that cannot do without ----------------------------------------------------------------- */

static void refused(int status, const char *call)
{
    bool named = strstr(hvd_last_error(), "joined") != NULL;

    if (status != HVD_ERR_MISMATCH || !named)
        fprintf(stderr, "%s: %s, %s\n", call, hvd_status_name(status), hvd_last_error());
    job_check(status == HVD_ERR_MISMATCH && named);
}

#define REFUSED(call) refused(call, #call)

static void try_all(int rank, int size, int joined)
{
    float in[64] = {1, 2, 3}, out[64], two[64];
    size_t rows[JOB_RANKS_MAX];
    hvd_set set;
    const int ranks[1] = {0};
    hvd_handle h;

    REFUSED(hvd_allgather("g", in, 1, 2, HVD_FLOAT32, out, (size_t)size, rows, NULL));
    REFUSED(hvd_alltoall("a", in, (size_t)size, NULL, 1, HVD_FLOAT32, out, (size_t)size, rows, NULL));
    REFUSED(hvd_broadcast("b", in, 3, HVD_FLOAT32, joined, NULL));
    REFUSED(hvd_reducescatter("s", in, (size_t)size, 1, HVD_FLOAT32, HVD_SUM, out, NULL));
    REFUSED(hvd_barrier(NULL));
    static const hvd_op no_zeros[] = {HVD_MIN, HVD_MAX, HVD_PRODUCT};
    for (int i = 0; i < 3; i++)
        REFUSED(hvd_allreduce("m", in, out, 3, HVD_FLOAT32, no_zeros[i], NULL));
    REFUSED(hvd_allreduce("bits", in, out, 3, HVD_INT32, HVD_BAND, NULL));
    job_check(hvd_allreduce("bits", in, out, 3, HVD_INT32, HVD_BOR, NULL) == HVD_SUCCESS);
    job_check(memcmp(in, out, 12) == 0); /* all have the same bits */
    job_check(hvd_allreduce("m", in, two, 3, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(two[1] == 2 * (float)(size - 1)); /* the name is as good as before */
    REFUSED(hvd_set_add(ranks, 1, &set));
    if (rank == (joined + 1) % size) {
        REFUSED(hvd_send("two", in, 3, HVD_FLOAT32, joined, NULL));
        REFUSED(hvd_recv("two", in, 3, HVD_FLOAT32, joined, NULL));
        job_check(hvd_send_async("two", in, 3, HVD_FLOAT32, joined, NULL, &h) == HVD_SUCCESS);
        REFUSED(hvd_wait(h));
    }
    REFUSED(hvd_shutdown());
    REFUSED(hvd_shutdown());
    job_check(hvd_is_initialized() == 1);
}

static int others_refused(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, joined = size - 1;
    const int ranks[1] = {0};
    float in[3] = {1, 2, 3}, out[3];
    hvd_set set;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 2; round++) {
        if (rank != joined)
            try_all(rank, size, joined);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
        joined = 0;
    }
    job_check(hvd_set_add(ranks, 1, &set) == HVD_SUCCESS); /* the ranks still agree about its number */
    job_check(hvd_allreduce("m", in, out, 3, HVD_FLOAT32, HVD_MAX, NULL) == HVD_SUCCESS);
    job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(what_needs_their_elements_is_refused)
{
    must_succeed(_i, 1, others_refused);
}
END_TEST

static int sentences(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    float in[2] = {0}, out[64];

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        await_others();
        job_check(hvd_allgather("grad", in, 1, 2, HVD_FLOAT32, out, (size_t)size, NULL, NULL) ==
                  HVD_ERR_MISMATCH);
        snprintf(notes->text[0], sizeof notes->text[0], "%s", hvd_last_error());
    }
    job_check(hvd_join(NULL) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(sentences_name_who_has_joined)
{
    must_succeed(2, 1, sentences);
    ck_assert_str_eq(
        notes->text[0],
        "tensor \"grad\": rank 0 asks for allgather of 2 float32, but ranks 1, 2, 3 have joined");
    must_succeed(0, 1, sentences);
    ck_assert_str_eq(notes->text[0],
                     "tensor \"grad\": rank 0 asks for allgather of 2 float32, but rank 1 has joined");
    must_succeed(3, 1, sentences);
    ck_assert_str_eq(notes->text[0],
                     "tensor 'grad': rank 0 (node1) has called allgather, rank 1 (node2) has joined");
}
END_TEST

/* ---- process sets -------------------------------------------------------------------------------------- */

/* Two sets, one of the even ranks, one of all but the first; the last rank has joined, then the first too. */
static int in_sets(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, even[JOB_RANKS_MAX], tail[JOB_RANKS_MAX], evens = 0;
    float in[2] = {1, (float)rank}, out[2], *large = calloc(LARGE, sizeof *large);
    hvd_options o = {0}, p = {0};

    for (int r = 0; r < size; r++) {
        if (r % 2 == 0)
            even[evens++] = r;
        if (r > 0)
            tail[r - 1] = r;
    }
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_set_add(even, evens, &o.set) == HVD_SUCCESS);
    job_check(hvd_set_add(tail, size - 1, &p.set) == HVD_SUCCESS);
    for (int round = 0; round < 2; round++) {
        int first = 0;
        if (rank != size - 1 && rank % 2 == 0) {
            job_check(hvd_allreduce("x", in, out, 2, HVD_FLOAT32, HVD_SUM, &o) == HVD_SUCCESS);
            job_check(out[0] == (float)(evens - (size - 1) % 2 == evens ? evens - 1 : evens));
        }
        if (rank != size - 1 && rank != 0) {
            for (size_t i = 0; i < LARGE; i++)
                large[i] = 1;
            job_check(hvd_allreduce("x", large, large, LARGE, HVD_FLOAT32, HVD_SUM, &p) == HVD_SUCCESS);
            job_check(large[LARGE - 1] == (float)(size - 2));
            job_check(hvd_barrier(&p) == HVD_ERR_MISMATCH);
            job_check(strstr(hvd_last_error(), "joined") != NULL);
        }
        job_check(hvd_join(&first) == HVD_SUCCESS);
        job_check(first >= 0 && first < size);
    }
    if (rank > 0)
        job_check(hvd_barrier(&p) == HVD_SUCCESS);
    job_check(hvd_set_remove(p.set) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    free(large);
    return 0;
}

START_TEST(sets_with_joined_members)
{
    if (shapes[_i].hosts * shapes[_i].per_host > 2)
        must_succeed(_i, 1, in_sets);
}
END_TEST

/* ---- again, and other threads -------------------------------------------------------------------------- */

static int epochs(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    float in[2] = {1, 1}, out[2];

    for (int k = 0; k < EPOCHS; k++) {
        job_check(hvd_init() == HVD_SUCCESS);
        for (int i = 0; i < (rank == k % size ? 5 * size : 5 * rank); i++)
            job_check(hvd_allreduce("x", in, out, 2, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        join_after(rank, k % size);
        job_check(hvd_shutdown() == HVD_SUCCESS);
    }
    return 0;
}

START_TEST(in_any_number_of_epochs)
{
    must_succeed(_i, EPOCHS, epochs);
}
END_TEST

static void *other_thread(void *arg)
{
    float in = 1, out;
    int status;

    (void)arg;
    while ((status = hvd_allreduce("x", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL)) == HVD_SUCCESS)
        ; /* the join has not begun */
    job_check(status == HVD_ERR_IN_PROGRESS && strstr(hvd_last_error(), "hvd_join"));
    job_check(hvd_join(NULL) == HVD_ERR_IN_PROGRESS);
    job_check(hvd_shutdown() == HVD_ERR_IN_PROGRESS);
    job_check(hvd_size() > 1 && hvd_is_initialized() == 1);
    atomic_store(&notes->go, 1);
    return NULL;
}

static int threads(const struct job *job, int rank)
{
    float in = 1, out;
    pthread_t thread;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        pthread_create(&thread, NULL, other_thread, NULL);
        pause_ms(50);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
        pthread_join(thread, NULL);
    } else {
        while (!atomic_load(&notes->go))
            job_check(hvd_allreduce("x", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(other_threads_begin_nothing)
{
    must_succeed(0, 1, threads);
    atomic_store(&notes->go, 0);
    must_succeed(3, 1, threads);
}
END_TEST

/* ---- more than the engine has looked at ---------------------------------------------------------------- */

#define AT_ONCE 64
#define ROUNDS  (16384 / AT_ONCE + 8) /* more than there are slots */

/* `first` arrives before the other one at every operation, of which the last rank hears nothing. */
static void many(const hvd_options *pair, int rank, int first)
{
    static int rounds;
    float in[AT_ONCE] = {1}, out[AT_ONCE];
    hvd_handle handle[AT_ONCE];
    char name[16];

    for (int k = 0; k < ROUNDS; k++) {
        rounds++;
        while (rank != first && atomic_load(&notes->go) < rounds)
            sched_yield();
        for (int i = 0; i < AT_ONCE; i++) {
            snprintf(name, sizeof name, "x%d", i);
            job_check(hvd_allreduce_async(name, &in[i], &out[i], 1, HVD_FLOAT32, HVD_SUM, pair, &handle[i]) ==
                      HVD_SUCCESS);
        }
        if (rank == first)
            atomic_fetch_add(&notes->go, 1);
        for (int i = 0; i < AT_ONCE; i++)
            job_check(hvd_wait(handle[i]) == HVD_SUCCESS);
    }
}

/* Two ranks do more than an engine that is stopped has places for, then something that the third must hear
 * of. */
static int beyond_the_ring(const struct job *job, int rank)
{
    const int pair[] = {0, 1};
    hvd_options o = {0};
    hvd_handle handle;
    float in = 1, out;

    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_set_add(pair, 2, &o.set) == HVD_SUCCESS);
    if (rank < 2) {
        many(&o, rank, 0); /* so that all names are known, and that of the barrier */
        job_check(hvd_barrier(&o) == HVD_SUCCESS);
        job_check(hvd_allreduce("w", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        if (rank == 0)
            kill(job->engine[0], SIGSTOP);
        job_check(hvd_barrier(&o) == HVD_SUCCESS);
        many(&o, rank, 0);
        many(&o, rank, 1);
        job_check(hvd_allreduce_async("w", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL, &handle) == HVD_SUCCESS);
        job_check(hvd_barrier(&o) == HVD_SUCCESS);
        if (rank == 0)
            kill(job->engine[0], SIGCONT);
        job_check(hvd_wait(handle) == HVD_SUCCESS && out == 2);
    }
    job_check(hvd_join(NULL) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(what_a_slow_engine_has_not_seen_yet_is_not_lost)
{
    must_succeed(1, 1, beyond_the_ring);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------ */

static int killed(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    float in = 1, out;

    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == size - 1) {
        for (int i = 0; i < 20; i++) /* the others have joined by then */
            job_check(hvd_allreduce("x", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        pause_ms(50);
        atomic_store(&notes->died_at, clock_now());
        kill(getpid(), SIGKILL);
    }
    job_check(hvd_join(NULL) == HVD_ERR_PEER);
    job_check(clock_now() - atomic_load(&notes->died_at) < 2 * NSEC_PER_SEC);
    snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
    job_check(hvd_join(NULL) == HVD_ERR_PEER);
    hvd_shutdown();
    return 3;
}

START_TEST(a_death_ends_the_join)
{
    struct job job = {.hosts = shapes[_i].hosts, .per_host = shapes[_i].per_host, .worker = killed};
    int size = job.hosts * job.per_host;
    char name[32];

    for (int r = 0; r < size - 1; r++)
        notes->text[r][0] = '\0';
    job_run(&job, SECONDS);
    ck_assert(!job.timed_out);
    snprintf(name, sizeof name, "rank %d ", size - 1);
    for (int r = 0; r < size - 1; r++) {
        ck_assert_int_eq(job.status[r], 3 << 8);
        ck_assert_ptr_nonnull(strstr(notes->text[r], name));
    }
}
END_TEST

/* The one that had joined dies while the others' operations need it. */
static int joined_killed(const struct job *job, int rank)
{
    float in[64] = {1}, out[64];
    int status = HVD_SUCCESS;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        notes->go = getpid();
        hvd_join(NULL);
        return 1;
    }
    for (int i = 0; status == HVD_SUCCESS; i++) {
        status = hvd_allreduce("x", in, out, 64, HVD_FLOAT32, HVD_SUM, NULL);
        if (i == 50 && rank == 1)
            kill(notes->go, SIGKILL);
    }
    job_check(status == HVD_ERR_PEER && strstr(hvd_last_error(), "rank 0 "));
    hvd_shutdown();
    return 3;
}

START_TEST(a_joined_rank_that_dies_ends_the_others)
{
    struct job job = {.hosts = shapes[_i].hosts, .per_host = shapes[_i].per_host, .worker = joined_killed};

    job_run(&job, SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 1; r < job.hosts * job.per_host; r++)
        ck_assert_int_eq(job.status[r], 3 << 8);
}
END_TEST

static int engine_killed(const struct job *job, int rank)
{
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 0) {
        await_others();
        job_await_fault(job);
    }
    int status = hvd_join(NULL);
    job_check(status == HVD_ERR_ENGINE || status == HVD_ERR_PEER);
    hvd_shutdown();
    return 3;
}

START_TEST(an_engine_that_dies_ends_the_join)
{
    struct job job = {
        .hosts = 1, .per_host = 2, .worker = engine_killed, .fault = JOB_KILL_ENGINE, .fault_after = 1};

    job_run(&job, SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(job.status[r], 3 << 8);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("join");
    TCase *work = tcase_create("work");
    TCase *ring = tcase_create("ring");
    TCase *failures = tcase_create("failures");

    tcase_add_checked_fixture(work, setup, NULL);
    tcase_set_timeout(work, 3 * SECONDS);
    tcase_add_loop_test(work, ranks_with_uneven_work, 0, SHAPES);
    tcase_add_loop_test(work, operations_in_flight, 0, SHAPES);
    tcase_add_loop_test(work, what_needs_their_elements_is_refused, 0, SHAPES);
    tcase_add_test(work, sentences_name_who_has_joined);
    tcase_add_loop_test(work, sets_with_joined_members, 0, SHAPES);
    tcase_add_loop_test(work, in_any_number_of_epochs, 0, SHAPES);
    tcase_add_test(work, other_threads_begin_nothing);
    suite_add_tcase(s, work);
    tcase_add_checked_fixture(ring, setup, NULL);
    tcase_set_timeout(ring, 3 * SECONDS);
    tcase_add_test(ring, what_a_slow_engine_has_not_seen_yet_is_not_lost);
    suite_add_tcase(s, ring);
    tcase_add_checked_fixture(failures, setup, NULL);
    tcase_set_timeout(failures, 3 * SECONDS);
    tcase_add_loop_test(failures, a_death_ends_the_join, 0, SHAPES);
    tcase_add_loop_test(failures, a_joined_rank_that_dies_ends_the_others, 0, SHAPES);
    tcase_add_test(failures, an_engine_that_dies_ends_the_join);
    suite_add_tcase(s, failures);
    return s;
}

int main(void)
{
    return run_suite(make_suite());
}
