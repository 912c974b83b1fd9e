/* Names are forgotten: any number of them in a job, as many pending at once as there are slots. Real
 * processes and real engines. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "collectives/shm/layout.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

#define MANY    17000u /* names: more than slots */
#define PENDING 16000u /* names at once */

static const struct job_shape shapes[] = {
    {.hosts = 1, .per_host = 1}, {.hosts = 1, .per_host = 2}, {.hosts = 1, .per_host = 4},
    {.hosts = 2, .per_host = 1}, {.hosts = 2, .per_host = 2}, {.hosts = 3, .per_host = 1},
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)
#define SMALL  3 /* shapes of one host */
/* Those with more than two ranks. */
static const struct job_shape wide[] = {
    {.hosts = 1, .per_host = 4},
    {.hosts = 2, .per_host = 2},
    {.hosts = 3, .per_host = 1},
};
#define WIDE (int)(sizeof wide / sizeof *wide)

/* So many names take a while on a machine that has other things to do. */
static void run_names(struct job_shape shape, int (*worker)(const struct job *job, int rank))
{
    struct job job = job_of(shape, worker);

    job_run(&job, 600);
    job_must_succeed(job);
}

/* The sum over all ranks of (rank + 1) * number. */
static float sum_of(unsigned number)
{
    int size = hvd_size();

    return (float)number * (float)(size * (size + 1) / 2);
}

static void reduce_named(const char *name, unsigned number, const hvd_options *options)
{
    float x = (float)number * (float)(hvd_rank() + 1), sum = 0;

    job_check(hvd_allreduce(name, &x, &sum, 1, HVD_FLOAT32, HVD_SUM, options) == HVD_SUCCESS);
    job_check(options || sum == sum_of(number));
}

static void reduce_number(const char *prefix, unsigned number)
{
    char name[64];

    snprintf(name, sizeof name, "%s.%u", prefix, number);
    reduce_named(name, number % 97, NULL);
}

static int use_many(const struct job *job, int rank)
{
    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (unsigned i = 0; i < MANY; i++) {
        reduce_number("allreduce.noname", i);
        if (i % 16 == 0)
            reduce_number("known", 7);
    }
    for (unsigned i = 0; i < 100; i++) /* forgotten long ago */
        reduce_number("allreduce.noname", i);
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(more_names_than_slots)
{
    run_names(shapes[_i], use_many);
}
END_TEST

/* ---- several threads ----------------------------------------------------------------------------------- */

#define THREADS 4u

static void *use_some(void *number)
{
    char prefix[16];

    snprintf(prefix, sizeof prefix, "thread%u", (unsigned)(uintptr_t)number);
    for (unsigned i = 0; i < MANY / THREADS + 1; i++) {
        reduce_number(prefix, i);
        if (i % 8 == 0)
            reduce_number(prefix, 1); /* known, or forgotten by another thread just now */
    }
    return NULL;
}

static int use_threads(const struct job *job, int rank)
{
    pthread_t thread[THREADS];

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (uintptr_t i = 0; i < THREADS; i++)
        job_check(pthread_create(&thread[i], NULL, use_some, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(several_threads_use_many_names)
{
    run_names(shapes[_i], use_threads);
}
END_TEST

/* ---- how many at once ---------------------------------------------------------------------------------- */

static hvd_handle *begin_many(unsigned number, float *sums)
{
    static float one = 1;
    hvd_handle *handle = calloc(number, sizeof *handle);
    char name[64];

    for (unsigned i = 0; i < number; i++) {
        snprintf(name, sizeof name, "pending.%u", i);
        job_check(hvd_allreduce_async(name, &one, &sums[i], 1, HVD_FLOAT32, HVD_SUM, NULL, &handle[i]) ==
                  HVD_SUCCESS);
    }
    return handle;
}

/* The last rank is late each time, and uses other names meanwhile. */
static int check_pending(const struct job *job, int rank)
{
    float *sums = calloc(PENDING, sizeof *sums);

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 1000; i++)
            reduce_number("before", round * 1000 + i);
        if (rank == hvd_size() - 1)
            usleep(200000);
        hvd_handle *handle = begin_many(PENDING, sums);
        for (unsigned i = 0; i < PENDING; i++) {
            job_check(hvd_wait(handle[i]) == HVD_SUCCESS);
            job_check(sums[i] == (float)hvd_size());
        }
        free(handle);
    }
    free(sums);
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(sixteen_thousand_names_are_pending)
{
    run_names(shapes[_i], check_pending);
}
END_TEST

/* All slots are in use: the next name is an error, which says so; then the job goes on. */
static int pend_all(const struct job *job, int rank)
{
    unsigned most = SHM_SLOTS - SHM_SLOT_FIRST;
    float *sums = calloc(most, sizeof *sums), x = 1;
    hvd_handle *handle;

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    reduce_number("one that is idle", 1);
    handle = begin_many(most, sums);
    job_check(hvd_allreduce("one more", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_MEMORY);
    job_check(strstr(hvd_last_error(), "16382 tensors are pending at once") != NULL);
    for (unsigned i = 0; i < most; i++)
        job_check(hvd_wait(handle[i]) == HVD_SUCCESS);
    reduce_number("one more", 2);
    free(handle);
    free(sums);
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(with_all_slots_pending_a_name_is_an_error)
{
    run_names(shapes[_i], pend_all);
}
END_TEST

/* ---- names that stay ----------------------------------------------------------------------------------- */

static int check_kept(const struct job *job, int rank)
{
    hvd_handle persistent, pending, old;
    float in = (float)rank, out = 0, late = 0, x = 1;
    const void *shared, *small, *again;
    float large[4096];

    (void)job;
    for (unsigned i = 0; i < 4096; i++)
        large[i] = (float)i;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(!hvd_allreduce_init("persistent", &in, &out, 1, HVD_FLOAT32, HVD_SUM, NULL, &persistent));
    job_check(!hvd_allreduce_shared("shared", large, 4096, HVD_FLOAT32, HVD_MAX, NULL, &shared));
    job_check(!hvd_allreduce_shared("small", large, 16, HVD_FLOAT32, HVD_MAX, NULL, &small));
    job_check(!hvd_allreduce_async("old", &x, &x, 1, HVD_FLOAT32, HVD_MAX, NULL, &old));
    job_check(hvd_wait(old) == HVD_SUCCESS);
    job_check(!hvd_allreduce_async("pending", &in, &late, 1, HVD_FLOAT32, HVD_SUM, NULL, &pending));
    for (unsigned i = 0; i < MANY; i++)
        reduce_number("new", i);
    job_check(hvd_wait(old) == HVD_ERR_INVALID);
    job_check(hvd_poll(old) == HVD_ERR_INVALID);
    job_check(hvd_wait(pending) == HVD_SUCCESS);
    job_check(late == (float)(hvd_size() * (hvd_size() - 1) / 2));
    job_check(memcmp(shared, large, sizeof large) == 0);
    job_check(memcmp(small, large, 16 * sizeof *large) == 0);
    job_check(!hvd_allreduce_shared("shared", large, 4096, HVD_FLOAT32, HVD_MAX, NULL, &again));
    job_check(again == shared); /* its memory was not left behind */
    in = 2;
    job_check(!hvd_start(persistent) && !hvd_wait(persistent));
    job_check(out == 2 * (float)hvd_size());
    job_check(!hvd_handle_free(persistent));
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(what_a_caller_still_has_is_not_forgotten)
{
    run_names(shapes[_i], check_kept);
}
END_TEST

/* One rank of a host uses new names with other hosts' ranks; the others of the host hold names and know of
 * nothing. */
static int use_set(const struct job *job, int rank)
{
    int ranks[] = {0, job->hosts * job->per_host - 1}, others[] = {0};
    hvd_set set, alone;
    hvd_options options = {0};

    job_check(hvd_init() == HVD_SUCCESS);
    job_check(!hvd_set_add(ranks, 2, &set));
    for (unsigned i = 0; i < 9000; i++)
        reduce_number("world", i);
    options.set = set;
    for (unsigned i = 0; i < MANY && (rank == ranks[0] || rank == ranks[1]); i++) {
        char name[32];
        snprintf(name, sizeof name, "set.%u", i);
        reduce_named(name, i, &options);
        job_check(i % 5000 || hvd_barrier(&options) == HVD_SUCCESS);
    }
    reduce_number("world", 1);
    job_check(!hvd_set_remove(set));
    job_check(!hvd_set_add(others, 1, &alone));
    options.set = alone;
    for (unsigned i = 0; i < MANY && rank == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "set.%u", i);
        reduce_named(name, i, &options);
    }
    reduce_number("world", 2);
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(sets_use_many_names)
{
    run_names(wide[_i], use_set);
}
END_TEST

/* A ring of messages, each with a name of its own. */
static int use_pairs(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;

    job_check(hvd_init() == HVD_SUCCESS);
    for (unsigned i = 0; i < MANY; i++) {
        hvd_handle sent = 0;
        char name[32];
        unsigned x = i, y = i;
        snprintf(name, sizeof name, "message.%u", i);
        if (size > 2 || rank == 0) /* two ranks are one pair, where only the first one sends */
            job_check(!hvd_send_async(name, &x, 1, HVD_INT32, (rank + 1) % size, NULL, &sent));
        if (size > 2 || rank == 1)
            job_check(!hvd_recv(name, &y, 1, HVD_INT32, (rank + size - 1) % size, NULL));
        job_check(y == i && (sent == 0 || hvd_wait(sent) == HVD_SUCCESS));
    }
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(pairs_use_many_names)
{
    run_names(shapes[_i], use_pairs);
}
END_TEST

/* The first rank joins at once, the others use many names meanwhile; then again the other way round. */
static int join_others(const struct job *job, int rank)
{
    int last;
    (void)job;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 2; round++) {
        bool joins = round == 0 ? rank == 0 : rank != 0;
        for (unsigned i = 0; i < 3000; i++)
            reduce_number("together", i);
        for (unsigned i = 0; i < MANY && !joins; i++) {
            float x = 1, sum = 0;
            char name[32];
            snprintf(name, sizeof name, "apart.%u", i);
            job_check(!hvd_allreduce(name, &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL));
            job_check(sum == (float)(round == 0 ? hvd_size() - 1 : 1));
        }
        job_check(hvd_join(&last) == HVD_SUCCESS);
    }
    reduce_number("together", 1);
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(others_use_many_names_while_ranks_have_joined)
{
    run_names(shapes[_i], join_others);
}
END_TEST

/* ---- a job of one process ------------------------------------------------------------------------------ */

START_TEST(a_process_alone_uses_many_names)
{
    unsigned most = SHM_SLOTS - SHM_SLOT_FIRST;
    float *sums = calloc(most, sizeof *sums), x = 1;

    ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
    for (unsigned i = 0; i < MANY; i++)
        reduce_number("alone", i);
    hvd_handle *handle = begin_many(most, sums);
    ck_assert_int_eq(hvd_allreduce("one more", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL), HVD_ERR_MEMORY);
    ck_assert_str_eq(hvd_last_error(), "16382 tensors are pending at once");
    for (unsigned i = 0; i < most; i++)
        ck_assert_int_eq(hvd_wait(handle[i]), HVD_SUCCESS);
    reduce_number("one more", 1);
    ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
    free(handle);
    free(sums);
}
END_TEST

/* ---- constant memory ----------------------------------------------------------------------------------- */

#define NAMES_AT_LEAST 100000u

static long resident_kib(pid_t pid)
{
    char path[64], line[128];
    long kib = -1;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

static unsigned long_names(void)
{
    const char *names = getenv("NAMES");

    return names ? (unsigned)strtoul(names, NULL, 10) : NAMES_AT_LEAST;
}

static int use_millions(const struct job *job, int rank)
{
    unsigned names = long_names();
    long first = 0, kib;

    job_check(hvd_init() == HVD_SUCCESS);
    for (unsigned i = 0; i < names; i++) {
        reduce_number("allreduce.noname", i);
        if (rank == 0 && (i + 1) % (names / 5) == 0) {
            kib = resident_kib(getpid());
            first = first ? first : kib;
            printf("%u names: rank 0 has %ld KiB, the engine %ld KiB\n", i + 1, kib,
                   resident_kib(job->engine[0]));
            fflush(stdout);
            job_check(kib < first + 1024);
        }
    }
    return hvd_shutdown() != HVD_SUCCESS;
}

START_TEST(millions_of_names_need_constant_memory)
{
    struct job job = job_of(shapes[1], use_millions);
    uint64_t began = clock_now();

    job_run(&job, 3000);
    ck_assert(job_succeeded(&job));
    printf("%u names in %.1f s: %.2f us each\n", long_names(), (double)(clock_now() - began) / 1e9,
           (double)(clock_now() - began) / 1e3 / long_names());
}
END_TEST

/* Without NAMES, one shape of one host and one of several: all shapes take minutes. */
#define ADD_LOOP(test, from, to)                                                                             \
    do {                                                                                                     \
        bool all = getenv("NAMES") != NULL;                                                                  \
        tcase_add_loop_test(tc, test, all ? from : 1, all ? to : 2);                                         \
        if (!all && to > 3)                                                                                  \
            tcase_add_loop_test(tc, test, 3, 4);                                                             \
    } while (0)

int main(void)
{
    Suite *s = suite_create("names");
    TCase *tc = tcase_create("names");

    tcase_set_timeout(tc, 3100);
    ADD_LOOP(more_names_than_slots, 0, SHAPES);
    ADD_LOOP(several_threads_use_many_names, 1, SMALL);
    ADD_LOOP(sixteen_thousand_names_are_pending, 0, SHAPES);
    ADD_LOOP(with_all_slots_pending_a_name_is_an_error, 0, SMALL);
    ADD_LOOP(what_a_caller_still_has_is_not_forgotten, 0, SHAPES);
    ADD_LOOP(sets_use_many_names, 0, WIDE);
    ADD_LOOP(pairs_use_many_names, 1, SHAPES);
    if (getenv("NAMES"))
        tcase_add_loop_test(tc, others_use_many_names_while_ranks_have_joined, 1, SHAPES);
    else
        tcase_add_loop_test(tc, others_use_many_names_while_ranks_have_joined, 3, 4); /* ten seconds each */
    tcase_add_test(tc, a_process_alone_uses_many_names);
    tcase_add_test(tc, millions_of_names_need_constant_memory);
    suite_add_tcase(s, tc);
    return run_suite(s);
}
