/* The TCP backend among several engines in one process: right results, the same bits, and no hang when a host
 * dies.
 *
 * needs: auth tls algo engine */
#include "tests/unit/backend_job.h"
#include "tests/unit/processor_time.h"

static uint32_t eager_bytes, piece_bytes; /* of the requests that follow */

static int start(struct host *h, enum backend_kind kind, uint64_t sequence, void *data, uint64_t count,
                 hvd_dtype dtype, hvd_op op, uint32_t root, uint32_t hosts, struct err *e)
{
    struct backend_request r = {.kind = kind,
                                .sequence = sequence,
                                .data = data,
                                .count = count,
                                .dtype = dtype,
                                .op = op,
                                .divisor = hosts,
                                .root = root,
                                .eager_bytes = eager_bytes,
                                .piece_bytes = piece_bytes,
                                .range = on_range,
                                .done = on_done,
                                .ctx = h};
    return h->backend->ops->start(h->backend, &r, e);
}

static void start_ok(struct job *job, uint32_t i, enum backend_kind kind, uint64_t sequence, void *data,
                     uint64_t count, hvd_dtype dtype, hvd_op op, uint32_t root)
{
    struct err e = ERR_INIT;
    ck_assert_msg(start(&job->host[i], kind, sequence, data, count, dtype, op, root, job->hosts, &e) == 0,
                  "%s", e.text);
}

static void check_allreduce(struct job *job, uint64_t sequence, uint64_t count, hvd_op op, uint32_t late)
{
    float *data[HOSTS_MAX];
    uint32_t before = TOTAL(job, done);
    for (uint32_t h = 0; h < job->hosts; h++) {
        data[h] = aligned_alloc(64, (count * 4 + 127) / 64 * 64);
        for (uint64_t i = 0; i < count; i++)
            data[h][i] = value(h, i);
        job->host[h].final_bytes = 0;
    }
    for (uint32_t h = 0; h < job->hosts; h++)
        if (h != late)
            start_ok(job, h, BACKEND_ALLREDUCE, sequence, data[h], count, HVD_FLOAT32, op, 0);
    if (late < job->hosts) {
        for (int i = 0; i < 20; i++)
            turn_within(job, 1);
        start_ok(job, late, BACKEND_ALLREDUCE, sequence, data[late], count, HVD_FLOAT32, op, 0);
    }
    RUN_UNTIL(job, TOTAL(job, done) == before + job->hosts);
    all_went_well(job);
    for (uint32_t h = 0; h < job->hosts; h++) {
        check_bits(data[h], data[0], count, "host 0's", h);
        ck_assert_uint_eq(job->host[h].final_bytes, count * 4);
    }
    float *want = data[job->hosts - 1];
    for (uint64_t i = 0; i < count; i++)
        want[i] = expected(job->hosts, i, op);
    check_bits(data[0], want, job->hosts > 1 ? count : 0, "the sum in host order", 0);
    for (uint32_t h = 0; h < job->hosts; h++)
        free(data[h]);
}

START_TEST(allreduce_is_right)
{
    static const uint64_t counts[] = {0, 1, 7, 1000, 4096, 4097, 50000, 1 << 18, 1300001};
    static const hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX};
    struct job job;
    uint64_t sequence = 0;
    job_up(&job, (uint32_t)_i, 0);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t late = 0; late <= job.hosts; late += job.hosts > 1 ? job.hosts - 1 : 1) {
            sequence += 2;
            check_allreduce(&job, sequence, counts[c], ops[sequence / 2 % 4], late);
        }
    job_down(&job);
}
END_TEST

/* The same bits whatever the algorithm: eager_bytes 1 forbids the eager one. */
START_TEST(algorithms_give_the_same_bits)
{
    enum { COUNT = 3000 };
    static float result[2][COUNT];
    for (int round = 0; round < 2; round++) {
        struct job job;
        static float data[3][COUNT];
        job_up(&job, 3, round ? 1 : 65536);
        for (uint32_t h = 0; h < 3; h++)
            for (uint64_t i = 0; i < COUNT; i++)
                data[h][i] = value(h, i) / 3.0f;
        for (uint32_t h = 0; h < 3; h++)
            start_ok(&job, h, BACKEND_ALLREDUCE, 1, data[h], COUNT, HVD_FLOAT32, HVD_SUM, 0);
        RUN_UNTIL(&job, TOTAL(&job, done) == 3);
        memcpy(result[round], data[1], sizeof data[1]);
        job_down(&job);
    }
    ck_assert_mem_eq(result[0], result[1], sizeof result[0]);
}
END_TEST

/* Each operation may travel in another way. A host that is late has the first data before it knows how. */
START_TEST(how_a_request_travels_changes_no_bit)
{
    static const uint32_t how[][2] = {{1, 64}, {1024, 16384}, {262144, 1 << 20}, {65536, 1 << 18}, {0, 0}};
    static const uint64_t counts[] = {1, 1000, 50000, 300001};
    struct job job;
    uint64_t sequence = 0;
    float x = 0;
    job_up(&job, (uint32_t)_i, 0);
    for (size_t k = 0; k < sizeof how / sizeof *how; k++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (uint32_t late = 0; late < job.hosts; late++) {
                eager_bytes = how[k][0];
                piece_bytes = how[k][1];
                check_allreduce(&job, ++sequence, counts[c], HVD_SUM, late);
            }
    static const uint32_t wrong[][2] = {
        {BACKEND_EAGER_MAX + 1, 64}, {64, 65}, {64, 192}, {64, 2 * BACKEND_PIECE_MAX}};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        struct err e = ERR_INIT;
        eager_bytes = wrong[k][0];
        piece_bytes = wrong[k][1];
        ck_assert_int_eq(start(&job.host[0], BACKEND_ALLREDUCE, sequence + 1, &x, 1, HVD_FLOAT32, HVD_SUM, 0,
                               job.hosts, &e),
                         -1);
        ck_assert_ptr_nonnull(strstr(e.text, "pieces"));
    }
    eager_bytes = piece_bytes = 0;
    job_down(&job);
}
END_TEST

START_TEST(broadcast_is_right)
{
    static const uint64_t counts[] = {0, 1, 1000, 100000, 500000};
    struct job job;
    uint64_t sequence = 0;
    job_up(&job, (uint32_t)_i, 0);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t root = 0; root < job.hosts; root++) {
            int64_t *data[HOSTS_MAX];
            uint32_t before = TOTAL(&job, done);
            sequence++;
            for (uint32_t h = 0; h < job.hosts; h++) {
                data[h] = malloc(counts[c] * 8 + 8);
                for (uint64_t i = 0; i < counts[c]; i++)
                    data[h][i] = (int64_t)(i * 3 + h);
            }
            for (uint32_t h = job.hosts; h-- > 0;)
                start_ok(&job, h, BACKEND_BROADCAST, sequence, data[h], counts[c], HVD_INT64, 0, root);
            RUN_UNTIL(&job, TOTAL(&job, done) == before + job.hosts);
            all_went_well(&job);
            for (uint32_t h = 0; h < job.hosts; h++) {
                uint64_t wrong = 0;
                for (uint64_t i = 0; i < counts[c]; i++)
                    wrong += data[h][i] != (int64_t)(i * 3 + root);
                ck_assert_uint_eq(wrong, 0);
                free(data[h]);
            }
        }
    job_down(&job);
}
END_TEST

START_TEST(several_operations_in_flight)
{
    enum { COUNT = 200000 };
    static float data[3][BACKEND_IN_FLIGHT_MAX][COUNT];
    struct job job;
    struct err e = ERR_INIT;
    job_up(&job, 3, 0);
    for (uint32_t h = 0; h < 3; h++)
        for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX; k++)
            for (uint64_t i = 0; i < COUNT; i++)
                data[h][k][i] = value(h, i + k);
    for (uint32_t h = 0; h < 3; h++) { /* small and large, and a barrier among them */
        for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX - 1; k++)
            start_ok(&job, h, BACKEND_ALLREDUCE, k + 1, data[h][k], k == 1 ? 100 : COUNT, HVD_FLOAT32,
                     HVD_SUM, 0);
        start_ok(&job, h, BACKEND_BARRIER, BACKEND_IN_FLIGHT_MAX, NULL, 0, 0, 0, 0);
        ck_assert_int_eq(start(&job.host[h], BACKEND_BARRIER, 9, NULL, 0, 0, 0, 0, 3, &e), -1);
        for (int i = 0; i < 3 && h < 2; i++)
            turn_within(&job, 1);
    }
    RUN_UNTIL(&job, TOTAL(&job, done) == 3 * BACKEND_IN_FLIGHT_MAX);
    for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX - 1; k++) {
        uint64_t count = k == 1 ? 100 : COUNT;
        for (uint64_t i = 0; i < count; i++)
            data[0][k][i] = expected(3, i + k, HVD_SUM);
        check_bits(data[2][k], data[0][k], count, "the sum", 2);
    }
    job_down(&job);
}
END_TEST

/* A host dies in the middle of a transfer: everyone's operation ends with an error that names it, and nobody
 * hangs. */
START_TEST(a_peer_dies_mid_transfer)
{
    enum { COUNT = 4 << 20 };
    struct job job;
    float *data[3];
    job_up(&job, 3, 0);
    for (uint32_t h = 0; h < 3; h++) {
        data[h] = calloc(COUNT, 4);
        start_ok(&job, h, _i ? BACKEND_BROADCAST : BACKEND_ALLREDUCE, 1, data[h], COUNT, HVD_FLOAT32, HVD_SUM,
                 0);
    }
    job.host[1].shut_down_at = 1 << 20;
    RUN_UNTIL(&job, job.host[0].lost[1]);
    RUN_UNTIL(&job, TOTAL(&job, done) == 3);
    ck_assert_uint_eq(TOTAL(&job, failed), 3);
    ck_assert_str_eq(job.host[1].done_error.text, "a test says so");
    ck_assert_msg(strstr(job.host[0].why.text, "host beta") || strstr(job.host[0].why.text, "host gamma"),
                  "%s", job.host[0].why.text);
    struct err e = ERR_INIT;
    ck_assert_int_eq(start(&job.host[0], BACKEND_BARRIER, 2, NULL, 0, 0, 0, 0, 3, &e), -1);
    job_down(&job);
    for (uint32_t h = 0; h < 3; h++)
        free(data[h]);
}
END_TEST

/* Hosts that disagree about a size (which readiness prevents): refused, not written beyond an end. */
START_TEST(sizes_that_differ_are_refused)
{
    struct job job;
    float *data[2];
    uint64_t big = _i ? 1 << 20 : 64;
    job_up(&job, 2, 0);
    for (uint32_t h = 0; h < 2; h++)
        data[h] = calloc(big, 4);
    start_ok(&job, 0, BACKEND_ALLREDUCE, 1, data[0], big, HVD_FLOAT32, HVD_SUM, 0);
    struct err e = ERR_INIT;
    if (_i == 0)
        for (int i = 0; i < 3; i++)
            turn_within(&job, 1); /* the eager data is there before the start */
    int rc = start(&job.host[1], BACKEND_ALLREDUCE, 1, data[1], big / 2, HVD_FLOAT32, HVD_SUM, 0, 2, &e);
    if (rc < 0)
        give_up(&job.host[1], &e);
    RUN_UNTIL(&job, job.host[0].failed == 1);
    job_down(&job);
    free(data[0]);
    free(data[1]);
}
END_TEST

/* ---- a peer that breaks the rules, without links: what it sends is handed in by hand ------------------- */

static int swallow_control(struct links *l, uint32_t host, const void *data, size_t size, struct err *e)
{
    return 0;
}

static struct link_send *swallowed; /* the last one */

static int swallow_bulk(struct links *l, uint32_t host, struct link_send *send, struct err *e)
{
    swallowed = send;
    return 0;
}

static struct backend *alone(uint32_t self, uint32_t hosts)
{
    static const struct wire_ops wire = {.send_control = swallow_control, .send_bulk = swallow_bulk};
    struct backend_tcp_config c = {.wire = &wire, .self = self, .hosts = hosts};
    struct backend *backend = backend_tcp_new(&c, NULL);
    ck_assert_ptr_nonnull(backend);
    return backend;
}

/* Host 2 begins to send something for an operation that ends without it. The link goes on writing there. */
START_TEST(memory_given_to_a_link_stays)
{
    struct host h = {.backend = alone(1, 3)};
    struct err e = ERR_INIT;
    int32_t data[4] = {0};
    struct link_bulk stray = {.sequence = 1, .length = 16, .channel = CHANNEL_EAGER};
    struct link_bulk proper = {.sequence = 1, .length = 16, .channel = CHANNEL_BROADCAST};
    void *given = backend_tcp_bulk_place(h.backend, 2, &stray);
    ck_assert_ptr_nonnull(given);
    ck_assert_int_eq(start(&h, BACKEND_BROADCAST, 1, data, 4, HVD_INT32, 0, 0, 3, &e), 0);
    ck_assert_ptr_eq(backend_tcp_bulk_place(h.backend, 0, &proper), data);
    ck_assert_int_eq(backend_tcp_bulk_arrived(h.backend, 0, &proper, &e), 0);
    ck_assert_int_eq(h.done, 1);
    void *fresh[16];
    for (int i = 0; i < 16; i++)
        ck_assert_ptr_ne(fresh[i] = malloc(16), given);
    memset(given, 1, 16);
    ck_assert_int_eq(backend_tcp_bulk_arrived(h.backend, 2, &stray, &e), -1);
    h.backend->ops->free(h.backend);
    for (int i = 0; i < 16; i++)
        free(fresh[i]);
}
END_TEST

/* A frame without bytes is no contribution to an operation that has some; nor is a second one. */
START_TEST(an_empty_contribution_is_refused)
{
    struct host h = {.backend = alone(0, 2)};
    struct err e = ERR_INIT;
    int32_t data[4] = {1, 2, 3, 4};
    struct link_bulk empty = {.sequence = 1, .channel = CHANNEL_EAGER};
    ck_assert_int_eq(start(&h, BACKEND_ALLREDUCE, 1, data, _i ? 0 : 4, HVD_INT32, HVD_SUM, 0, 2, &e), 0);
    ck_assert_int_eq(backend_tcp_bulk_arrived(h.backend, 1, &empty, &e), _i ? 0 : -1);
    swallowed->done(swallowed, 0);
    ck_assert_int_eq(h.done, _i);
    if (_i)
        ck_assert_int_eq(backend_tcp_bulk_arrived(h.backend, 1, &empty, &e), -1);
    h.backend->ops->free(h.backend);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("backend_tcp");
    TCase *c = tcase_create("backend_tcp");
    case_computes(c);
    tcase_add_loop_test(c, allreduce_is_right, 1, HOSTS_MAX);
    tcase_add_test(c, algorithms_give_the_same_bits);
    tcase_add_loop_test(c, how_a_request_travels_changes_no_bit, 2, 4);
    tcase_add_loop_test(c, broadcast_is_right, 1, HOSTS_MAX + 1);
    tcase_add_test(c, several_operations_in_flight);
    tcase_add_loop_test(c, a_peer_dies_mid_transfer, 0, 2);
    tcase_add_loop_test(c, sizes_that_differ_are_refused, 0, 2);
    tcase_add_test(c, memory_given_to_a_link_stays);
    tcase_add_loop_test(c, an_empty_contribution_is_refused, 0, 2);
    suite_add_tcase(s, c);
    c = tcase_create("encrypted");
    case_computes(c);
    tcase_add_checked_fixture(c, encrypt_links, NULL);
    tcase_add_loop_test(c, allreduce_is_right, 2, 5);
    tcase_add_loop_test(c, broadcast_is_right, 2, 5);
    tcase_add_test(c, several_operations_in_flight);
    tcase_add_loop_test(c, a_peer_dies_mid_transfer, 0, 2);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
