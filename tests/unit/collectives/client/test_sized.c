/* Allgather and alltoall whose results are allocated when the sizes are known: real processes and engines. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

static const struct job_shape shapes[] = {{1, 1, false}, {1, 2, false}, {1, 3, false}, {2, 1, false},
                                          {2, 2, false}, {2, 2, true},  {3, 1, false}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static void run(int shape, int (*worker)(const struct job *, int))
{
    job_must_succeed(job_ran(shapes[shape], worker));
}

/* ---- the caller's memory ------------------------------------------------------------------------------- */

enum source { FROM_MALLOC, FROM_ARENA, FROM_NOWHERE };

struct ask {
    enum source source;
    size_t row_bytes, rows;
    int calls;
    pthread_t thread;
    void *memory;
};

static void *allocate(void *context, size_t rows)
{
    struct ask *a = context;
    size_t bytes = rows * a->row_bytes + 1;

    a->calls++;
    a->rows = rows;
    a->thread = pthread_self();
    a->memory = a->source == FROM_MALLOC ? malloc(bytes) : a->source == FROM_ARENA ? hvd_alloc(bytes) : NULL;
    return a->memory;
}

static void give_back(struct ask *a)
{
    if (a->source == FROM_ARENA)
        hvd_free(a->memory);
    else
        free(a->memory);
    a->memory = NULL;
}

job_unwatched static int32_t value(int rank, size_t i)
{
    return (int32_t)(i * 31 + (size_t)rank * 1000003);
}

/* Some ranks have none. */
static size_t rows_of_rank(size_t scale, int rank, int pattern)
{
    return pattern == 0 ? scale : pattern == 1 ? scale * (size_t)rank : rank == 1 ? scale : 0;
}

/* ---- allgather ----------------------------------------------------------------------------------------- */

#define ROW 2

struct call {
    char name[64];
    size_t scale;
    int pattern;
    int32_t *in;
    size_t got[JOB_RANKS_MAX];
    struct ask ask;
    hvd_handle handle;
};

job_unwatched static void fill(struct call *c, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++)
        c->in[i] = value(rank, i);
}

static int start_gather(struct call *c, int rank, bool waits, bool arena)
{
    size_t rows = rows_of_rank(c->scale, rank, c->pattern), bytes = rows * ROW * sizeof *c->in + 1;

    c->in = arena ? hvd_alloc(bytes) : malloc(bytes);
    c->ask.row_bytes = ROW * sizeof *c->in;
    c->ask.calls = 0;
    fill(c, rank, rows * ROW);
    if (waits)
        return hvd_allgather_alloc(c->name, c->in, rows, ROW, HVD_INT32, allocate, &c->ask, c->got, NULL);
    return hvd_allgather_alloc_async(c->name, c->in, rows, ROW, HVD_INT32, allocate, &c->ask, c->got, NULL,
                                     &c->handle);
}

job_unwatched static void check_gathered(const struct call *c)
{
    const int32_t *out = c->ask.memory;
    size_t all = 0;

    for (int r = 0; r < hvd_size(); r++) {
        size_t rows = rows_of_rank(c->scale, r, c->pattern);
        job_check(c->got[r] == rows);
        for (size_t i = 0; i < rows * ROW; i++)
            job_check(out[all * ROW + i] == value(r, i));
        all += rows;
    }
    job_check(c->ask.calls == 1 && c->ask.rows == all && pthread_equal(c->ask.thread, pthread_self()));
}

static void end_gather(struct call *c, bool arena)
{
    give_back(&c->ask);
    if (arena)
        hvd_free(c->in);
    else
        free(c->in);
}

/* Bits of `form`: who blocks, where the input is, where the result is; and the pattern. */
static void one_gather(int rank, size_t scale, int form)
{
    bool waits = form & 4 ? rank & 1 : form & 1, arena = (form >> 1 ^ rank) & 1;
    struct call c = {.scale = scale, .pattern = form % 3, .ask.source = form & 8 ? FROM_ARENA : FROM_MALLOC};

    snprintf(c.name, sizeof c.name, "gather-%zu-%d", scale, form);
    for (int again = 0; again < 3; again++) {
        job_check(start_gather(&c, rank, waits, arena) == HVD_SUCCESS);
        if (!waits && form & 2)
            while (hvd_poll(c.handle) == 0)
                sched_yield();
        if (!waits)
            job_check(c.ask.calls == 0 && hvd_wait(c.handle) == HVD_SUCCESS);
        check_gathered(&c);
        end_gather(&c, arena);
    }
}

static int check_gathers(const struct job *job, int rank)
{
    static const size_t scales[] = {0, 1, 3, 100, 300, 5000, 60001};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (int form = 0; form < 16; form++)
            one_gather(rank, scales[s], form);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(an_allgather_learns_its_size)
{
    run(_i, check_gathers);
}
END_TEST

/* ---- alltoall ------------------------------------------------------------------------------------------ */

static size_t sent(size_t scale, int from, int to, int pattern)
{
    return pattern == 0   ? scale
           : pattern == 1 ? scale * (size_t)((from + 2 * to) % 3)
           : from == to   ? 0
                          : scale;
}

job_unwatched static void check_exchanged(const struct ask *a, const size_t *received, int rank, size_t scale,
                                          int pattern)
{
    const int32_t *out = a->memory;

    for (int r = 0; r < hvd_size(); r++) {
        size_t n = sent(scale, r, rank, pattern), before = 0;
        for (int k = 0; k < rank; k++)
            before += sent(scale, r, k, pattern);
        job_check(received[r] == n);
        for (size_t i = 0; i < n * ROW; i++)
            job_check(*out++ == value(r, before * ROW + i));
    }
    job_check(a->calls == 1 && out == (int32_t *)a->memory + a->rows * ROW);
}

static void one_exchange(int rank, size_t scale, int form)
{
    size_t splits[JOB_RANKS_MAX], received[JOB_RANKS_MAX], rows = 0;
    struct call c = {.ask = {.source = form & 2 ? FROM_ARENA : FROM_MALLOC, .row_bytes = ROW * sizeof *c.in}};
    int pattern = form % 3;

    for (int r = 0; r < hvd_size(); r++)
        rows += splits[r] = sent(scale, rank, r, pattern);
    c.in = malloc(rows * ROW * sizeof *c.in + 1);
    fill(&c, rank, rows * ROW);
    snprintf(c.name, sizeof c.name, "exchange-%zu-%d", scale, form);
    if (form & 1) {
        job_check(hvd_alltoall_alloc(c.name, c.in, rows, pattern ? splits : NULL, ROW, HVD_INT32, allocate,
                                     &c.ask, received, NULL) == HVD_SUCCESS);
    } else {
        job_check(hvd_alltoall_alloc_async(c.name, c.in, rows, splits, ROW, HVD_INT32, allocate, &c.ask,
                                           received, NULL, &c.handle) == HVD_SUCCESS);
        job_check(hvd_wait(c.handle) == HVD_SUCCESS);
    }
    check_exchanged(&c.ask, received, rank, scale, pattern);
    end_gather(&c, false);
}

static int check_exchanges(const struct job *job, int rank)
{
    static const size_t scales[] = {0, 1, 40, 300, 20001};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (int form = 0; form < 12; form++)
            one_exchange(rank, scales[s], form);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(an_alltoall_learns_its_size)
{
    run(_i, check_exchanges);
}
END_TEST

/* ---- waits --------------------------------------------------------------------------------------------- */

#define MANY 12

/* Every rank waits in another order, and writes over what it gave as soon as its own call has ended. */
static int crossing_waits(const struct job *job, int rank)
{
    struct call c[MANY];
    float x = 1;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i++) {
            c[i] = (struct call){.scale = i % 2 ? 20000 : 50};
            snprintf(c[i].name, sizeof c[i].name, "crossing-%d", i);
            job_check(start_gather(&c[i], rank, false, i % 3 == 0) == HVD_SUCCESS);
        }
        for (int k = 0; k < MANY; k++) {
            int i = rank & 1 ? MANY - 1 - k : k;
            job_check(hvd_wait(c[i].handle) == HVD_SUCCESS);
            check_gathered(&c[i]);
            memset(c[i].in, 0x55, c[i].scale * ROW * sizeof *c[i].in);
            end_gather(&c[i], i % 3 == 0);
        }
    }
    /* One rank blocks in what another one has only begun, and is needed for something else before. */
    c[0] = (struct call){.name = "begun", .scale = 30000};
    job_check(start_gather(&c[0], rank, rank == 0, true) == HVD_SUCCESS);
    if (rank == 0)
        memset(c[0].in, 0x55, c[0].scale * ROW * sizeof *c[0].in);
    job_check(hvd_allreduce("between", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(rank == 0 || hvd_wait(c[0].handle) == HVD_SUCCESS);
    check_gathered(&c[0]);
    end_gather(&c[0], true);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(no_rank_waits_for_the_wait_of_another)
{
    run(_i, crossing_waits);
}
END_TEST

/* Memory of elements that others may still read is used again. */
static int constant_memory(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < 400; i++) {
        struct call c = {.scale = 30000};
        snprintf(c.name, sizeof c.name, "again-%d", i % 7);
        job_check(start_gather(&c, rank, i % 5 == 0, i & 1) == HVD_SUCCESS);
        job_check(i % 5 == 0 || hvd_wait(c.handle) == HVD_SUCCESS);
        end_gather(&c, i & 1);
    }
    char line[256];
    unsigned long pages = 0, shared = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    job_check(statm && fgets(line, sizeof line, statm) && sscanf(line, "%*u %lu %lu", &pages, &shared) == 2);
    fclose(statm);
    job_check(shared * 4096 < 48ul << 20);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(memory_is_used_again)
{
    run(_i, constant_memory);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------ */

static void one_without_memory(int rank, size_t scale, bool waits)
{
    struct call c = {.scale = scale, .ask.source = rank == 1 ? FROM_NOWHERE : FROM_MALLOC};
    int status;

    snprintf(c.name, sizeof c.name, "memory-%zu-%d", scale, waits);
    status = start_gather(&c, rank, waits, false);
    if (!waits) {
        job_check(status == HVD_SUCCESS);
        status = hvd_wait(c.handle);
    }
    if (rank == 1)
        job_check(status == HVD_ERR_MEMORY && strstr(hvd_last_error(), "no memory for") && c.ask.calls == 1);
    else
        job_check(status == HVD_SUCCESS);
    if (rank != 1)
        check_gathered(&c);
    end_gather(&c, false);
}

static int without_memory(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < 4; i++) {
        one_without_memory(rank, 10, i & 1);
        one_without_memory(rank, 1000, i & 1);
        one_without_memory(rank, 100000, i & 1);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_rank_without_memory_harms_no_other)
{
    run(_i, without_memory);
}
END_TEST

static int check_mismatches(const struct job *job, int rank)
{
    struct ask ask = {.row_bytes = 12};
    int32_t in[12] = {0}, out[200];
    hvd_handle handle;

    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_allgather_alloc("rows", in, 2, rank ? 3 : 2, HVD_INT32, allocate, &ask, NULL, NULL) ==
              HVD_ERR_MISMATCH);
    job_check(strstr(hvd_last_error(), "2 elements a row") && ask.calls == 0);
    job_check(hvd_allgather_alloc_async("rows", in, 2, rank ? 3 : 2, HVD_INT32, allocate, &ask, NULL, NULL,
                                        &handle) == HVD_SUCCESS);
    job_check(hvd_wait(handle) == HVD_ERR_MISMATCH && ask.calls == 0);
    job_check((rank ? hvd_allgather_alloc("ways", in, 1, 2, HVD_INT32, allocate, &ask, NULL, NULL)
                    : hvd_allgather("ways", in, 1, 2, HVD_INT32, out, 100, NULL, NULL)) == HVD_ERR_MISMATCH);
    job_check(job->hosts > 1 ? strstr(hvd_last_error(), "has called allgather, ") &&
                                   strstr(hvd_last_error(), "has called allgather_alloc")
                             : strstr(hvd_last_error(), "rank 0 asks for allgather of 2 int32") &&
                                   strstr(hvd_last_error(), "for allgather_alloc of 2 int32"));
    job_check(hvd_allgather_alloc("none", in, 1, 2, HVD_INT32, NULL, NULL, NULL, NULL) == HVD_ERR_INVALID);
    job_check(hvd_allgather_alloc("rows", in, 2, 3, HVD_INT32, allocate, &ask, NULL, NULL) == HVD_SUCCESS);
    free(ask.memory);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(ranks_that_disagree_hear_of_it)
{
    run(1 + 2 * _i, check_mismatches); /* two ranks of one host, and of two */
}
END_TEST

/* ---- sets and joins ------------------------------------------------------------------------------------ */

static int in_a_set(const struct job *job, int rank)
{
    int ranks[JOB_RANKS_MAX], n = 0;
    struct ask ask = {.row_bytes = 4};
    size_t got[JOB_RANKS_MAX];
    hvd_options options = {0};
    int32_t in[3] = {rank, rank, rank};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int r = 1; r < hvd_size(); r++)
        ranks[n++] = r;
    job_check(hvd_set_add(ranks, n, &options.set) == HVD_SUCCESS);
    if (rank > 0) {
        job_check(hvd_allgather_alloc("x", in, 3, 1, HVD_INT32, allocate, &ask, got, &options) ==
                  HVD_SUCCESS);
        job_check(ask.rows == 3 * (size_t)n && ((int32_t *)ask.memory)[3 * n - 1] == n && got[n - 1] == 3);
        free(ask.memory);
    }
    job_check(hvd_set_remove(options.set) == HVD_SUCCESS && hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_set_does_it_too)
{
    run(2 + 2 * _i, in_a_set); /* 1x3, 2x2 */
}
END_TEST

/* An operation from before the join is waited for afterwards, also when the name was needed meanwhile. */
static int before_a_join(const struct job *job, int rank)
{
    struct call c = {.name = "early", .scale = 4000}, later = {.name = "early", .scale = 1};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(start_gather(&c, rank, false, rank & 1) == HVD_SUCCESS);
    if (rank == 0) {
        job_check(hvd_join(NULL) == HVD_SUCCESS && c.ask.calls == 0);
        job_check(hvd_wait(c.handle) == HVD_SUCCESS);
    } else {
        job_check(hvd_wait(c.handle) == HVD_SUCCESS);
        job_check(start_gather(&later, rank, true, false) == HVD_ERR_MISMATCH &&
                  strstr(hvd_last_error(), "rank 0 ") && strstr(hvd_last_error(), "has joined"));
        free(later.in);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    }
    check_gathered(&c);
    end_gather(&c, rank & 1);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(an_operation_from_before_a_join_is_kept)
{
    run(1 + _i, before_a_join);
}
END_TEST

/* ---- the end ------------------------------------------------------------------------------------------- */

static int death_before_the_wait(const struct job *job, int rank)
{
    struct call c = {.name = "x", .scale = 5000};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 1)
        _exit(3);
    job_check(start_gather(&c, rank, false, false) == HVD_SUCCESS || rank >= 0);
    job_check(c.handle == 0 || (hvd_wait(c.handle) == HVD_ERR_PEER && c.ask.calls == 0));
    hvd_shutdown();
    return 0;
}

START_TEST(a_death_ends_the_wait)
{
    struct job job = job_ran(shapes[1 + 2 * _i], death_before_the_wait);

    ck_assert(!job.timed_out);
    ck_assert_int_eq(job.status[0], 0);
}
END_TEST

/* ---- alone --------------------------------------------------------------------------------------------- */

START_TEST(a_job_of_one_rank_does_it_too)
{
    struct call c = {.name = "alone", .scale = 7};
    size_t splits = 3, received = 0;
    int32_t in[4] = {1, 2, 3, 4};
    struct ask ask = {.row_bytes = 4};

    ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
    ck_assert_int_eq(start_gather(&c, 0, true, false), HVD_SUCCESS);
    check_gathered(&c);
    end_gather(&c, false);
    ck_assert_int_eq(start_gather(&c, 0, false, true), HVD_SUCCESS);
    ck_assert(c.ask.calls == 0 && hvd_poll(c.handle) == 1 && c.ask.calls == 0);
    ck_assert_int_eq(hvd_wait(c.handle), HVD_SUCCESS);
    check_gathered(&c);
    end_gather(&c, true);
    ck_assert_int_eq(hvd_alltoall_alloc("a", in, 4, &splits, 1, HVD_INT32, allocate, &ask, &received, NULL),
                     HVD_SUCCESS);
    ck_assert(received == 3 && ask.rows == 3 && ((int32_t *)ask.memory)[2] == 3);
    free(ask.memory);
    ask.source = FROM_NOWHERE;
    ck_assert_int_eq(hvd_alltoall_alloc("a", in, 4, &splits, 1, HVD_INT32, allocate, &ask, NULL, NULL),
                     HVD_ERR_MEMORY);
    ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("sized");
    TCase *t = tcase_create("sized");

    tcase_set_timeout(t, 3 * JOB_SECONDS);
    tcase_add_loop_test(t, an_allgather_learns_its_size, 0, SHAPES);
    tcase_add_loop_test(t, an_alltoall_learns_its_size, 0, SHAPES);
    tcase_add_loop_test(t, no_rank_waits_for_the_wait_of_another, 1, SHAPES);
    tcase_add_loop_test(t, memory_is_used_again, 1, 4);
    tcase_add_loop_test(t, a_rank_without_memory_harms_no_other, 1, SHAPES);
    tcase_add_loop_test(t, ranks_that_disagree_hear_of_it, 0, 2);
    tcase_add_loop_test(t, a_set_does_it_too, 0, 2);
    tcase_add_loop_test(t, an_operation_from_before_a_join_is_kept, 0, 4);
    tcase_add_loop_test(t, a_death_ends_the_wait, 0, 2);
    tcase_add_test(t, a_job_of_one_rank_does_it_too);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(make_suite());
}
