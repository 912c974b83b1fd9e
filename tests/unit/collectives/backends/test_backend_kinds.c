/* The TCP backend's allgather, alltoall and reducescatter, operations of some of the hosts, and what a peer
 * may not do there: right results whatever the parts are, nothing beyond an end, no hang.
 *
 * needs: auth tls algo engine */
#include "tests/unit/backend_job.h"
#include "tests/unit/processor_time.h"

#define FRAME 64 /* bytes around each buffer that nobody may touch */

/* One operation on all its participants, with a buffer of its own for each. */
struct operation {
    enum backend_kind kind;
    uint32_t set;
    uint64_t sequence;
    const uint32_t *host; /* NULL: all */
    uint32_t hosts;
    uint64_t part[HOSTS_MAX][HOSTS_MAX]; /* elements of 4 bytes; [i][j]: from i to j; others use [0] */
    uint64_t part_in[HOSTS_MAX][HOSTS_MAX];
    uint8_t *memory[HOSTS_MAX], *memory_out[HOSTS_MAX];
    uint64_t bytes[HOSTS_MAX], bytes_out[HOSTS_MAX];
};

static uint32_t host_at(const struct operation *o, uint32_t i)
{
    return o->host ? o->host[i] : i;
}

static uint64_t sum_to(const uint64_t *part, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += part[i];
    return sum;
}

static uint8_t *framed(uint64_t bytes)
{
    uint8_t *m = aligned_alloc(FRAME, FRAME + (bytes + 2 * FRAME - 1) / FRAME * FRAME);
    memset(m, 0xee, FRAME + (bytes + 2 * FRAME - 1) / FRAME * FRAME);
    return m;
}

static void check_frame(const uint8_t *m, uint64_t bytes)
{
    for (int i = 0; i < FRAME; i++)
        if (m[i] != 0xee || m[FRAME + bytes + i] != 0xee)
            ck_abort_msg("something was written beyond an end");
}

/* Element k of participant i: in an alltoall, of the part for participant j. */
static float element(const struct operation *o, uint32_t i, uint32_t j, uint64_t k)
{
    return value(i + 10 * (uint32_t)o->sequence, k + (o->kind == BACKEND_ALLTOALL ? 31 * j : 0));
}

/* Sizes around the switch points: nothing, odd, one frame, more than the eager limit, several windows. */
static void set_parts(struct operation *o, uint32_t seed, bool large)
{
    static const uint64_t sizes[] = {0, 1, 7, 0, 1000, 4096, 4097, 20001, 0, 333};
    for (uint32_t i = 0; i < o->hosts; i++)
        for (uint32_t j = 0; j < o->hosts; j++)
            o->part[i][j] = o->part_in[j][i] = large && (i + 2 * j + seed) % 4 == 0
                                                   ? 1200007 / o->hosts
                                                   : sizes[(seed + 3 * i + 7 * j) % 10];
}

static void fill(struct operation *o, uint32_t i)
{
    bool pairs = o->kind == BACKEND_ALLTOALL;
    const uint64_t *part = o->part[pairs ? i : 0];
    uint64_t count = sum_to(part, o->hosts), at = 0;
    o->bytes[i] = count * 4;
    o->memory[i] = framed(o->bytes[i]);
    float *data = (float *)(o->memory[i] + FRAME);
    for (uint32_t j = 0; j < o->hosts; j++)
        for (uint64_t k = 0; k < part[j]; k++, at++)
            if (o->kind != BACKEND_ALLGATHER || j == i)
                data[at] = element(o, i, j, o->kind == BACKEND_REDUCESCATTER ? at : k);
    o->bytes_out[i] = pairs ? sum_to(o->part_in[i], o->hosts) * 4 : 0;
    o->memory_out[i] = framed(o->bytes_out[i]);
}

static int start_one(struct job *job, struct operation *o, uint32_t i, struct err *e)
{
    bool pairs = o->kind == BACKEND_ALLTOALL;
    struct host *h = &job->host[host_at(o, i)];
    fill(o, i);
    struct backend_request r = {.kind = o->kind,
                                .set = o->set,
                                .sequence = o->sequence,
                                .host = o->host,
                                .hosts = o->hosts,
                                .data = o->memory[i] + FRAME,
                                .out = o->memory_out[i] + FRAME,
                                .part = o->part[pairs ? i : 0],
                                .part_in = o->part_in[i],
                                .dtype = HVD_FLOAT32,
                                .op = HVD_SUM,
                                .range = on_range,
                                .done = on_done,
                                .ctx = h};
    return h->backend->ops->start(h->backend, &r, e);
}

static void start_all(struct job *job, struct operation *o, uint32_t late)
{
    struct err e = ERR_INIT;
    for (uint32_t n = 0; n <= o->hosts; n++) {
        uint32_t i = n < o->hosts ? n : late;
        if (n == o->hosts)
            for (int turns = 0; turns < 10; turns++)
                turn_within(job, 1);
        if (i < o->hosts && (i != late || n == o->hosts))
            ck_assert_msg(start_one(job, o, i, &e) == 0, "%s", e.text);
    }
}

static float wanted(const struct operation *o, uint32_t i, uint32_t j, uint64_t k, uint64_t at)
{
    if (o->kind == BACKEND_ALLTOALL)
        return element(o, j, i, k);
    if (o->kind == BACKEND_ALLGATHER)
        return element(o, j, j, k);
    float sum = element(o, 0, 0, at);
    for (uint32_t h = 1; j == i && h < o->hosts; h++)
        sum += element(o, h, 0, at);
    return j == i ? sum : element(o, i, 0, at);
}

static void check_one(struct operation *o, uint32_t i)
{
    bool pairs = o->kind == BACKEND_ALLTOALL;
    const uint64_t *part = pairs ? o->part_in[i] : o->part[0];
    const float *got = (const float *)((pairs ? o->memory_out : o->memory)[i] + FRAME);
    uint64_t at = 0;
    for (uint32_t j = 0; j < o->hosts; j++)
        for (uint64_t k = 0; k < part[j]; k++, at++) {
            float want = wanted(o, i, j, k, at);
            if (memcmp(&got[at], &want, 4) != 0)
                ck_abort_msg("kind %d of %u: element %llu of %u's part at %u is %g, not %g", o->kind,
                             o->hosts, (unsigned long long)k, j, i, (double)got[at], (double)want);
        }
    check_frame(o->memory[i], o->bytes[i]);
    check_frame(o->memory_out[i], o->bytes_out[i]);
}

static uint64_t final_bytes(const struct operation *o, uint32_t i)
{
    return o->kind == BACKEND_REDUCESCATTER ? o->part[0][i] * 4
           : o->kind == BACKEND_ALLTOALL    ? o->bytes_out[i]
                                            : o->bytes[i];
}

static void drop(struct operation *o)
{
    for (uint32_t i = 0; i < o->hosts; i++) {
        free(o->memory[i]);
        free(o->memory_out[i]);
    }
}

static const enum backend_kind kinds[] = {BACKEND_ALLGATHER, BACKEND_ALLTOALL, BACKEND_REDUCESCATTER};

START_TEST(kinds_are_right)
{
    uint32_t hosts = (uint32_t)_i / 3 + 1;
    struct job job;
    job_up(&job, hosts, 0);
    for (uint32_t round = 0; round < 8; round++) {
        struct operation o = {.kind = kinds[_i % 3], .sequence = round + 1, .hosts = hosts};
        uint32_t before = TOTAL(&job, done);
        set_parts(&o, round, round == 3 || round == 6);
        for (uint32_t h = 0; h < hosts; h++)
            job.host[h].final_bytes = 0;
        start_all(&job, &o, round % 3 ? round % hosts : UINT32_MAX);
        RUN_UNTIL(&job, TOTAL(&job, done) == before + hosts);
        all_went_well(&job);
        for (uint32_t i = 0; i < hosts; i++) {
            check_one(&o, i);
            ck_assert_uint_eq(job.host[i].final_bytes, final_bytes(&o, i));
        }
        drop(&o);
    }
    job_down(&job);
}
END_TEST

/* Small parts in all ways: with one byte eager, every one is granted, and a reducescatter takes the pipeline.
 */
START_TEST(small_parts_without_eager_are_right)
{
    struct job job;
    job_up(&job, 4, 1);
    for (uint32_t round = 0; round < 9; round++) {
        struct operation o = {.kind = kinds[round % 3], .sequence = round + 1, .hosts = 4};
        set_parts(&o, round, false);
        start_all(&job, &o, UINT32_MAX);
        RUN_UNTIL(&job, TOTAL(&job, done) == 4 * (round + 1));
        all_went_well(&job);
        for (uint32_t i = 0; i < 4; i++)
            check_one(&o, i);
        drop(&o);
    }
    job_down(&job);
}
END_TEST

/* Three sets that overlap, each with all it may have in flight, begun in another order on every host: a host
 * that has not begun a set's operations yet holds up nobody else. */
START_TEST(sets_progress_independently)
{
    static const uint32_t odd[] = {1, 3}, some[] = {0, 2, 4};
    static struct operation o[3][BACKEND_IN_FLIGHT_MAX];
    struct job job;
    struct err e = ERR_INIT;
    job_up(&job, 5, 0);
    for (uint32_t s = 0; s < 3; s++)
        for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX; k++) {
            o[s][k] = (struct operation){.kind = kinds[(s + k) % 3],
                                         .set = s * 70000,
                                         .sequence = k + 1,
                                         .host = s == 0   ? NULL
                                                 : s == 1 ? odd
                                                          : some,
                                         .hosts = s == 0   ? 5
                                                  : s == 1 ? 2
                                                           : 3};
            set_parts(&o[s][k], s + k, k == 1);
        }
    for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX; k++) /* set 1 alone, while host 3 lacks for set 0 */
        for (uint32_t i = 0; i < 5; i++) {
            if (i < 2)
                ck_assert_msg(start_one(&job, &o[1][k], i, &e) == 0, "%s", e.text);
            if (i != 3)
                ck_assert_msg(start_one(&job, &o[0][k], i, &e) == 0, "%s", e.text);
        }
    RUN_UNTIL(&job, job.host[3].done == BACKEND_IN_FLIGHT_MAX && job.host[1].done == BACKEND_IN_FLIGHT_MAX);
    for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX; k++)
        for (uint32_t i = 3; i-- > 0;)
            ck_assert_msg(start_one(&job, &o[2][k], i, &e) == 0, "%s", e.text);
    RUN_UNTIL(&job, TOTAL(&job, done) == 5 * BACKEND_IN_FLIGHT_MAX);
    for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX; k++)
        ck_assert_msg(start_one(&job, &o[0][k], 3, &e) == 0, "%s", e.text);
    RUN_UNTIL(&job, TOTAL(&job, done) == 10 * BACKEND_IN_FLIGHT_MAX);
    all_went_well(&job);
    for (uint32_t s = 0; s < 3; s++)
        for (uint32_t k = 0; k < BACKEND_IN_FLIGHT_MAX; k++) {
            for (uint32_t i = 0; i < o[s][k].hosts; i++)
                check_one(&o[s][k], i);
            drop(&o[s][k]);
        }
    job_down(&job);
}
END_TEST

/* The kinds that everyone had before, in a part of the job. */
START_TEST(a_part_of_the_job_reduces_and_broadcasts)
{
    enum { COUNT = 100003 };
    static const uint32_t some[] = {1, 2, 4};
    static float sum[3][COUNT], cast[3][COUNT];
    struct job job;
    struct err e = ERR_INIT;
    job_up(&job, 5, 0);
    for (uint32_t i = 0; i < 3; i++)
        for (uint64_t k = 0; k < COUNT; k++)
            sum[i][k] = cast[i][k] = value(i, k);
    for (uint32_t i = 0; i < 3; i++) {
        struct host *h = &job.host[some[i]];
        struct backend_request r = {.kind = BACKEND_ALLREDUCE,
                                    .set = BACKEND_SET_MAX,
                                    .sequence = 5,
                                    .host = some,
                                    .hosts = 3,
                                    .data = sum[i],
                                    .count = COUNT,
                                    .dtype = HVD_FLOAT32,
                                    .op = HVD_SUM,
                                    .done = on_done,
                                    .ctx = h};
        ck_assert_msg(h->backend->ops->start(h->backend, &r, &e) == 0, "%s", e.text);
        r = (struct backend_request){.kind = BACKEND_BROADCAST,
                                     .set = BACKEND_SET_MAX,
                                     .sequence = BACKEND_SEQUENCE_MAX,
                                     .host = some,
                                     .hosts = 3,
                                     .data = cast[i],
                                     .count = COUNT,
                                     .dtype = HVD_FLOAT32,
                                     .root = 4,
                                     .done = on_done,
                                     .ctx = h};
        ck_assert_msg(h->backend->ops->start(h->backend, &r, &e) == 0, "%s", e.text);
    }
    RUN_UNTIL(&job, TOTAL(&job, done) == 6);
    all_went_well(&job);
    for (uint64_t k = 0; k < COUNT; k++) {
        cast[2][k] = value(2, k);
        sum[2][k] = expected(3, k, HVD_SUM);
    }
    check_bits(sum[0], sum[2], COUNT, "the sum of three", 1);
    check_bits(sum[1], sum[2], COUNT, "the sum of three", 2);
    check_bits(cast[0], cast[2], COUNT, "the root's", 1);
    check_bits(cast[1], cast[2], COUNT, "the root's", 2);
    job_down(&job);
}
END_TEST

/* A host dies in the middle: all in flight ends, also that of a set which it is no part of. */
START_TEST(a_lost_host_ends_everything)
{
    static const uint32_t others[] = {0, 2};
    struct operation o = {.kind = kinds[_i], .sequence = 1, .hosts = 3};
    struct operation waits = {
        .kind = BACKEND_ALLGATHER, .set = 1, .sequence = 1, .host = others, .hosts = 2, .part = {{1, 1}}};
    struct job job;
    struct err e = ERR_INIT;
    job_up(&job, 3, 0);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < 3; j++)
            o.part[i][j] = o.part_in[j][i] = 4 << 20;
    start_all(&job, &o, UINT32_MAX);
    ck_assert_int_eq(start_one(&job, &waits, 0, &e), 0); /* host 2 never begins it */
    job.host[1].shut_down_at = 1 << 20;
    RUN_UNTIL(&job, TOTAL(&job, done) == 4);
    ck_assert_uint_eq(TOTAL(&job, failed), 4);
    ck_assert_str_eq(job.host[1].done_error.text, "a test says so");
    ck_assert_msg(strstr(job.host[0].why.text, "host beta") || strstr(job.host[0].why.text, "host gamma"),
                  "%s", job.host[0].why.text);
    job_down(&job);
    waits.hosts = 1; /* the only one that was filled */
    drop(&waits);
    drop(&o);
}
END_TEST

/* ---- a peer that breaks the rules, without links ------------------------------------------------------- */

static int swallow_control(struct links *l, uint32_t host, const void *data, size_t size, struct err *e)
{
    return 0;
}

static struct link_send *swallowed[8];
static unsigned sends;

static int swallow_bulk(struct links *l, uint32_t host, struct link_send *send, struct err *e)
{
    swallowed[sends++ % 8] = send;
    return 0;
}

/* As a link does that is given up. */
static void close_backend(struct backend *b)
{
    while (sends > 0) {
        struct link_send *send = swallowed[--sends];
        send->done(send, -1);
    }
    b->ops->free(b);
}

/* This is host 1 of 4; participants are 0, 1 and 3. */
START_TEST(what_a_peer_may_not_send)
{
    static const struct wire_ops wire = {.send_control = swallow_control, .send_bulk = swallow_bulk};
    static const uint32_t three[] = {0, 1, 3};
    static uint8_t data[3 << 20], out[3 << 20], grant[24] = {BACKEND_CONTROL_TYPE};
    const uint64_t part[] = {1 << 17, 0, 25}, none[] = {0, 0, 0};
    struct backend_tcp_config c = {.wire = &wire, .self = 1, .hosts = 4};
    struct backend *b = backend_tcp_new(&c, NULL);
    struct err e = ERR_INIT;
    struct host h = {.backend = b};
    struct backend_request r = {.kind = BACKEND_ALLTOALL,
                                .set = 3,
                                .sequence = 2,
                                .host = three,
                                .hosts = 3,
                                .data = data,
                                .out = out,
                                .part = none,
                                .part_in = part,
                                .dtype = HVD_INT32,
                                .done = on_done,
                                .ctx = &h};
    const uint64_t id = 3ull << 40 | 2;
    const struct link_bulk large = {.sequence = id, .length = 1 << 16, .channel = CHANNEL_PART},
                           eager = {.sequence = id, .length = 100, .channel = CHANNEL_EAGER};
    struct link_bulk head;

    if (_i == 0) { /* host 2, which takes no part, was ahead */
        head = eager;
        ck_assert_ptr_nonnull(backend_tcp_bulk_place(b, 2, &head));
        ck_assert_int_eq(backend_tcp_bulk_arrived(b, 2, &head, &e), 0);
        ck_assert_int_eq(b->ops->start(b, &r, &e), -1);
        ck_assert_msg(strstr(e.text, "takes no part") != NULL, "%s", e.text);
        close_backend(b);
        return;
    }
    head = large; /* not granted yet: not even begun */
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 0, &head));
    ck_assert_msg(b->ops->start(b, &r, &e) == 0, "%s", e.text);
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 2, &eager));
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 3, &large)); /* its 100 come in one frame */
    head = eager;
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 0, &head)); /* its half million does not */
    head.length = 99;
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 3, &head));
    head = large;
    head.offset = 1 << 16; /* a piece is left out */
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 0, &head));
    head.length = 1 << 19; /* and more than a piece */
    head.offset = 0;
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 0, &head));
    for (head = large; head.offset < 4 * part[0]; head.offset += head.length) {
        ck_assert_ptr_eq(backend_tcp_bulk_place(b, 0, &head), out + head.offset);
        ck_assert_int_eq(backend_tcp_bulk_arrived(b, 0, &head, &e), 0);
    }
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 0, &head)); /* beyond its end */
    ck_assert_ptr_eq(backend_tcp_bulk_place(b, 3, &eager), out + 4 * part[0]);
    ck_assert_int_eq(backend_tcp_bulk_arrived(b, 3, &eager, &e), 0);
    ck_assert_ptr_null(backend_tcp_bulk_place(b, 3, &eager)); /* twice */
    memcpy(grant + 8, &id, 8);
    ck_assert_int_eq(backend_tcp_control(b, 2, grant, sizeof grant, &e), -1);
    ck_assert_int_eq(backend_tcp_control(b, 0, grant, sizeof grant, &e), 0);
    close_backend(b);
    ck_assert_int_eq(h.failed, 1);
}
END_TEST

START_TEST(impossible_requests_are_refused)
{
    static const struct wire_ops wire = {.send_control = swallow_control, .send_bulk = swallow_bulk};
    static const uint32_t unordered[] = {1, 0}, foreign[] = {0, 2}, beyond[] = {0, 1, 4}, fine[] = {0, 1};
    static const uint64_t huge[] = {UINT64_MAX / 2, UINT64_MAX / 2 + 2};
    struct backend_tcp_config c = {.wire = &wire, .self = 1, .hosts = 4};
    struct backend *b = backend_tcp_new(&c, NULL);
    const struct backend_request good = {.kind = BACKEND_BARRIER, .sequence = 1, .host = fine, .hosts = 2};
    struct backend_request bad[] = {good, good, good, good, good, good, good, good, good};
    struct err e = ERR_INIT;
    bad[0].host = unordered;
    bad[1].host = foreign;
    bad[2].host = beyond, bad[2].hosts = 3;
    bad[3].kind = BACKEND_BROADCAST, bad[3].root = 3, bad[3].dtype = HVD_FLOAT32;
    bad[4].kind = BACKEND_ALLGATHER, bad[4].part = huge, bad[4].dtype = HVD_FLOAT32;
    bad[5].kind = BACKEND_ALLGATHER, bad[5].dtype = HVD_FLOAT32;
    bad[6].set = BACKEND_SET_MAX + 1;
    bad[7].sequence = 0;
    bad[8].kind = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(b->ops->start(b, &bad[i], &e) == -1, "request %zu was taken", i);
    b->ops->free(b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("backend_kinds");
    TCase *c = tcase_create("backend_kinds");
    case_computes(c);
    tcase_add_loop_test(c, kinds_are_right, 0, 3 * HOSTS_MAX);
    tcase_add_test(c, small_parts_without_eager_are_right);
    tcase_add_test(c, sets_progress_independently);
    tcase_add_test(c, a_part_of_the_job_reduces_and_broadcasts);
    tcase_add_loop_test(c, a_lost_host_ends_everything, 0, 3);
    tcase_add_loop_test(c, what_a_peer_may_not_send, 0, 2);
    tcase_add_test(c, impossible_requests_are_refused);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
