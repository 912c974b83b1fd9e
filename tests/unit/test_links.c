/* Links and the TCP backend among several engines in one process, over loopback: the real sockets, one loop.
 *
 * needs: auth algo engine */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#undef fail /* Check's old macro; a backend has a method of that name */

#include "collectives/algorithms/dtype.h"
#include "collectives/backends/tcp.h"
#include "collectives/engine/links.h"
#include "common/auth.h"
#include "common/clock.h"

#define HOSTS_MAX 5

extern const struct auth_ops hvd_auth_ops;

struct host {
    uint32_t index;
    struct links *links;
    struct backend *backend;
    uint32_t ready, controls, done, failed;
    bool lost[HOSTS_MAX];
    struct err why;    /* of the first lost */
    struct err broken; /* a fault found by the backend */
    char last[256];
    struct err done_error;
    uint64_t final_bytes;
    uint64_t arrived_bytes;
    uint64_t shut_down_at; /* give up after so many bulk bytes; 0: never */
};

struct job {
    uint32_t hosts;
    struct host host[HOSTS_MAX];
    int epoll;
    uint8_t key[AUTH_KEY_SIZE];
};

static const char *const names[HOSTS_MAX] = {"alpha", "beta", "gamma", "delta", "epsilon"};

static void give_up(struct host *h, const struct err *why)
{
    links_shutdown(h->links, why->text);
    if (h->backend)
        h->backend->ops->fail(h->backend, why);
}

static void on_ready(void *ctx, uint32_t host)
{
    struct host *h = ctx;
    h->ready++;
}

static void on_control(void *ctx, uint32_t host, const void *data, size_t size)
{
    struct host *h = ctx;
    const uint8_t *type = data;
    if (size > 0 && *type >= BACKEND_CONTROL_TYPE && h->backend) {
        if (backend_tcp_control(h->backend, host, data, size, &h->broken) < 0)
            give_up(h, &h->broken);
        return;
    }
    h->controls++;
    snprintf(h->last, sizeof h->last, "%.*s", (int)size, (const char *)data);
}

static void *on_place(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct host *h = ctx;
    return h->backend ? backend_tcp_bulk_place(h->backend, host, head) : NULL;
}

static void on_arrived(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct host *h = ctx;
    h->arrived_bytes += head->length;
    if (h->shut_down_at && h->arrived_bytes >= h->shut_down_at) {
        struct err why = ERR_INIT;
        err_set(&why, ERR_HOST, "a test says so");
        give_up(h, &why);
        return;
    }
    if (backend_tcp_bulk_arrived(h->backend, host, head, &h->broken) < 0)
        give_up(h, &h->broken);
}

static void on_lost(void *ctx, uint32_t host, const struct err *why)
{
    struct host *h = ctx;
    h->lost[host] = true;
    if (!h->why.code)
        h->why = *why;
    give_up(h, why);
}

static const struct links_events events = {.ready = on_ready,
                                           .control = on_control,
                                           .bulk_place = on_place,
                                           .bulk_arrived = on_arrived,
                                           .lost = on_lost};

static struct links *new_links(struct job *job, uint32_t self, const uint8_t *key, uint32_t heartbeat_ms,
                               uint32_t start_ms)
{
    static const char *const loopback[] = {"127.0.0.1", "::1"};
    struct links_config c = {.job = "test-job",
                             .epoch = 3,
                             .key = key,
                             .auth = &hvd_auth_ops,
                             .self = self,
                             .hosts = job->hosts,
                             .name = names,
                             .address = loopback,
                             .addresses = access("/proc/net/if_inet6", F_OK) == 0 ? 2 : 1,
                             .heartbeat_ms = heartbeat_ms,
                             .start_ms = start_ms};
    struct err e = ERR_INIT;
    struct links *l = links_new(&c, &events, &job->host[self], clock_now(), &e);
    ck_assert_msg(l != NULL, "%s", e.text);
    return l;
}

static void job_new(struct job *job, uint32_t hosts, uint32_t heartbeat_ms, uint32_t start_ms)
{
    memset(job, 0, sizeof *job);
    job->hosts = hosts;
    job->epoll = epoll_create1(EPOLL_CLOEXEC);
    ck_assert_int_eq(auth_random(job->key, sizeof job->key, NULL), 0);
    for (uint32_t i = 0; i < hosts; i++) {
        struct host *h = &job->host[i];
        h->index = i;
        h->links = new_links(job, i, job->key, heartbeat_ms, start_ms);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        ck_assert_int_eq(epoll_ctl(job->epoll, EPOLL_CTL_ADD, links_fd(h->links), &event), 0);
    }
}

static void connect_to(struct job *job, uint32_t from, uint32_t to)
{
    /* 192.0.2.0/24 is kept for documentation: that candidate gets no answer, or none in time. */
    static const char *const address[] = {"192.0.2.1", "127.0.0.1"};
    struct err e = ERR_INIT;
    int rc = links_connect(job->host[from].links, to, address, 2, links_port(job->host[to].links),
                           clock_now(), &e);
    ck_assert_msg(rc == 0, "%s", e.text);
}

static void connect_all(struct job *job)
{
    for (uint32_t i = 0; i < job->hosts; i++)
        for (uint32_t j = 0; j < job->hosts; j++)
            if (i != j)
                connect_to(job, i, j);
}

/* One round of every engine; sleeps until something happens, as an engine does, and at most `timeout` ms. */
static void turn_within(struct job *job, int timeout)
{
    struct epoll_event event[HOSTS_MAX];
    for (uint32_t i = 0; i < job->hosts; i++) {
        int t = job->host[i].links ? links_timeout(job->host[i].links, clock_now()) : -1;
        if (t >= 0 && t < timeout)
            timeout = t;
    }
    epoll_wait(job->epoll, event, HOSTS_MAX, timeout);
    for (uint32_t i = 0; i < job->hosts; i++)
        if (job->host[i].links)
            links_progress(job->host[i].links, clock_now());
}

static void turn(struct job *job)
{
    turn_within(job, 100);
}

#define RUN_UNTIL(job, condition)                                                                            \
    do {                                                                                                     \
        uint64_t end_ = clock_now() + 8 * NSEC_PER_SEC;                                                      \
        while (!(condition)) {                                                                               \
            ck_assert_msg(clock_now() < end_, "not within 8 s: %s", #condition);                             \
            turn(job);                                                                                       \
        }                                                                                                    \
    } while (0)

static uint32_t sum_of(const struct job *job, size_t field)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->hosts; i++)
        n += *(const uint32_t *)((const char *)&job->host[i] + field);
    return n;
}

#define TOTAL(job, field) sum_of((job), offsetof(struct host, field))

static void job_up(struct job *job, uint32_t hosts, uint64_t eager_bytes)
{
    job_new(job, hosts, 2000, 5000);
    connect_all(job);
    RUN_UNTIL(job, TOTAL(job, ready) == hosts * (hosts - 1));
    for (uint32_t i = 0; i < hosts; i++) {
        struct backend_tcp_config c = {.links = job->host[i].links,
                                       .wire = &links_wire,
                                       .self = i,
                                       .hosts = hosts,
                                       .eager_bytes = eager_bytes};
        job->host[i].backend = backend_tcp_new(&c, NULL);
        ck_assert_ptr_nonnull(job->host[i].backend);
    }
}

static void job_down(struct job *job)
{
    for (uint32_t i = 0; i < job->hosts; i++) {
        links_free(job->host[i].links);
        if (job->host[i].backend)
            job->host[i].backend->ops->free(job->host[i].backend);
    }
    close(job->epoll);
}

/* ---- links
 * ----------------------------------------------------------------------------------------------------------
 */

START_TEST(one_link_per_pair)
{
    struct job job;
    job_new(&job, (uint32_t)_i, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == job.hosts * (job.hosts - 1));
    for (uint32_t i = 0; i < job.hosts; i++)
        for (uint32_t j = 0; j < job.hosts; j++) {
            char text[32];
            snprintf(text, sizeof text, "from %u", i);
            if (i != j)
                ck_assert_int_eq(links_send_control(job.host[i].links, j, text, strlen(text), NULL), 0);
        }
    RUN_UNTIL(&job, TOTAL(&job, controls) == job.hosts * (job.hosts - 1));
    for (int i = 0; i < 5; i++)
        turn_within(&job, 1);
    ck_assert_uint_eq(TOTAL(&job, ready), job.hosts * (job.hosts - 1));
    ck_assert_str_eq(job.host[0].last, job.hosts == 2 ? "from 1" : job.host[0].last);
    job_down(&job);
}
END_TEST

START_TEST(large_control_frames_stay_whole_and_in_order)
{
    struct job job;
    job_new(&job, 2, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 2);
    char *text = malloc(LINKS_CONTROL_MAX);
    for (uint32_t i = 0; i < 100; i++) {
        size_t size = i % 3 == 0 ? LINKS_CONTROL_MAX : i % 3 == 1 ? 5000 : 20;
        memset(text, 'a', size);
        snprintf(text, 20, "%u:", i);
        ck_assert_int_eq(links_send_control(job.host[0].links, 1, text, size, NULL), 0);
    }
    RUN_UNTIL(&job, job.host[1].controls == 100);
    ck_assert_int_eq(strncmp(job.host[1].last, "99:", 3), 0);
    ck_assert_int_eq(links_send_control(job.host[0].links, 1, text, LINKS_CONTROL_MAX + 1, NULL), -1);
    free(text);
    job_down(&job);
}
END_TEST

START_TEST(no_link_without_the_key)
{
    struct job job;
    uint8_t other[AUTH_KEY_SIZE] = {1};
    job_new(&job, 2, 2000, 400);
    links_free(job.host[1].links);
    job.host[1].links = new_links(&job, 1, other, 2000, 400);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 1};
    epoll_ctl(job.epoll, EPOLL_CTL_ADD, links_fd(job.host[1].links), &event);
    connect_all(&job);
    RUN_UNTIL(&job, job.host[0].lost[1] && job.host[1].lost[0]);
    ck_assert_uint_eq(TOTAL(&job, ready), 0);
    ck_assert_ptr_nonnull(strstr(job.host[1].why.text, "host alpha"));
    ck_assert_ptr_nonnull(strstr(job.host[1].why.text, "does not have this job's key"));
    ck_assert_ptr_nonnull(strstr(job.host[0].why.text, "host beta"));
    job_down(&job);
}
END_TEST

START_TEST(a_host_that_gives_up_says_why)
{
    struct job job;
    job_new(&job, 3, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 6);
    links_shutdown(job.host[2].links, "rank 5 was killed");
    RUN_UNTIL(&job, job.host[0].lost[2] && job.host[1].why.code);
    ck_assert_str_eq(job.host[0].why.text, "host gamma: it gave up: rank 5 was killed");
    ck_assert_ptr_nonnull(
        strstr(job.host[1].why.text, "rank 5 was killed")); /* of gamma, or of alpha, which gave up for it */
    ck_assert_int_eq(links_send_control(job.host[0].links, 2, "x", 1, NULL), -1);
    job_down(&job);
}
END_TEST

/* A frozen host: its kernel acknowledges, its engine does nothing. */
START_TEST(silence_ends_a_link)
{
    struct job job;
    job_new(&job, 2, 300, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 2);
    uint64_t begin = clock_now();
    while (clock_now() < begin + 600 * NSEC_PER_MSEC) /* both beat: nobody is lost */
        turn(&job);
    ck_assert(!job.host[0].lost[1] && !job.host[1].lost[0]);
    struct links *frozen = job.host[1].links;
    job.host[1].links = NULL;
    begin = clock_now();
    RUN_UNTIL(&job, job.host[0].lost[1]);
    ck_assert_ptr_nonnull(strstr(job.host[0].why.text, "nothing was heard"));
    ck_assert_uint_lt(clock_now() - begin, 450 * NSEC_PER_MSEC);
    job.host[1].links = frozen;
    job_down(&job);
}
END_TEST

/* ---- the backend
 * ---------------------------------------------------------------------------------------------------- */

static void on_done(void *ctx, const struct err *error)
{
    struct host *h = ctx;
    h->done++;
    if (error) {
        h->failed++;
        h->done_error = *error;
    }
}

static void on_range(void *ctx, uint64_t offset, uint64_t size)
{
    struct host *h = ctx;
    h->final_bytes += size;
}

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

static void all_went_well(struct job *job)
{
    for (uint32_t i = 0; i < job->hosts; i++)
        ck_assert_msg(job->host[i].failed == 0, "host %u: %s; %s; %s", i, job->host[i].done_error.text,
                      job->host[i].broken.text, job->host[i].why.text);
}

static float value(uint32_t host, uint64_t i)
{
    return (float)((i * 2654435761u + host * 40503u) % 10007) / 7.0f - 700.0f;
}

/* What host order gives, bit for bit. */
static float expected(uint32_t hosts, uint64_t i, hvd_op op)
{
    float v = value(0, i);
    for (uint32_t h = 1; h < hosts; h++) {
        float w = value(h, i);
        v = op == HVD_MIN ? (w < v ? w : v) : op == HVD_MAX ? (w > v ? w : v) : v + w;
    }
    return op == HVD_AVERAGE ? v / (float)hosts : v;
}

/* One assertion for all of it: Check writes each one down. */
static void check_bits(const float *data, const float *want, uint64_t count, const char *of, uint32_t host)
{
    uint64_t i = 0;
    while (i < count && memcmp(&data[i], &want[i], 4) == 0)
        i++;
    ck_assert_msg(i == count, "element %llu of %llu at host %u is %g, not %s %g", (unsigned long long)i,
                  (unsigned long long)count, host, i < count ? (double)data[i] : 0, of,
                  i < count ? (double)want[i] : 0);
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

static Suite *suite(void)
{
    Suite *s = suite_create("links");
    TCase *c = tcase_create("links");
    tcase_set_timeout(c, 20);
    tcase_add_loop_test(c, one_link_per_pair, 2, HOSTS_MAX + 1);
    tcase_add_test(c, large_control_frames_stay_whole_and_in_order);
    tcase_add_test(c, no_link_without_the_key);
    tcase_add_test(c, a_host_that_gives_up_says_why);
    tcase_add_test(c, silence_ends_a_link);
    suite_add_tcase(s, c);
    c = tcase_create("backend");
    tcase_set_timeout(c, 20);
    tcase_add_loop_test(c, allreduce_is_right, 1, HOSTS_MAX);
    tcase_add_test(c, algorithms_give_the_same_bits);
    tcase_add_loop_test(c, broadcast_is_right, 1, HOSTS_MAX + 1);
    tcase_add_test(c, several_operations_in_flight);
    tcase_add_loop_test(c, a_peer_dies_mid_transfer, 0, 2);
    tcase_add_loop_test(c, sizes_that_differ_are_refused, 0, 2);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
