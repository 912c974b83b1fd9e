/* Process sets, sends and receives: real processes and engines, on one host and on several (job.c). */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "collectives/shm/team.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

static struct notes {
    _Atomic int go;
    _Atomic uint64_t died_at;
    char text[JOB_RANKS_MAX][512];
} * notes;

static void setup(void)
{
    notes = job_shared(sizeof *notes);
}

/* all with at least 3 ranks */
static const struct job_shape shapes[] = {{1, 3, false}, {1, 4, false}, {2, 2, false}, {3, 1, false},
                                          {3, 2, false}, {2, 2, true},  {3, 2, true}};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* ---- every kind in a set ------------------------------------------------------------------------------- */

static int32_t value(int rank, size_t i)
{
    return (int32_t)(i % 97) + 1000 * (rank + 1);
}

static void fill(int32_t *in, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        in[i] = value(rank, i);
}

static void check_allreduce(const hvd_options *o, const int *ranks, int n, size_t count, bool shared)
{
    int32_t *in = shared ? hvd_alloc(count * 4) : malloc(count * 4);
    int32_t *out = shared ? hvd_alloc(count * 4) : malloc(count * 4);

    fill(in, count, hvd_rank());
    job_check(hvd_allreduce("x", in, out, count, HVD_INT32, HVD_SUM, o) == HVD_SUCCESS);
    for (size_t i = 0; i < count; i++) {
        int32_t want = 0;
        for (int k = 0; k < n; k++)
            want += value(ranks[k], i);
        job_check(out[i] == want);
    }
    job_check(hvd_allreduce("x", in, out, count, HVD_INT32, HVD_AVERAGE, o) == HVD_SUCCESS);
    int32_t want = 0;
    for (int k = 0; k < n; k++)
        want += value(ranks[k], 0);
    job_check(out[0] == want / n);
    if (shared) {
        hvd_free(in);
        hvd_free(out);
    } else {
        free(in);
        free(out);
    }
}

static void check_rows(const hvd_options *o, const int *ranks, int n, size_t row)
{
    int me = hvd_set_rank(o->set);
    size_t rows[JOB_RANKS_MAX], all = 0, at = 0;
    int32_t *in = malloc(row * 64 * 4), *out = malloc(row * 64 * 4);

    for (int k = 0; k < n; k++)
        all += (size_t)k + 1;
    fill(in, row * 64, hvd_rank());
    job_check(hvd_allgather("g", in, (size_t)me + 1, row, HVD_INT32, out, all, rows, o) == HVD_SUCCESS);
    for (int k = 0; k < n; k++) {
        job_check(rows[k] == (size_t)k + 1);
        for (size_t i = 0; i < row * rows[k]; i++)
            job_check(out[at * row + i] == value(ranks[k], i));
        at += rows[k];
    }
    job_check(hvd_alltoall("a", in, (size_t)n, NULL, row, HVD_INT32, out, (size_t)n, rows, o) == HVD_SUCCESS);
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < row; i++)
            job_check(out[(size_t)k * row + i] == value(ranks[k], (size_t)me * row + i));
    job_check(hvd_reducescatter("s", in, (size_t)n, row, HVD_INT32, HVD_SUM, out, o) == HVD_SUCCESS);
    for (size_t i = 0; i < row; i++) {
        int32_t want = 0;
        for (int k = 0; k < n; k++)
            want += value(ranks[k], (size_t)me * row + i);
        job_check(out[i] == want);
    }
    fill(in, row, hvd_rank());
    job_check(hvd_broadcast("b", in, row, HVD_INT32, n - 1, o) == HVD_SUCCESS);
    for (size_t i = 0; i < row; i++)
        job_check(in[i] == value(ranks[n - 1], i));
    free(in);
    free(out);
}

static void use_set(const int *ranks, int n)
{
    hvd_options o = {0};
    int got[JOB_RANKS_MAX], me = -1;
    const void *result;

    job_check(hvd_set_add(ranks, n, &o.set) == HVD_SUCCESS);
    job_check(hvd_set_size(o.set) == n && hvd_set_ranks(o.set, got) == HVD_SUCCESS);
    for (int k = 0; k < n; k++) {
        job_check(got[k] == ranks[k]);
        me = ranks[k] == hvd_rank() ? k : me;
    }
    job_check(hvd_set_rank(o.set) == (me < 0 ? HVD_ERR_SET_FOREIGN : me));
    if (me < 0) {
        job_check(hvd_barrier(&o) == HVD_ERR_SET_FOREIGN);
        return;
    }
    for (int round = 0; round < 3; round++) {
        check_allreduce(&o, ranks, n, 3, false);
        check_allreduce(&o, ranks, n, 300 * 1000, false);
        check_allreduce(&o, ranks, n, 50 * 1000, true);
        check_rows(&o, ranks, n, 2);
        check_rows(&o, ranks, n, 5000);
        job_check(hvd_barrier(&o) == HVD_SUCCESS);
        int32_t one = 1;
        job_check(hvd_allreduce_shared("sh", &one, 1, HVD_INT32, HVD_SUM, &o, &result) == HVD_SUCCESS &&
                  *(const int32_t *)result == n);
    }
}

static int all_kinds(const struct job *job, int rank)
{
    int ranks[JOB_RANKS_MAX], n, size = job->hosts * job->per_host;
    hvd_set ids[8];

    (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    /* the first and the last; all but the first; the second alone; the ranks of the last host and one more */
    ranks[0] = 0, ranks[1] = size - 1;
    use_set(ranks, 2);
    for (n = 0; n < size - 1; n++)
        ranks[n] = n + 1;
    use_set(ranks, n);
    ranks[0] = 1;
    use_set(ranks, 1);
    job_check(hvd_set_count() == 4 && hvd_set_ids(ids) == HVD_SUCCESS && ids[0] == 0 && ids[3] == 3);
    job_check(hvd_set_remove(2) == HVD_SUCCESS);
    job_check(hvd_set_count() == 3 && hvd_set_ids(ids) == HVD_SUCCESS && ids[2] == 3);
    job_check(hvd_set_size(2) == HVD_ERR_SET_UNKNOWN && strstr(hvd_last_error(), "no process set 2"));
    ranks[0] = 1, ranks[1] = 2;
    use_set(ranks, 2);
    job_check(hvd_set_ids(ids) == HVD_SUCCESS && ids[3] == 4);
    check_allreduce(NULL, (int[]){0, 1, 2, 3, 4, 5}, size, 100, false);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(sets_do_every_kind)
{
    job_must_succeed(job_ran(shapes[_i], all_kinds));
}
END_TEST

/* ---- independence -------------------------------------------------------------------------------------- */

/* Ranks 0 and 1 have their set, 0 and the last theirs. The last one comes late to its set: that set's
 * operation, submitted first, does not hold up the other's. */
static int independent(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, last = size - 1;
    hvd_options a = {0}, b = {0};
    hvd_handle late = 0;
    float x = 1, y;

    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_set_add((int[]){0, last}, 2, &a.set) == HVD_SUCCESS);
    job_check(hvd_set_add((int[]){0, 1}, 2, &b.set) == HVD_SUCCESS);
    if (rank == 0)
        job_check(hvd_allreduce_async("same", &x, &y, 1, HVD_FLOAT32, HVD_SUM, &a, &late) == HVD_SUCCESS);
    for (int i = 0; rank <= 1 && i < 100; i++) {
        float z = 2, sum = 0;
        job_check(hvd_allreduce("same", &z, &sum, 1, HVD_FLOAT32, HVD_SUM, &b) == HVD_SUCCESS && sum == 4);
    }
    if (rank == 0) {
        job_check(hvd_poll(late) == 0);
        atomic_store(&notes->go, 1);
        job_check(hvd_wait(late) == HVD_SUCCESS && y == 2);
    }
    while (rank == last && !atomic_load(&notes->go))
        usleep(1000);
    if (rank == last)
        job_check(hvd_allreduce("same", &x, &y, 1, HVD_FLOAT32, HVD_SUM, &a) == HVD_SUCCESS && y == 2);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(a_late_set_holds_no_other_up)
{
    job_must_succeed(job_ran(shapes[_i], independent));
}
END_TEST

/* ---- errors -------------------------------------------------------------------------------------------- */

static int wrong(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    hvd_options o = {.set = 17};
    hvd_set set = 5;
    float x = 0;

    job_check(hvd_set_add((int[]){0}, 1, &set) == HVD_ERR_NOT_INITIALIZED);
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, &o) == HVD_ERR_SET_UNKNOWN);
    job_check(hvd_set_add(NULL, 1, &set) == HVD_ERR_INVALID);
    job_check(hvd_set_add((int[]){0}, 0, &set) == HVD_ERR_INVALID);
    job_check(hvd_set_add((int[]){0, size}, 2, &set) == HVD_ERR_INVALID);
    job_check(hvd_set_add((int[]){1, 0, 1}, 3, &set) == HVD_ERR_INVALID && strstr(hvd_last_error(), "twice"));
    job_check(hvd_set_remove(HVD_WORLD) == HVD_ERR_INVALID);
    job_check(hvd_set_remove(3) == HVD_ERR_SET_UNKNOWN);
    /* rank 2 says something else */
    job_check(hvd_set_add((int[]){0, rank == 2 ? 2 : 1}, 2, &set) == HVD_ERR_MISMATCH);
    job_check(strstr(hvd_last_error(), "process set 1: rank ") && hvd_set_count() == 1);
    job_check(hvd_set_add((int[]){1, 0}, 2, &set) == HVD_SUCCESS && set == 2);
    job_check(hvd_set_add((int[]){0, 1}, 2, &o.set) == HVD_ERR_SET_EXISTS);
    o.set = set;
    if (rank == 0) {
        hvd_handle h;
        job_check(hvd_broadcast("x", &x, 1, HVD_FLOAT32, 2, &o) == HVD_ERR_INVALID);
        job_check(hvd_allreduce_init("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, &o, &h) == HVD_SUCCESS);
        job_check(hvd_set_remove(set) == HVD_ERR_IN_PROGRESS);
        job_check(hvd_handle_free(h) == HVD_SUCCESS);
    }
    if (rank <= 1) { /* a mismatch is the set's own business, and names ranks of the job */
        job_check(hvd_allreduce("m", &x, &x, 1, HVD_FLOAT32, rank ? HVD_MAX : HVD_SUM, &o) ==
                  HVD_ERR_MISMATCH);
        job_check(strstr(hvd_last_error(), "rank 0") && strstr(hvd_last_error(), "rank 1"));
    }
    job_check(hvd_set_remove(set) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    job_check(hvd_set_size(0) == HVD_ERR_NOT_INITIALIZED);
    return 0;
}

START_TEST(what_is_wrong_with_a_set_is_said)
{
    job_must_succeed(job_ran(shapes[_i], wrong));
}
END_TEST

/* The last rank dies while the others work in a set without it. */
static int outsider_dies(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, ranks[JOB_RANKS_MAX], status;
    hvd_options o = {0};
    float x = 1;

    for (int i = 0; i < size - 1; i++)
        ranks[i] = i;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_set_add(ranks, size - 1, &o.set) == HVD_SUCCESS);
    atomic_fetch_add(&notes->go, rank != size - 1);
    if (rank == size - 1) {
        while (atomic_load(&notes->go) < size - 1)
            usleep(1000);
        atomic_store(&notes->died_at, clock_now());
        raise(SIGKILL);
    }
    while ((status = hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_MAX, &o)) == HVD_SUCCESS)
        ;
    job_check(status == HVD_ERR_PEER);
    job_check(clock_now() - atomic_load(&notes->died_at) < 5 * NSEC_PER_SEC);
    snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
    return 0;
}

START_TEST(a_death_outside_of_a_set_ends_its_calls)
{
    struct job job = job_ran(shapes[_i], outsider_dies);
    int size = job.hosts * job.per_host;
    char want[32];

    snprintf(want, sizeof want, "rank %d on node%d", size - 1, job.hosts);
    for (int i = 0; i < size - 1; i++) {
        ck_assert_int_eq(job.status[i], 0);
        /* Under an emulator the session may be later with the reason than the engine waits for it. */
        ck_assert_msg(strstr(notes->text[i], want) && (is_emulated() || strstr(notes->text[i], "signal 9")),
                      "rank %d: %s", i, notes->text[i]);
    }
}
END_TEST

/* ---- two ranks ----------------------------------------------------------------------------------------- */

/* A ring of sends, small and large, both directions between neighbours at once. */
static int ring(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host, next = (rank + 1) % size, before = (rank + size - 1) % size;
    hvd_options o = {0};
    static const size_t counts[] = {0, 5, 100 * 1000};

    job_check(hvd_init() == HVD_SUCCESS);
    for (int round = 0; round < 3 * 4; round++) {
        size_t count = counts[round % 3];
        int32_t *in = malloc(count * 4 + 1), *out = malloc(count * 4 + 1);
        hvd_handle to, from;
        fill(in, count, rank + round);
        job_check(hvd_send_async("right", in, count, HVD_INT32, next, NULL, &to) == HVD_SUCCESS);
        job_check(hvd_recv_async("right", out, count, HVD_INT32, before, NULL, &from) == HVD_SUCCESS);
        job_check(hvd_wait(from) == HVD_SUCCESS && hvd_wait(to) == HVD_SUCCESS);
        for (size_t i = 0; i < count; i++)
            job_check(out[i] == value(before + round, i) && in[i] == value(rank + round, i));
        free(in);
        free(out);
    }
    float x = (float)rank;
    job_check(hvd_send("s", &x, 1, HVD_FLOAT32, rank, NULL) == HVD_ERR_INVALID);
    job_check(hvd_recv("s", &x, 1, HVD_FLOAT32, size, NULL) == HVD_ERR_INVALID);
    /* by index in a set; then ranks that disagree */
    job_check(hvd_set_add((int[]){1, size - 1}, 2, &o.set) == HVD_SUCCESS);
    if (rank == 1)
        job_check(hvd_send("s", &x, 1, HVD_FLOAT32, 1, &o) == HVD_SUCCESS);
    if (rank == size - 1)
        job_check(hvd_recv("s", &x, 1, HVD_FLOAT32, 0, &o) == HVD_SUCCESS && x == 1);
    if (rank == 1)
        job_check(hvd_send("m", &x, 1, HVD_FLOAT32, size - 1, NULL) == HVD_ERR_MISMATCH);
    if (rank == size - 1) {
        int32_t y[2];
        job_check(hvd_recv("m", y, 2, HVD_INT32, 1, NULL) == HVD_ERR_MISMATCH);
        job_check(strstr(hvd_last_error(), "float32") && strstr(hvd_last_error(), "rank 1"));
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(two_ranks_send_and_receive)
{
    job_must_succeed(job_ran(shapes[_i], ring));
}
END_TEST

/* ---- hvd_init again ------------------------------------------------------------------------------------ */

/* Three times in one process; sets and names begin anew, a handle of before is none. */
static int again(const struct job *job, int rank)
{
    int size = job->hosts * job->per_host;
    hvd_handle old = 0;
    void *memory;

    for (int epoch = 0; epoch < 3; epoch++) {
        hvd_options o = {0};
        float x = (float)rank, sum;
        job_check(hvd_init() == HVD_SUCCESS && hvd_size() == size && hvd_set_count() == 1);
        job_check(old == 0 || (hvd_wait(old) == HVD_ERR_INVALID && hvd_poll(old) == HVD_ERR_INVALID));
        job_check(hvd_set_add((int[]){size - 1, 0}, 2, &o.set) == HVD_SUCCESS && o.set == 1);
        if (rank == 0 || rank == size - 1)
            check_allreduce(&o, (int[]){0, size - 1}, 2, 1000, false);
        for (int i = 0; i <= epoch; i++) {
            job_check(hvd_allreduce_async("x", &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL, &old) == HVD_SUCCESS);
            job_check(hvd_wait(old) == HVD_SUCCESS && sum == (float)(size * (size - 1) / 2));
        }
        check_allreduce(NULL, (int[]){0, 1, 2, 3, 4, 5}, size, 100 * 1000, true);
        job_check((memory = hvd_alloc(100)) != NULL);
        if (rank == epoch)
            usleep(30000); /* the others come to the shutdown, and the engines to the end of it, first */
        job_check(hvd_shutdown() == HVD_SUCCESS);
        job_check(hvd_wait(old) == HVD_ERR_NOT_INITIALIZED);
        if (rank == (epoch + 1) % size)
            usleep(30000); /* the others are in the next epoch already */
    }
    return 0;
}

START_TEST(a_job_may_begin_again)
{
    struct job job = job_ran(shapes[_i], again);

    ck_assert(job_succeeded(&job));
    ck_assert_int_eq(job.initialized, 3 * job.hosts * job.per_host);
    ck_assert_int_eq(job.shut_down, 3 * job.hosts * job.per_host);
}
END_TEST

/* One rank does not come again: the others do not wait for it. */
static int all_but_one_again(const struct job *job, int rank)
{
    job_check(hvd_init() == HVD_SUCCESS && hvd_shutdown() == HVD_SUCCESS);
    if (rank == job->hosts * job->per_host - 1)
        return 0;
    job_check(hvd_init() == HVD_ERR_PEER);
    snprintf(notes->text[rank], sizeof notes->text[rank], "%s", hvd_last_error());
    /* Each rank stays until all have read the error: the missing rank's end must be reported first. */
    atomic_fetch_add(&notes->go, 1);
    while (atomic_load(&notes->go) < job->hosts * job->per_host - 1)
        usleep(1000);
    return 0;
}

START_TEST(who_does_not_come_again_is_named)
{
    struct job job = job_ran(shapes[_i], all_but_one_again);
    int last = job.hosts * job.per_host - 1;
    char want[32];

    snprintf(want, sizeof want, "rank %d on node%d", last, job.hosts);
    ck_assert(!job.timed_out);
    for (int i = 0; i < last; i++) {
        ck_assert_int_eq(job.status[i], 0);
        ck_assert_msg(strstr(notes->text[i], want), "rank %d: %s", i, notes->text[i]);
    }
}
END_TEST

/* The second of three hosts settles the shutdown when the next epoch has failed already at the others: it
 * hears both at once. */
static int slow_to_settle(const struct job *job, int rank)
{
    bool last = rank == job->hosts * job->per_host - 1;

    job_check(hvd_init() == HVD_SUCCESS);
    atomic_fetch_add(&notes->go, 1);
    if (last) {
        while (atomic_load(&notes->go) < job->hosts * job->per_host)
            usleep(1000);
        usleep(300000); /* the others are in the shutdown, and their engines have said so */
        job_check(kill(job->engine[1], SIGSTOP) == 0);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    if (last)
        return 0;
    job_check(hvd_init() == HVD_ERR_PEER);
    if (rank == 0) {
        usleep(50000); /* the first host's links are down */
        job_check(kill(job->engine[1], SIGCONT) == 0);
    }
    return 0;
}

START_TEST(an_epoch_ends_well_when_the_next_has_failed)
{
    struct job job = job_ran((struct job_shape){3, 2, false}, slow_to_settle);

    ck_assert(job_succeeded(&job));
    ck_assert_int_eq(job.shut_down, 6);
}
END_TEST

/* ---- teams --------------------------------------------------------------------------------------------- */

START_TEST(a_team_knows_its_members)
{
    static const uint32_t ranks[] = {1, 4, 6, 9};
    static const uint32_t here[] = {0, 4, 5, 9};
    struct team *t = team_new(3, ranks, 4, here, 4);

    ck_assert_uint_eq(t->members, 2);
    ck_assert_uint_eq(team_rank(t, 0), 4);
    ck_assert_uint_eq(team_rank(t, 1), 9);
    ck_assert_uint_eq(t->local[0], 1);
    ck_assert_uint_eq(t->local[1], 3);
    ck_assert_uint_eq(team_member(t, 3), 1);
    ck_assert_uint_eq(team_member(t, 2), UINT32_MAX);
    ck_assert(!team_is_here(t) && team_same_ranks(t, ranks, 4) && !team_same_ranks(t, ranks, 3));
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(team_index(t, ranks[i]), i);
    ck_assert_uint_eq(team_index(t, 0), UINT32_MAX);
    ck_assert_uint_eq(team_index(t, 5), UINT32_MAX);
    ck_assert_uint_eq(team_index(t, 10), UINT32_MAX);
    free(t);
}
END_TEST

START_TEST(pairs_have_ids_of_their_own)
{
    uint32_t rank[2];
    int64_t before = (int64_t)team_pair_id(0, 1) - 1;

    for (uint32_t high = 1; high < 100; high++)
        for (uint32_t low = 0; low < high; low++) {
            int32_t id = team_pair_id(high, low);
            ck_assert(id == before + 1 && id < 0 && team_pair_ranks(id, rank));
            ck_assert(rank[0] == low && rank[1] == high && id == team_pair_id(low, high));
            before = id;
        }
    int32_t last = team_pair_id(TEAM_PAIR_RANKS - 2, TEAM_PAIR_RANKS - 1);
    ck_assert(team_pair_ranks(last, rank) && rank[1] == TEAM_PAIR_RANKS - 1);
    ck_assert(!team_pair_ranks(last + 1, rank) && !team_pair_ranks(5, rank) && !team_pair_ranks(-1, rank));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sets");
    TCase *tc = tcase_create("sets");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 90);
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, a_team_knows_its_members);
    tcase_add_test(tc, pairs_have_ids_of_their_own);
    tcase_add_loop_test(tc, sets_do_every_kind, 0, SHAPES);
    tcase_add_loop_test(tc, a_late_set_holds_no_other_up, 0, SHAPES);
    tcase_add_loop_test(tc, what_is_wrong_with_a_set_is_said, 0, SHAPES);
    tcase_add_loop_test(tc, a_death_outside_of_a_set_ends_its_calls, 0, SHAPES);
    tcase_add_loop_test(tc, two_ranks_send_and_receive, 0, SHAPES);
    suite_add_tcase(suite, tc);
    tc = tcase_create("again");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, a_job_may_begin_again, 0, SHAPES);
    tcase_add_loop_test(tc, who_does_not_come_again_is_named, 0, SHAPES);
    tcase_add_test(tc, an_epoch_ends_well_when_the_next_has_failed);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
