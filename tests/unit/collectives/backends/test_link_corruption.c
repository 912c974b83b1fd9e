/* Somebody between two hosts changes one thing in what flows there: a bit, or bytes that are left out, put in
 * or given twice. In each case both hosts come to an end in time: with the right results, or
 * with a lost link and its sentence. In the clear and under TLS.
 *
 * needs: auth tls algo engine */
#include <netinet/in.h>
#include <sys/socket.h>

#include "collectives/backends/tcp.h"
#include "common/base/crc32c.h"
#include "tests/unit/backend_job.h"

#define HEARTBEAT_MS 200
#define LIMIT        (5 * NSEC_PER_SEC)
#define COUNT        9000 /* elements: pieces of 18000 bytes, all of which have checks */
#define TIMES        5

enum change { FLIP, LEAVE_OUT, PUT_IN, TWICE, CHANGES };

/* Connects whoever comes to `port`, and changes the `at`th byte of one direction of all of it, once. */
struct proxy {
    int listener, from[8], to[8];
    uint16_t port, target;
    uint32_t pairs;
    bool back; /* in which direction */
    uint64_t at, passed;
    enum change change;
    size_t bytes; /* left out, put in or twice */
    bool changed;
};

static struct sockaddr_in loopback_at(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void proxy_listen(struct proxy *p, uint16_t target)
{
    struct sockaddr_in a = loopback_at(0);
    socklen_t len = sizeof a;
    p->target = target;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(p->listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(p->listener, 8), 0);
    getsockname(p->listener, (struct sockaddr *)&a, &len);
    p->port = ntohs(a.sin_port);
}

static void proxy_accept(struct proxy *p)
{
    struct sockaddr_in a = loopback_at(p->target);
    int fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0)
        return;
    ck_assert_uint_lt(p->pairs, 8);
    int to = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(to, (struct sockaddr *)&a, sizeof a), 0);
    p->from[p->pairs] = fd;
    p->to[p->pairs++] = to;
}

static void pass_on(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* that end has gone */
        data += n;
        size -= (size_t)n;
    }
}

/* The change, where it is in the next `n` bytes; `data` has room for as many more. How many there are then.
 */
static size_t change(struct proxy *p, uint8_t *data, size_t n)
{
    uint64_t end = p->at + p->bytes;
    if (p->change == LEAVE_OUT) {
        size_t from = p->passed < p->at ? p->at - p->passed : 0, to = end > p->passed ? end - p->passed : 0;
        to = to < n ? to : n;
        if (from >= to)
            return n;
        p->changed = true;
        memmove(data + from, data + to, n - to);
        return n - (to - from);
    }
    if (p->changed || p->at < p->passed || p->at - p->passed >= n)
        return n;
    size_t k = p->at - p->passed, bytes = p->bytes < n - k ? p->bytes : n - k;
    p->changed = true;
    if (p->change == FLIP) {
        data[k] ^= (uint8_t)(1u << p->at % 8);
        return n;
    }
    memmove(data + k + bytes, data + k, n - k);
    if (p->change == PUT_IN)
        memset(data + k, 0, bytes);
    return n + bytes;
}

/* Passes on what has come in one direction. */
static bool proxy_pump(struct proxy *p, int *from, int to, bool counts)
{
    uint8_t data[4096 + 4096];
    if (*from < 0)
        return false;
    ssize_t got = recv(*from, data, 4096, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        shutdown(to, SHUT_WR);
        *from = -1 - *from; /* closed later */
        return true;
    }
    if (got < 0)
        return false;
    size_t n = (size_t)got;
    if (counts)
        n = change(p, data, n);
    p->passed += counts ? (size_t)got : 0;
    pass_on(to, data, n);
    return true;
}

static bool proxy_turn(struct proxy *p)
{
    bool busy = false;
    proxy_accept(p);
    for (uint32_t i = 0; i < p->pairs; i++) {
        int from = p->from[i] < 0 ? -1 - p->from[i] : p->from[i];
        int to = p->to[i] < 0 ? -1 - p->to[i] : p->to[i];
        busy = proxy_pump(p, &p->from[i], to, !p->back) || busy;
        busy = proxy_pump(p, &p->to[i], from, p->back) || busy;
    }
    return busy;
}

static void proxy_free(struct proxy *p)
{
    close(p->listener);
    for (uint32_t i = 0; i < p->pairs; i++) {
        close(p->from[i] < 0 ? -1 - p->from[i] : p->from[i]);
        close(p->to[i] < 0 ? -1 - p->to[i] : p->to[i]);
    }
}

static void turn_with(struct job *job, struct proxy *p)
{
    turn_within(job, proxy_turn(p) ? 0 : 1);
}

static float *filled(uint32_t host)
{
    float *data = aligned_alloc(64, (COUNT * 4 + 63) / 64 * 64);
    for (uint64_t i = 0; i < COUNT; i++)
        data[i] = value(host, i);
    return data;
}

/* The next step of a host: begins an operation, says something after it, and counts. */
struct work {
    float *data;
    uint32_t begun;
};

static bool is_over(const struct job *job, uint32_t h)
{
    const struct host *host = &job->host[h];
    return host->why.code || host->broken.code || host->done == TIMES;
}

static void work_on(struct job *job, uint32_t h, struct work *w)
{
    struct host *host = &job->host[h];
    if (!host->ready || is_over(job, h) || host->done < w->begun)
        return;
    free(w->data);
    w->data = filled(h);
    struct backend_request r = {.kind = BACKEND_ALLREDUCE,
                                .sequence = ++w->begun,
                                .data = w->data,
                                .count = w->begun % 2 ? COUNT : 100,
                                .dtype = HVD_FLOAT32,
                                .op = HVD_SUM,
                                .done = on_done,
                                .ctx = host};
    links_send_control(host->links, 1 - h, "\1hello", 6, NULL); /* not for the backend */
    ck_assert_int_eq(host->backend->ops->start(host->backend, &r, NULL), 0);
}

static void make_backend(struct job *job, uint32_t h)
{
    struct host *host = &job->host[h];
    struct backend_tcp_config c = {.links = host->links, .wire = &links_wire, .self = h, .hosts = 2};
    host->backend = backend_tcp_new(&c, NULL);
}

/* A run with one change. The bytes that flowed in that direction. */
static uint64_t run(struct proxy *p)
{
    static const char *const address[] = {"127.0.0.1"};
    struct job job;
    struct work work[2] = {{NULL, 0}, {NULL, 0}};
    uint64_t end = clock_now() + LIMIT;
    job_new(&job, 2, HEARTBEAT_MS, 1500);
    proxy_listen(p, links_port(job.host[0].links));
    links_connect(job.host[0].links, 1, address, 1, p->port, links_time, NULL);
    links_connect(job.host[1].links, 0, address, 1, p->port, links_time, NULL);
    for (uint32_t h = 0; h < 2; h++)
        make_backend(&job, h);
    while (!is_over(&job, 0) || !is_over(&job, 1)) {
        if (clock_now() > end)
            ck_abort_msg("no end: change %d of %zu bytes at %llu, %s", p->change, p->bytes,
                         (unsigned long long)p->at, p->back ? "back" : "forth");
        for (uint32_t h = 0; h < 2; h++) {
            work_on(&job, h, &work[h]);
        }
        turn_with(&job, p);
    }
    for (uint32_t h = 0; h < 2; h++) {
        const struct host *host = &job.host[h];
        ck_assert_msg(host->broken.code == 0, "at %llu: %s", (unsigned long long)p->at, host->broken.text);
        if (host->done == TIMES && !host->failed)
            for (uint64_t i = 0; i < COUNT; i++)
                if (work[h].data[i] != expected(2, i, HVD_SUM))
                    ck_abort_msg("a wrong result: change %d at %llu", p->change, (unsigned long long)p->at);
        free(work[h].data);
    }
    bool says_so =
        strstr(job.host[0].why.text, "the data link from beta to alpha delivered bytes that beta did "
                                     "not send (checksum)") ||
        strstr(job.host[1].why.text, "the data link from alpha to beta delivered bytes that alpha did "
                                     "not send (checksum)");
    bool both = job.host[0].done == TIMES && job.host[1].done == TIMES; /* before it could be seen */
    /* After the handshake (less than 300 bytes each way) a flipped bit of a frame has that sentence. */
    if (!links_tls && !both && p->changed && p->change == FLIP && p->at > 300)
        ck_assert_msg(says_so, "at %llu: '%s', '%s'", (unsigned long long)p->at, job.host[0].why.text,
                      job.host[1].why.text);
    job_down(&job);
    proxy_free(p);
    return p->passed;
}

/* One change in each run: dense at the beginning, where handshake and first headers are. */
START_TEST(one_change_anywhere)
{
    bool back = _i % 2;
    uint64_t flows = run(&(struct proxy){.back = back, .at = UINT64_MAX});
    ck_assert_uint_gt(flows, 60000);
    for (uint32_t k = 0; k < 16; k++) {
        uint64_t near = (uint64_t)k * 19, anywhere = (k * 2654435761u + (uint32_t)_i * 977) % (flows - 2000);
        struct proxy p = {.back = back,
                          .at = k % 2 ? near : anywhere,
                          .change = (enum change)(k / 2 % CHANGES),
                          .bytes = k % 3 == 0   ? 1
                                   : k % 3 == 1 ? 32
                                                : 700};
        run(&p);
    }
}
END_TEST

/* The rest of a frame never comes, and heartbeats do not make up for it. */
START_TEST(a_frame_without_its_end)
{
    struct proxy p = {.back = _i, .at = 19000, .change = LEAVE_OUT, .bytes = 9000};
    run(&p);
    ck_assert(p.changed);
}
END_TEST

START_TEST(versions_agree)
{
    static uint8_t data[20000];
    crc32c_function version[CRC32C_VERSIONS_MAX];
    unsigned versions = crc32c_versions(version);
    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283); /* the check value of CRC-32C */
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t n = 0; n + 7 < sizeof data; n += n / 5 + 1) {
        uint32_t want = version[versions - 1](5, data + n % 7, n);
        for (unsigned v = 0; v < versions; v++)
            ck_assert_uint_eq(version[v](5, data + n % 7, n), want);
        ck_assert_uint_eq(crc32c(crc32c(5, data + n % 7, n / 3), data + n % 7 + n / 3, n - n / 3), want);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link_corruption");
    TCase *clear = tcase_create("clear"), *encrypted = tcase_create("encrypted");
    tcase_add_test(clear, versions_agree);
    TCase *both[] = {clear, encrypted};
    tcase_add_checked_fixture(encrypted, encrypt_links, NULL);
    for (int i = 0; i < 2; i++) {
        tcase_set_timeout(both[i], 120);
        tcase_add_loop_test(both[i], one_change_anywhere, 0, 2);
        tcase_add_loop_test(both[i], a_frame_without_its_end, 0, 2);
        suite_add_tcase(s, both[i]);
    }
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
