/* Several engines' links in one process, over loopback: the real sockets, one loop. test_links and
 * the tests of the backend share it. */
#pragma once

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#undef fail /* Check's old macro; a backend has a method of that name */

#include "collectives/kernels/dtype.h"
#include "collectives/backends/tcp.h"
#include "common/net/links.h"
#include "common/net/auth.h"
#include "common/base/clock.h"

#define HOSTS_MAX 9

extern const struct auth_ops hvd_auth_ops;
extern const struct tls_ops hvd_tls_ops;

/* The time of all links here. It passes while the job waits, and never beyond what is due: what keeps this
 * process from running, other work on the machine, takes none of it. */
static uint64_t links_time = NSEC_PER_SEC;

/* Later jobs have lasting links. */
static bool links_last;

/* The TLS layer of the links of later jobs; NULL: none. */
static const struct tls_ops *links_tls;

struct host {
    uint32_t index;
    struct links *links;
    int epoll; /* the job's */
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
    uint8_t *place;        /* of all bulk, without a backend; NULL: none is wanted */
};

struct job {
    uint32_t hosts;
    struct host host[HOSTS_MAX];
    int epoll;
    uint8_t key[AUTH_KEY_SIZE];
};

static const char *const names[HOSTS_MAX] = {"alpha", "beta", "gamma", "delta", "epsilon",
                                             "zeta",  "eta",  "theta", "iota"};

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
    return h->backend ? backend_tcp_bulk_place(h->backend, host, head) : h->place;
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
    if (h->backend && backend_tcp_bulk_arrived(h->backend, host, head, &h->broken) < 0)
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

/* Adds a descriptor to the epoll of the job. The low half of an event's number is the host, the high half the
 * peer of the link. The host's own index as the peer means links_fd. */
static int watch_for(const struct host *h, uint32_t peer, int fd, uint32_t wanted)
{
    struct epoll_event event = {.events = wanted, .data.u64 = h->index | (uint64_t)peer << 32};
    int rc = epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event);
    return rc != 0 && errno == EEXIST ? epoll_ctl(h->epoll, EPOLL_CTL_MOD, fd, &event) : rc;
}

static int on_watch(void *ctx, uint32_t host, int fd, uint32_t wanted, struct err *e)
{
    return watch_for(ctx, host, fd, wanted) == 0 ? 0 : err_set(e, ERR_SYSTEM, "cannot watch");
}

static const struct links_events events = {.ready = on_ready,
                                           .control = on_control,
                                           .bulk_place = on_place,
                                           .bulk_arrived = on_arrived,
                                           .lost = on_lost};
/* Every other host watches its links by itself, as an engine does; the rest as a session does. */
static const struct links_events events_of_owner = {.ready = on_ready,
                                                    .control = on_control,
                                                    .bulk_place = on_place,
                                                    .bulk_arrived = on_arrived,
                                                    .lost = on_lost,
                                                    .watch = on_watch};

/* The links of the job's host number `place`, as host `self` of the job. */
static struct links *new_links_at(struct job *job, uint32_t place, uint32_t self, const uint8_t *key,
                                  uint32_t heartbeat_ms, uint32_t start_ms)
{
    static const char *const loopback[] = {"127.0.0.1", "::1"};
    struct links_config c = {.job = "test-job",
                             .epoch = 3,
                             .key = key,
                             .auth = &hvd_auth_ops,
                             .tls = links_tls,
                             .kind = LINK_ENGINE,
                             .self = self,
                             .hosts = job->hosts,
                             .name = names,
                             .address = loopback,
                             .addresses = access("/proc/net/if_inet6", F_OK) == 0 ? 2 : 1,
                             .heartbeat_ms = heartbeat_ms,
                             .lasting = links_last,
                             .start_ms = start_ms};
    struct err e = ERR_INIT;
    struct host *h = &job->host[place];
    struct links *l = links_new(&c, place % 2 ? &events_of_owner : &events, h, links_time, &e);
    ck_assert_msg(l != NULL, "%s", e.text);
    ck_assert_int_eq(watch_for(h, self, links_fd(l), EPOLLIN), 0);
    return l;
}

static struct links *new_links(struct job *job, uint32_t self, const uint8_t *key, uint32_t heartbeat_ms,
                               uint32_t start_ms)
{
    return new_links_at(job, self, self, key, heartbeat_ms, start_ms);
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
        h->epoll = job->epoll;
        h->links = new_links(job, i, job->key, heartbeat_ms, start_ms);
    }
}

static void connect_to(struct job *job, uint32_t from, uint32_t to)
{
    /* 192.0.2.0/24 is kept for documentation: that candidate gets no answer, or none in time. */
    static const char *const address[] = {"192.0.2.1", "127.0.0.1"};
    struct err e = ERR_INIT;
    int rc =
        links_connect(job->host[from].links, to, address, 2, links_port(job->host[to].links), links_time, &e);
    ck_assert_msg(rc == 0, "%s", e.text);
}

static void connect_all(struct job *job)
{
    for (uint32_t i = 0; i < job->hosts; i++)
        for (uint32_t j = 0; j < job->hosts; j++)
            if (i != j)
                connect_to(job, i, j);
}

static int wait_for_events(struct job *job, struct epoll_event event[HOSTS_MAX], int timeout)
{
    uint64_t since = clock_now(), most = (uint64_t)timeout * NSEC_PER_MSEC, waited;
    int n = epoll_wait(job->epoll, event, HOSTS_MAX, timeout);
    waited = clock_now() - since;
    links_time += waited < most ? waited : most;
    return n;
}

/* One round of every engine; sleeps until something happens, as an engine does, and at most `timeout` ms. */
static void turn_within(struct job *job, int timeout)
{
    struct epoll_event event[HOSTS_MAX];
    for (uint32_t i = 0; i < job->hosts; i++) {
        int t = job->host[i].links ? links_timeout(job->host[i].links, links_time) : -1;
        if (t >= 0 && t < timeout)
            timeout = t;
    }
    int n = wait_for_events(job, event, timeout);
    for (int i = 0; i < n; i++) {
        struct host *h = &job->host[(uint32_t)event[i].data.u64];
        if (h->links)
            links_event(h->links, (uint32_t)(event[i].data.u64 >> 32), event[i].events);
    }
    for (uint32_t i = 0; i < job->hosts; i++)
        if (job->host[i].links)
            links_progress(job->host[i].links, links_time);
}

static void turn(struct job *job)
{
    turn_within(job, 100);
}

#define RUN_UNTIL(job, condition)                                                                            \
    do {                                                                                                     \
        uint64_t end_ = links_time + 8 * NSEC_PER_SEC;                                                       \
        while (!(condition)) {                                                                               \
            ck_assert_msg(links_time < end_, "not within 8 s: %s", #condition);                              \
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

/* A fixture of test cases (each test is a process of its own). */
static __attribute__((unused)) void encrypt_links(void)
{
    links_tls = &hvd_tls_ops;
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
