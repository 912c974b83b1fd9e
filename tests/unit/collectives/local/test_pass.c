/* Broadcasts, allgathers and alltoalls of memory that only its own rank sees, on one host: real processes and
 * a real engine. Ranks wait or not, some have shared memory, and what they give has different sizes. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "tests/unit/job.h"

#define SECONDS 60
#define MOST    8 /* ranks */
#define GUARD   0x5au

/* Bytes: in an entry, a little more, around a piece, all places of pieces, and several rounds of those. */
static const size_t sizes[] = {2047, 2049, 8191, 32769, 65537, 131073, 600001, 2097153};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Ways to come: who waits, and who has shared memory. */
enum { ALL_BLOCK, SOME_BLOCK, SOME_SHARED, WAYS };

job_unwatched static uint8_t value(int rank, size_t i)
{
    return (uint8_t)((i * 7 + i / 251 + (size_t)rank * 59) % 256);
}

struct buffer {
    uint8_t *block, *at;
    size_t bytes;
    bool shared;
};

/* At an odd address, with something behind it. */
static struct buffer buffer_new(size_t bytes, bool shared)
{
    struct buffer b = {.bytes = bytes, .shared = shared};

    b.block = shared ? hvd_alloc(bytes + 4) : malloc(bytes + 4);
    job_check(b.block != NULL);
    b.at = b.block + 3;
    memset(b.at, 0, bytes);
    b.at[bytes] = GUARD;
    return b;
}

static void buffer_free(struct buffer *b)
{
    job_check(b->at[b->bytes] == GUARD);
    if (b->shared)
        hvd_free(b->block);
    else
        free(b->block);
}

job_unwatched static void check_bytes(const uint8_t *at, int rank, size_t first, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        job_check(at[i] == value(rank, first + i));
}

static bool waits(int way, int rank, size_t k)
{
    return way != SOME_BLOCK || (k + (size_t)rank) % 3 == 0;
}

static void broadcast(size_t bytes, int way, int rank, size_t k)
{
    int root = (int)(k % (size_t)hvd_size());
    struct buffer b = buffer_new(bytes, way == SOME_SHARED && (rank + (int)k) % 3 == 0);
    hvd_handle h;

    for (size_t i = 0; rank == root && i < bytes; i++)
        b.at[i] = value(root, i);
    if (waits(way, rank, k))
        job_check(hvd_broadcast("b", b.at, bytes, HVD_UINT8, root, NULL) == HVD_SUCCESS);
    else
        job_check(!hvd_broadcast_async("b", b.at, bytes, HVD_UINT8, root, NULL, &h) && !hvd_wait(h));
    check_bytes(b.at, root, 0, bytes);
    buffer_free(&b);
}

/* Rows of one byte that a rank gives: the same, more with the rank, one rank alone, none of one. */
static size_t given(size_t bytes, int rank, size_t k)
{
    switch (k % 4) {
    case 0:
        return bytes;
    case 1:
        return bytes / 3 * (size_t)rank;
    case 2:
        return rank == 1 ? bytes : 0;
    default:
        return rank == 0 ? 0 : rank == 1 ? 5 : bytes;
    }
}

static void allgather(size_t bytes, int way, int rank, size_t k)
{
    size_t total = 0, rows[MOST], mine = given(bytes, rank, k);
    bool shared = way == SOME_SHARED && (rank + (int)k) % 3 == 0;
    struct buffer in = buffer_new(mine, shared), out;
    hvd_handle h;

    for (int r = 0; r < hvd_size(); r++)
        total += given(bytes, r, k);
    out = buffer_new(total, shared && k % 2);
    for (size_t i = 0; i < mine; i++)
        in.at[i] = value(rank, i);
    if (waits(way, rank, k))
        job_check(!hvd_allgather("g", in.at, mine, 1, HVD_UINT8, out.at, total, rows, NULL));
    else
        job_check(!hvd_allgather_async("g", in.at, mine, 1, HVD_UINT8, out.at, total, rows, NULL, &h) &&
                  !hvd_wait(h));
    for (size_t r = 0, at = 0; r < (size_t)hvd_size(); at += rows[r++]) {
        job_check(rows[r] == given(bytes, (int)r, k));
        check_bytes(out.at + at, (int)r, 0, rows[r]);
    }
    check_bytes(in.at, rank, 0, mine);
    buffer_free(&in);
    buffer_free(&out);
}

/* The bytes that one rank sends to another: the same to all, by a table, or to one rank alone. */
static size_t sent(size_t bytes, int from, int to, size_t k)
{
    switch (k % 3) {
    case 0:
        return bytes;
    case 1:
        return (bytes / 5) * (size_t)((from * 3 + to) % 4);
    default:
        return to == 1 ? bytes : 0;
    }
}

static void alltoall(size_t bytes, int way, int rank, size_t k)
{
    size_t give = 0, get = 0, splits[MOST], rows[MOST];
    bool shared = way == SOME_SHARED && (rank + (int)k) % 3 == 0;
    struct buffer in, out;
    hvd_handle h;

    for (int r = 0; r < hvd_size(); r++) {
        give += splits[r] = sent(bytes, rank, r, k);
        get += sent(bytes, r, rank, k);
    }
    in = buffer_new(give, shared);
    out = buffer_new(get, shared && k % 2);
    for (size_t i = 0; i < give; i++)
        in.at[i] = value(rank, i);
    const size_t *table = k % 3 ? splits : NULL;
    if (waits(way, rank, k))
        job_check(!hvd_alltoall("a", in.at, give, table, 1, HVD_UINT8, out.at, get, rows, NULL));
    else
        job_check(!hvd_alltoall_async("a", in.at, give, table, 1, HVD_UINT8, out.at, get, rows, NULL, &h) &&
                  !hvd_wait(h));
    for (int r = 0; r < hvd_size(); r++) {
        size_t first = 0, at = 0;
        for (int q = 0; q < rank; q++)
            first += sent(bytes, r, q, k);
        for (int q = 0; q < r; q++)
            at += sent(bytes, q, rank, k);
        job_check(rows[r] == sent(bytes, r, rank, k));
        check_bytes(out.at + at, r, first, rows[r]);
    }
    check_bytes(in.at, rank, 0, give);
    buffer_free(&in);
    buffer_free(&out);
}

static int moves(const struct job *job, int rank)
{
    int way = *(const int *)job->ctx;

    job_check(hvd_init() == HVD_SUCCESS);
    for (size_t k = 0; k < 3 * SIZES; k++) {
        size_t bytes = sizes[k % SIZES];
        broadcast(bytes, way, rank, k);
        allgather(bytes, way, rank, k / SIZES + k);
        alltoall(bytes / 2, way, rank, k / SIZES + k);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

static void run(int ranks, int way)
{
    struct job job = {.hosts = 1, .per_host = ranks, .worker = moves, .ctx = &way};

    job_run(&job, SECONDS);
    ck_assert(job_succeeded(&job));
}

START_TEST(all_wait)
{
    run(_i, ALL_BLOCK);
}
END_TEST

START_TEST(some_wait)
{
    run(_i, SOME_BLOCK);
}
END_TEST

START_TEST(some_have_shared_memory)
{
    run(_i, SOME_SHARED);
}
END_TEST

/* Roots, sizes and kinds that differ: all hear of it, the next operation is right, and no input is changed.
 */
static int disagree(const struct job *job, int rank)
{
    enum { BYTES = 300000 };
    int last = job->per_host - 1;
    struct buffer in, out;

    job_check(hvd_init() == HVD_SUCCESS);
    in = buffer_new(BYTES, false);
    out = buffer_new(BYTES * (size_t)hvd_size(), false);
    for (size_t i = 0; i < BYTES; i++)
        in.at[i] = value(rank, i);
    for (int k = 0; k < 12; k++) {
        bool odd_one = rank == (k & 1 ? last : 0);
        size_t n = (size_t)hvd_size();
        if (k % 3 == 0)
            job_check(hvd_broadcast("x", in.at, BYTES, HVD_UINT8, odd_one, NULL) == HVD_ERR_MISMATCH &&
                      strstr(hvd_last_error(), "root") == NULL &&
                      strstr(hvd_last_error(), "broadcast from rank 1"));
        else if (k % 3 == 1)
            job_check(hvd_allgather("x", in.at, BYTES, 1, HVD_UINT8, out.at, BYTES * n - odd_one, NULL,
                                    NULL) == HVD_ERR_MISMATCH &&
                      strstr(hvd_last_error(), "has room for"));
        else if (odd_one)
            job_check(hvd_broadcast("x", in.at, BYTES, HVD_UINT8, 0, NULL) == HVD_ERR_MISMATCH);
        else
            job_check(hvd_alltoall("x", in.at, BYTES / n * n, NULL, 1, HVD_UINT8, out.at, BYTES * n, NULL,
                                   NULL) == HVD_ERR_MISMATCH &&
                      strstr(hvd_last_error(), "alltoall"));
        check_bytes(in.at, rank, 0, BYTES);
    }
    broadcast(BYTES, ALL_BLOCK, rank, 0);
    buffer_free(&in);
    buffer_free(&out);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(disagreement_changes_no_input)
{
    struct job job = {.hosts = 1, .per_host = _i, .worker = disagree};

    job_run(&job, SECONDS);
    ck_assert(job_succeeded(&job));
}
END_TEST

/* Tensors that fit into the entries. Ranks that differ in rows or capacity get an error; others get the right
 * result. */
static int few(const struct job *job, int rank)
{
    int32_t in[4 * MOST], out[4 * MOST + 1];
    size_t n = (size_t)job->per_host, rows[MOST];

    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < 30; k++) {
        bool odd_one = rank == k / 3 % job->per_host;
        size_t row = k % 3 == 1 && odd_one ? 2 : 1,
               room = k % 3 == 2 && (odd_one || k > 20) ? n * 2 - 1 : n * 2;
        int want = k % 3 == 0 ? HVD_SUCCESS : HVD_ERR_MISMATCH;
        for (size_t i = 0; i < 4 * MOST; i++)
            in[i] = rank * 1000 + k * 100 + (int)i;
        out[n * 2] = -1;
        job_check(hvd_allgather("few", in, 2 / row, row, HVD_INT32, out, room / row, rows, NULL) == want);
        for (size_t i = 0; i < n * 2 && !want; i++)
            job_check(out[i] == (int)(i / 2) * 1000 + k * 100 + (int)(i % 2) && rows[i / 2] == 2);
        job_check(hvd_alltoall("few", in, n * 2 / row, NULL, row, HVD_INT32, out, room / row, rows, NULL) ==
                  want);
        for (size_t i = 0; i < n * 2 && !want; i++)
            job_check(out[i] == (int)(i / 2) * 1000 + k * 100 + rank * 2 + (int)(i % 2) && rows[i / 2] == 2);
        job_check(hvd_reducescatter("few", in, n * 2 / row, row, HVD_INT32, HVD_MIN, out, NULL) ==
                  (k % 3 == 1 ? want : HVD_SUCCESS));
        for (size_t i = 0; i < 2 && k % 3 != 1; i++)
            job_check(out[i] == k * 100 + rank * 2 + (int)i);
        job_check(out[n * 2] == -1);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(few_elements)
{
    struct job job = {.hosts = 1, .per_host = _i, .worker = few};

    job_run(&job, SECONDS);
    ck_assert(job_succeeded(&job));
}
END_TEST

/* The last rank is killed in the middle of something; the others hear of it. */
static int die(const struct job *job, int rank)
{
    enum { BYTES = 8000001 };
    int way = *(const int *)job->ctx, status = HVD_SUCCESS;
    struct buffer in = {.bytes = 0}, out;

    job_check(hvd_init() == HVD_SUCCESS);
    in = buffer_new(BYTES * (size_t)hvd_size(), false);
    out = buffer_new(BYTES * (size_t)hvd_size(), false);
    if (rank == job->per_host - 1) {
        signal(SIGALRM, SIG_DFL); /* not the handler of the test program */
        struct itimerval soon = {.it_value = {0, 15000 + 7000 * way}};
        job_check(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    }
    while (status == HVD_SUCCESS)
        status = way % 3 == 0 ? hvd_broadcast("x", in.at, BYTES, HVD_UINT8, way & 1, NULL)
                 : way % 3 == 1
                     ? hvd_allgather("x", in.at, BYTES, 1, HVD_UINT8, out.at, out.bytes, NULL, NULL)
                     : hvd_alltoall("x", in.at, (size_t)hvd_size(), NULL, BYTES, HVD_UINT8, out.at,
                                    (size_t)hvd_size(), NULL, NULL);
    job_check(status == HVD_ERR_PEER && strstr(hvd_last_error(), "on node1"));
    job_check(hvd_shutdown() == HVD_ERR_PEER);
    return 0;
}

START_TEST(a_death_in_the_middle)
{
    struct job job = {.hosts = 1, .per_host = 2 + _i % 2, .worker = die, .ctx = &_i};

    job_run(&job, SECONDS);
    ck_assert(!job.timed_out);
    for (int r = 0; r + 1 < job.per_host; r++)
        ck_assert_int_eq(job.status[r], 0);
    ck_assert(WIFSIGNALED(job.status[job.per_host - 1]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass");
    TCase *tc = tcase_create("pass");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, all_wait, 1, 6);
    tcase_add_loop_test(tc, some_wait, 2, 5);
    tcase_add_loop_test(tc, some_have_shared_memory, 2, 5);
    tcase_add_loop_test(tc, disagreement_changes_no_input, 2, 5);
    tcase_add_loop_test(tc, few_elements, 2, 5);
    tcase_add_loop_test(tc, a_death_in_the_middle, 0, 6);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
