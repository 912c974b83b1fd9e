/* Process sets that only their own ranks make and close: hvd_set_open, hvd_set_close. Real processes and
 * engines, on one host and on several (job.c). */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

static struct notes {
    _Atomic int go;
    char text[JOB_RANKS_MAX][512];
} * notes;

static void share_notes(void)
{
    notes = job_shared(sizeof *notes);
}

static const struct job_shape shapes[] = {{1, 3, false}, {1, 4, false}, {2, 2, false}, {3, 1, false},
                                          {3, 2, false}, {2, 2, true},  {3, 2, true}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static void check_sum(hvd_set set, const int *ranks, int n, size_t count)
{
    hvd_options o = {.set = set};
    int32_t *in = malloc(count * sizeof *in), want = 0;

    for (size_t i = 0; i < count; i++)
        in[i] = hvd_rank() + 1;
    for (int k = 0; k < n; k++)
        want += ranks[k] + 1;
    job_check(hvd_allreduce("x", in, in, count, HVD_INT32, HVD_SUM, &o) == HVD_SUCCESS);
    for (size_t i = 0; i < count; i++)
        job_check(in[i] == want);
    free(in);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

/* All ranks twice, the even ones, and pairs of neighbours: two sets a rank of the same name. */
static int use_many_sets(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, all[JOB_RANKS_MAX], even[JOB_RANKS_MAX], n = 0, own[JOB_RANKS_MAX];
    hvd_set a, b, c = 0, pair = 0;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < size; i++) {
        all[i] = i;
        if (i % 2 == 0)
            even[n++] = i;
    }
    for (int round = 0; round < 3; round++) {
        int partner[2] = {rank & ~1, rank | 1};
        job_check(hvd_set_open("a", all, size, &a) == HVD_SUCCESS);
        job_check(hvd_set_open("b", all, size, &b) == HVD_SUCCESS && a != b);
        if (rank % 2 == 0)
            job_check(hvd_set_open("even", even, n, &c) == HVD_SUCCESS && hvd_set_size(c) == n);
        if (partner[1] < size)
            job_check(hvd_set_open("pair", partner, 2, &pair) == HVD_SUCCESS &&
                      hvd_set_rank(pair) == rank % 2);
        check_sum(a, all, size, 3);
        check_sum(b, all, size, 200 * 1000);
        if (rank % 2 == 0)
            check_sum(c, even, n, 1000);
        if (partner[1] < size)
            check_sum(pair, partner, 2, 100 * 1000);
        check_sum(HVD_WORLD, all, size, 100);
        job_check(hvd_set_ranks(a, own) == HVD_SUCCESS && memcmp(own, all, (size_t)size * sizeof *all) == 0);
        job_check(hvd_set_close(b) == HVD_SUCCESS);
        check_sum(a, all, size, 50);
        if (rank % 2 == 0)
            job_check(hvd_set_close(c) == HVD_SUCCESS && hvd_set_size(c) == HVD_ERR_SET_UNKNOWN);
        job_check(hvd_set_close(a) == HVD_SUCCESS);
        if (partner[1] < size)
            job_check(hvd_set_close(pair) == HVD_SUCCESS);
        job_check(hvd_set_count() == 1);
    }
    job_check(hvd_set_open("left open", all, size, &a) == HVD_SUCCESS);
    check_sum(a, all, size, 5);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(sets_of_the_same_ranks_do_not_meet)
{
    job_must_succeed(job_ran(shapes[_i], use_many_sets));
}
END_TEST

/* Rank 0 is in no set, sleeps, and is not needed. */
static int without_others(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, ranks[JOB_RANKS_MAX];
    hvd_set set;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 1; i < size; i++)
        ranks[i - 1] = size - i; /* in any order */
    if (rank > 0) {
        job_check(hvd_set_open("x", ranks, size - 1, &set) == HVD_SUCCESS);
        check_sum(set, ranks, size - 1, 1000);
        job_check(hvd_set_close(set) == HVD_SUCCESS);
        atomic_fetch_add(&notes->go, 1);
    }
    while (atomic_load(&notes->go) < size - 1)
        usleep(1000);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(ranks_outside_take_no_part)
{
    job_must_succeed(job_ran(shapes[_i], without_others));
}
END_TEST

/* A tensor of a set that was closed came after this one the last time: nothing may be read of its ranks. */
static int follow_closed(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, all[JOB_RANKS_MAX];
    char name[32];
    float x = 1;

    (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < size; i++)
        all[i] = i;
    for (int round = 0; round < 50; round++) {
        hvd_options o = {0};
        job_check(hvd_set_open("s", all, size, &o.set) == HVD_SUCCESS);
        snprintf(name, sizeof name, "y%d", round);
        job_check(hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_MAX, NULL) == HVD_SUCCESS);
        job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_MAX, &o) == HVD_SUCCESS);
        job_check(hvd_set_close(o.set) == HVD_SUCCESS);
        void *other[32]; /* the closed set's memory has other contents now */
        for (int i = 0; i < 32; i++)
            job_check((other[i] = malloc(40 + 8 * (size_t)i)) && memset(other[i], 0xee, 40 + 8 * (size_t)i));
        job_check(hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_MAX, NULL) == HVD_SUCCESS);
        for (int i = 0; i < 32; i++)
            free(other[i]);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(nothing_is_read_of_a_closed_set)
{
    job_must_succeed(job_ran(shapes[_i], follow_closed));
}
END_TEST

/* The result of a shared allreduce ends with its set, and the set's place is free again. */
static int close_shared(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, all[JOB_RANKS_MAX];

    (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < size; i++)
        all[i] = i;
    for (int round = 0; round < 20; round++) {
        hvd_options o = {0};
        const void *result;
        int32_t one = 1;
        job_check(hvd_set_open("s", all, size, &o.set) == HVD_SUCCESS && o.set == 4096);
        job_check(hvd_allreduce_shared("x", &one, 1, HVD_INT32, HVD_SUM, &o, &result) == HVD_SUCCESS);
        job_check(*(const int32_t *)result == size);
        job_check(hvd_set_close(o.set) == HVD_SUCCESS);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_shared_result_ends_with_its_set)
{
    job_must_succeed(job_ran(shapes[_i], close_shared));
}
END_TEST

static void *open_in_thread(void *unused)
{
    hvd_set set;

    (void)unused;
    job_check(hvd_set_open("pair", (int[]){0, 1}, 2, &set) == HVD_SUCCESS);
    return NULL;
}

/* Rank 0 adds a set of the world in one thread and opens one in another; rank 1 does one after the other. */
static int add_beside(const struct job *job, int rank)
{
    pthread_t thread;
    hvd_set set;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    if (rank == 1)
        usleep(50000); /* rank 0 waits in hvd_set_add */
    if (rank == 0)
        job_check(pthread_create(&thread, NULL, open_in_thread, NULL) == 0);
    if (rank == 1)
        open_in_thread(NULL);
    job_check(hvd_set_add((int[]){0, 2}, 2, &set) == HVD_SUCCESS);
    if (rank == 0)
        pthread_join(thread, NULL);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_set_is_opened_while_another_is_added)
{
    job_must_succeed(job_ran(shapes[_i], add_beside));
}
END_TEST

/* ---- errors -------------------------------------------------------------------------------------------- */

static int give_wrong_arguments(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, all[JOB_RANKS_MAX];
    char name[300];
    hvd_set set, added;
    hvd_handle handle;
    float x = 0;

    job_check(hvd_set_open("x", &rank, 1, &set) == HVD_ERR_NOT_INITIALIZED);
    job_check(hvd_init() == HVD_SUCCESS);
    memset(name, 'n', sizeof name);
    name[241] = '\0';
    for (int i = 0; i < size; i++)
        all[i] = i;
    job_check(hvd_set_open("x", all, size, NULL) == HVD_ERR_INVALID);
    job_check(hvd_set_open("", all, size, &set) == HVD_ERR_INVALID);
    job_check(hvd_set_open(name, all, size, &set) == HVD_ERR_INVALID);
    job_check(hvd_set_open("x", (int[]){0, 0}, 2, &set) == HVD_ERR_INVALID);
    job_check(hvd_set_open("x", (int[]){(rank + 1) % size}, 1, &set) == HVD_ERR_SET_FOREIGN);
    job_check(hvd_set_close(HVD_WORLD) == HVD_ERR_INVALID);
    job_check(hvd_set_close(4100) == HVD_ERR_SET_UNKNOWN);
    job_check(hvd_set_add(all, 2, &added) == HVD_SUCCESS && hvd_set_close(added) == HVD_ERR_INVALID);
    /* rank 1 has a list of its own */
    job_check(hvd_set_open("x", all, rank == 1 ? 2 : size, &set) == HVD_ERR_MISMATCH);
    job_check(strstr(hvd_last_error(), "process set \"x\": rank 1 does not open it with the same ranks"));
    job_check(set == HVD_WORLD && hvd_set_count() == 2);
    job_check(hvd_set_open("x", all, size, &set) == HVD_SUCCESS);
    job_check(hvd_set_remove(set) == HVD_ERR_INVALID && strstr(hvd_last_error(), "hvd_set_close"));
    if (rank == 0) {
        hvd_options o = {.set = set};
        job_check(hvd_allreduce_init("p", &x, &x, 1, HVD_FLOAT32, HVD_SUM, &o, &handle) == HVD_SUCCESS);
        job_check(hvd_set_close(set) == HVD_ERR_IN_PROGRESS);
        job_check(hvd_handle_free(handle) == HVD_SUCCESS);
    }
    check_sum(set, all, size, 10);
    job_check(hvd_set_close(set) == HVD_SUCCESS);
    job_check(hvd_set_close(set) == HVD_ERR_SET_UNKNOWN);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(what_is_wrong_with_a_set_is_said)
{
    job_must_succeed(job_ran(shapes[_i], give_wrong_arguments));
}
END_TEST

/* The last rank dies while the others wait for it to open a set. */
static int one_dies(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, all[JOB_RANKS_MAX], status;
    hvd_set set;

    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < size; i++)
        all[i] = i;
    atomic_fetch_add(&notes->go, 1);
    if (rank == size - 1) {
        while (atomic_load(&notes->go) < size)
            usleep(1000);
        usleep(20000);
        raise(SIGKILL);
    }
    status = hvd_set_open("x", all, size, &set);
    job_check(status == HVD_ERR_PEER);
    snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
    return 0;
}

START_TEST(a_death_ends_the_wait_for_a_set)
{
    struct job job = job_ran(shapes[_i], one_dies);
    int last = job.hosts * job.per_host - 1;
    char want[32];

    snprintf(want, sizeof want, "rank %d on node%d", last, job.hosts);
    for (int i = 0; i < last; i++) {
        ck_assert_int_eq(job.status[i], 0);
        ck_assert_msg(strstr(notes->text[i], want), "rank %d: %s", i, notes->text[i]);
    }
}
END_TEST

/* ---- many ---------------------------------------------------------------------------------------------- */

static long memory_of(pid_t pid)
{
    char path[64], line[256];
    long kilobytes = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    job_check(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld", &kilobytes) == 1)
            break;
    fclose(file);
    return kilobytes;
}

/* The most memory of this process and of its engine that any look in each third of the rounds saw. The
 * allocator gives memory back at times of its own: single looks differ by 0.7 MiB, the highest of many looks
 * by 0.3 MiB. */
struct peaks {
    long own[3], engine[3];
};

static void raise_peaks(struct peaks *peaks, int third, pid_t engine)
{
    long own = memory_of(getpid()), its = memory_of(engine);

    peaks->own[third] = own > peaks->own[third] ? own : peaks->own[third];
    peaks->engine[third] = its > peaks->engine[third] ? its : peaks->engine[third];
}

/* Each rank is in sets of two kinds, which come and go; the engine and the rank forget them. */
static int come_and_go(const struct job *job, int rank)
{
    const char *wanted = getenv("SETS");
    int size = job->hosts * job->per_host, all[JOB_RANKS_MAX],
        rounds = wanted ? (int)strtol(wanted, NULL, 10) : 4500;
    struct peaks peaks = {0};

    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < size; i++)
        all[i] = i;
    for (int round = 0; round < rounds; round++) {
        hvd_set set;
        int n = round % 3 == 0 ? 2 : size;
        char name[32];
        snprintf(name, sizeof name, "group %d", round);
        if (rank < n) {
            job_check(hvd_set_open(name, all, n, &set) == HVD_SUCCESS);
            check_sum(set, all, n, round % 100 == 0 ? 10000 : 1);
            job_check(hvd_set_close(set) == HVD_SUCCESS);
        }
        if (round % 8 == 0)
            raise_peaks(&peaks, (int)(3L * round / rounds), job->engine[job_host(job, rank)]);
    }
    long own = peaks.own[2] - peaks.own[1], engine = peaks.engine[2] - peaks.engine[1];
    if (getenv("ASAN_OPTIONS") || getenv("TSAN_OPTIONS")) /* sanitizers keep freed memory for a while */
        own = engine = 0;
    if (own > 1024 || engine > 1024)
        fprintf(stderr, "rank %d: %ld KiB more, its engine: %ld KiB more\n", rank, own, engine);
    job_check(own <= 1024 && engine <= 1024);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(sets_come_and_go_in_constant_memory)
{
    struct job job = job_of(shapes[_i], come_and_go);

    job_run(&job, 900);
    job_must_succeed(job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("opened_sets");
    TCase *tc = tcase_create("opened_sets");

    tcase_set_timeout(tc, 900);
    tcase_add_checked_fixture(tc, share_notes, NULL);
    tcase_add_loop_test(tc, sets_of_the_same_ranks_do_not_meet, 0, SHAPES);
    tcase_add_loop_test(tc, ranks_outside_take_no_part, 0, SHAPES);
    tcase_add_loop_test(tc, nothing_is_read_of_a_closed_set, 0, SHAPES);
    tcase_add_loop_test(tc, a_shared_result_ends_with_its_set, 0, SHAPES);
    tcase_add_loop_test(tc, a_set_is_opened_while_another_is_added, 0, SHAPES);
    tcase_add_loop_test(tc, what_is_wrong_with_a_set_is_said, 0, SHAPES);
    tcase_add_loop_test(tc, a_death_ends_the_wait_for_a_set, 0, SHAPES);
    tcase_add_loop_test(tc, sets_come_and_go_in_constant_memory, 0, 3);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
