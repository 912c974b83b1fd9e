/* Large operations in pieces between the only ranks of several hosts: results, what goes on beside them, and
 * their ends.
 *
 * needs: hvd-engine client tests/unit/job.c */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "collectives/client/link/stream.h"

#include "tests/unit/linked_ranks.h"

#define FLOATS(bytes) ((bytes) / sizeof(float))
#define LARGE         FLOATS(3u << 20) /* more than one piece for each of two to four ranks */

/* A name that is exchanged from rank to rank, and then a few large ones. */
static void sum_few(const char *name, size_t count)
{
    sum_often(name, 2);
    for (int i = 0; i < 4; i++)
        sum_once(name, count);
    job_check(was_carried(name));
}

/* ---- results ------------------------------------------------------------------------------------------- */

static int sum_large(const struct job *job, int rank)
{
    uint32_t n = (uint32_t)job->hosts;
    const size_t counts[] = {FLOATS(link_stream_above(n)) + 1, n * FLOATS(LINK_PIECE_MAX),
                             n * FLOATS(LINK_PIECE_MAX) + 16 * n, 2 * n * FLOATS(LINK_PIECE_MAX) - 1,
                             LARGE + 13};
    char name[16];
    (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        snprintf(name, sizeof name, "sum%zu", k);
        sum_few(name, counts[k]);
    }
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) { /* each name with another size */
        snprintf(name, sizeof name, "sum%zu", k);
        sum_once(name, counts[(k + 1) % 5]);
        job_check(was_carried(name));
    }
    sum_once("sum1", 2);
    job_check(was_carried("sum1"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

/* Parts follow each other, end with the last element, and differ by less than a rank may be ahead. */
START_TEST(parts_cover_all_elements)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    for (uint32_t ranks = 2; ranks <= LINK_HOSTS_MAX; ranks++)
        for (size_t k = 0; k < 4 * 130; k++) {
            size_t size = sizes[k % 4], count = (1u << 20) / size + k;
            struct link_operation o = {.op = {.count = count}, .bytes = count * size};
            size_t at = 0, least = SIZE_MAX, most = 0;
            for (uint32_t r = 0; r < ranks; r++) {
                struct link_part part = link_part_of(&o, LINK_STREAM, r, ranks);
                ck_assert(part.at == at && part.bytes == part.count * size);
                ck_assert(r == 0 || part.at % 64 == 0);
                at += part.bytes;
                least = part.bytes < least ? part.bytes : least;
                most = part.bytes > most ? part.bytes : most;
            }
            ck_assert(at == o.bytes && most - least < STREAM_AHEAD_NEAR);
        }
}
END_TEST

SUCCEEDS(large_tensors_go_from_rank_to_rank, kinds[_i], sum_large)

/* The second host is said to be another machine: ranks send ahead. */
START_TEST(large_tensors_go_to_other_machines)
{
    struct job job = job_of_kind(_i == 0 ? two : three, sum_large);
    job.elsewhere = 2;
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}
END_TEST

static int sum_through_small_sockets(const struct job *job, int rank)
{
    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    shrink_buffers(50000);
    sum_few("y", LARGE);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(pieces_may_go_by_halves, kinds[_i], sum_through_small_sockets)

/* The engines make the first result of a name, and the ranks the last one. The result has a place of its own,
 * and the elements stay as they are. */
static int compare_ways(const struct job *job, int rank)
{
    enum { BYTES = 3200000 };
    static const hvd_dtype types[] = {HVD_FLOAT32, HVD_FLOAT64, HVD_FLOAT16, HVD_BFLOAT16};
    static const size_t sizes[] = {4, 8, 2, 2};
    static const hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_PRODUCT, HVD_MIN};
    static uint32_t in[BYTES / 4], out[BYTES / 4], first[BYTES / 4], before[BYTES / 4];
    const hvd_options scaled = {.postscale = 0.3};
    char name[16];
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (uint32_t i = 0; i < BYTES / 4; i++) /* below 1 in each type, and of all signs and sizes */
        before[i] = in[i] = ((i + 1) * 2654435761u * (uint32_t)(rank + 3)) & 0xbcffbcff;
    for (int k = 0; k < 16; k++) {
        snprintf(name, sizeof name, "way%d", k);
        for (int i = 0; i <= (int)LINK_FIRST; i++) {
            size_t bytes = i > 0 && i < (int)LINK_FIRST - 1 ? 80 : BYTES;
            job_check(hvd_allreduce(name, in, out, bytes / sizes[k / 4], types[k / 4], ops[k % 4], &scaled) ==
                      HVD_SUCCESS);
            if (i == 0)
                memcpy(first, out, BYTES);
        }
        job_check(was_carried(name) && memcmp(first, out, BYTES) == 0);
    }
    job_check(memcmp(in, before, BYTES) == 0);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(both_ways_give_the_same_bits, kinds[_i], compare_ways)

/* ---- beside a stream ----------------------------------------------------------------------------------- */

static void *sum_small(void *name)
{
    for (int i = 0; i < 40 * OFTEN; i++)
        sum_once(name, i % 2 ? 2 : 3000);
    return NULL;
}

static int sum_beside(const struct job *job, int rank)
{
    pthread_t thread;
    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    shrink_buffers(65536);
    job_check(pthread_create(&thread, NULL, sum_small, "small") == 0);
    for (int i = 0; i < 8; i++)
        sum_few("large", LARGE);
    pthread_join(thread, NULL);
    job_check(was_carried("small") && was_carried("large"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(small_operations_go_on_beside_it, kinds[_i], sum_beside)

static void *sum_large_in_thread(void *name)
{
    float *x = malloc(LARGE * sizeof *x);
    for (int i = 0; i < OFTEN; i++) {
        for (size_t k = 0; k < LARGE; k++)
            x[k] = (float)(k % 1000);
        job_check(hvd_allreduce(name, x, x, LARGE, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        for (size_t k = 0; k < LARGE; k++)
            job_check(x[k] == (float)(k % 1000) * (float)client.size);
    }
    free(x);
    return NULL;
}

/* Several threads at once, in another order on each rank: one operation streams, the others go to the
 * engines. */
static int stream_in_threads(const struct job *job, int rank)
{
    static char *names[] = {"a", "b", "c"};
    pthread_t thread[3];
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < 3; i++)
        job_check(pthread_create(&thread[i], NULL, sum_large_in_thread, names[(i + rank) % 3]) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    sum_few("later", LARGE);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(there_is_one_stream_at_a_time, kinds[_i], stream_in_threads)

/* One rank's operation has a handle, is small, or has another type. */
static int leave_it(const struct job *job, int rank)
{
    static float x[LARGE];
    float *y = x;
    (void)job;
    hvd_handle handle;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_few("large", LARGE);
    for (size_t k = 0; k < LARGE; k++)
        y[k] = 1;
    if (rank == 1)
        job_check(hvd_allreduce_async("large", x, x, LARGE, HVD_FLOAT32, HVD_SUM, NULL, &handle) == 0 &&
                  hvd_wait(handle) == HVD_SUCCESS);
    else
        job_check(hvd_allreduce("large", x, x, LARGE, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(x[0] == (float)client.size && x[LARGE - 1] == (float)client.size && !was_carried("large"));
    sum_few("sizes", LARGE);
    job_check(hvd_allreduce("sizes", x, x, rank == 1 ? 2 : LARGE, HVD_FLOAT32, HVD_SUM, NULL) ==
              HVD_ERR_MISMATCH);
    sum_few("types", LARGE);
    job_check(hvd_allreduce("types", x, x, LARGE, rank == 1 ? HVD_INT32 : HVD_FLOAT32, HVD_SUM, NULL) ==
              HVD_ERR_MISMATCH);
    sum_once("sizes", LARGE);
    sum_few("more", LARGE);
    job_check(!was_carried("sizes"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_stream_that_ranks_disagree_about_goes_to_the_engines, kinds[_i], leave_it)

static uint64_t own_processor_ms(void)
{
    struct timespec t;
    job_check(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NSEC_PER_MSEC;
}

/* Rank 1 begins, sends a little, and comes back later: its pieces are missed, and those of others wait. The
 * others sleep until then. Another one says meanwhile that it stops. */
static int come_back_later(const struct job *job, int rank)
{
    static float x[LARGE];
    struct link_operation o = raw_operation("raw", x, LARGE);
    struct linked_name *linked = NULL;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    shrink_buffers(50000); /* a step does not end it */
    for (size_t k = 0; k < LARGE; k++)
        x[k] = (float)(k % 1000);
    job_check(rank_link_begin(&linked, &o, true));
    enum link_step step = LINK_WAITS;
    for (uint64_t until = clock_now() + 300 * NSEC_PER_MSEC;
         step == LINK_WAITS && clock_now() < until &&
         !(rank == 1 && rank_link_is_streaming(linked, LINK_FIRST));)
        step = rank_link_step(linked, &o);
    job_check(step == LINK_WAITS);
    usleep(rank == 1 ? 500000 : 0);
    if (rank == 0)
        rank_link_stop();
    uint64_t before = own_processor_ms();
    for (uint64_t until = clock_now() + 5 * NSEC_PER_SEC; step == LINK_WAITS && clock_now() < until;)
        if (rank_link_sleep(linked, LINK_FIRST, 20))
            step = rank_link_step(linked, &o);
    job_check(step == LINK_ENDED && own_processor_ms() - before < 150);
    for (size_t k = 0; k < LARGE; k++)
        job_check(x[k] == (float)(k % 1000) * (float)client.size);
    sum_often("y", 2);
    job_check(!was_carried("y"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

/* All ranks have begun, so the stall check has none to name, however long it takes. */
START_TEST(a_stream_ends_though_a_rank_stops)
{
    struct job job = job_of_kind(kinds[_i], come_back_later);
    job.stall_ms = 200;
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------ */

/* Rank 1 has sent elements, and fails before all has come: it ends (way 0), or ends the job and lives on (1).
 * The others get the reason, and nobody writes to their memory any more. */
static int fail_in_between(const struct job *job, int rank)
{
    static float x[4 * LARGE];
    int way = *(int *)job->ctx;
    struct link_operation o = raw_operation("x", x, 4 * LARGE);
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < (int)LINK_FIRST - 1; i++)
        sum_once("x", 2);
    sum_often("w", 2);
    shrink_buffers(50000);
    for (size_t k = 0; k < o.op.count; k++)
        x[k] = 1;
    if (rank == 1) {
        struct linked_name *linked = NULL;
        job_check(rank_link_begin(&linked, &o, true));
        size_t own = link_part_of(&o, LINK_STREAM, 1, (uint32_t)client.size).at / sizeof *x;
        while (x[own] == 1) { /* until it has a result to send */
            (void)rank_link_sleep(linked, LINK_FIRST, 1);
            job_check(rank_link_step(linked, &o) == LINK_WAITS);
        }
        if (way == 1)
            hvd_abort("a test says so");
        for (uint64_t until = clock_now() + 500 * NSEC_PER_MSEC; way == 1 && clock_now() < until;) {
            (void)rank_link_sleep(linked, LINK_FIRST, 1); /* it goes on */
            (void)rank_link_step(linked, &o);
        }
        _exit(7);
    }
    job_check(hvd_allreduce("x", x, x, 4 * LARGE, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_PEER);
    job_check(strstr(hvd_last_error(), "rank 1"));
    memset(x, 0x55, sizeof x);
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        rank_link_drain();
    }
    for (size_t k = 0; k < sizeof x; k++)
        job_check(((uint8_t *)x)[k] == 0x55);
    hvd_shutdown();
    return 7;
}

static void fail_way(struct kind kind, worker_main *worker, int way)
{
    struct job job = job_of_kind(kind, worker);
    job.ctx = &way;
    job.stall_ms = 2000;
    job_must_end(&job, 7);
}

START_TEST(a_rank_that_fails_in_a_stream_is_named)
{
    fail_way(kinds[_i / 2], fail_in_between, _i % 2);
}
END_TEST

/* Rank 1 sends a piece that nobody waits for (way 0), or one of another length (1) or operation (2). */
static int send_a_wrong_piece(const struct job *job, int rank)
{
    static float x[LARGE];
    int way = *(int *)job->ctx;
    struct link_operation o = raw_operation("x", x, LARGE);
    struct linked_name *linked = NULL;
    struct link_out out;
    size_t sent = 0;
    int status = HVD_SUCCESS;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("w", 2);
    for (int i = 0; i < (int)LINK_FIRST - 1; i++)
        sum_once("x", 2);
    if (rank == 1) {
        if (way > 0)
            job_check(rank_link_begin(&linked, &o, true));
        link_out_make_piece(&out, LINK_ELEMENTS_PIECE, LINK_FIRST + (way == 2), x,
                            way == 1 ? 64 : LINK_PIECE_MAX);
        while (!link_send(&out, 0, &sent))
            usleep(1000);
        while (status == HVD_SUCCESS)
            status = hvd_allreduce("z", x, x, 1, HVD_FLOAT32, HVD_SUM, NULL);
    } else {
        status = hvd_allreduce("x", x, x, way == 0 ? 2 : LARGE, HVD_FLOAT32, HVD_SUM, NULL);
    }
    job_check(status == HVD_ERR_PEER || status == HVD_ERR_ENGINE);
    job_check(rank == 1 || strstr(hvd_last_error(), "a piece from the rank of another host"));
    usleep(300000);
    hvd_shutdown();
    return 7;
}

START_TEST(a_wrong_piece_ends_the_job)
{
    fail_way(two, send_a_wrong_piece, _i);
}
END_TEST

/* Rank 0 is stopped while it streams. */
static int stop_in_a_stream(const struct job *job, int rank)
{
    static float x[LARGE];
    int status = HVD_SUCCESS;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_few("x", LARGE);
    if (rank == 0)
        stop_soon();
    while (status == HVD_SUCCESS)
        status = hvd_allreduce("x", x, x, LARGE, HVD_FLOAT32, HVD_SUM, NULL);
    job_check(status == HVD_ERR_PEER && strstr(hvd_last_error(), "waited for rank 0 on node1"));
    hvd_shutdown();
    return 7;
}

START_TEST(a_stopped_rank_is_what_the_others_wait_for)
{
    fail_way(kinds[_i], stop_in_a_stream, 0);
}
END_TEST

START_TEST(a_lost_engine_ends_the_waits)
{
    lose_an_engine(kinds[_i], LARGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rank stream");
    TCase *results = tcase_create("results"), *beside = tcase_create("beside"),
          *failures = tcase_create("failures");
    tcase_add_test(results, parts_cover_all_elements);
    tcase_add_loop_test(results, large_tensors_go_from_rank_to_rank, 0, KINDS);
    tcase_add_loop_test(results, large_tensors_go_to_other_machines, 0, 2);
    tcase_add_loop_test(results, pieces_may_go_by_halves, 0, KINDS);
    tcase_add_loop_test(results, both_ways_give_the_same_bits, 0, KINDS);
    tcase_add_loop_test(beside, small_operations_go_on_beside_it, 0, KINDS);
    tcase_add_loop_test(beside, there_is_one_stream_at_a_time, 0, KINDS);
    tcase_add_loop_test(beside, a_stream_that_ranks_disagree_about_goes_to_the_engines, 0, KINDS);
    tcase_add_loop_test(beside, a_stream_ends_though_a_rank_stops, 0, KINDS);
    tcase_add_loop_test(failures, a_rank_that_fails_in_a_stream_is_named, 0, 2 * KINDS);
    tcase_add_loop_test(failures, a_wrong_piece_ends_the_job, 0, 3);
    tcase_add_loop_test(failures, a_stopped_rank_is_what_the_others_wait_for, 0, 2);
    tcase_add_loop_test(failures, a_lost_engine_ends_the_waits, 0, KINDS);
    TCase *all[] = {results, beside, failures};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_set_timeout(all[i], 90);
        suite_add_tcase(suite, all[i]);
    }
    return run_suite(suite);
}
