/* The managed agent and a client that sends anything to its socket: the agent does not crash or leak, gives
 * no slot away twice, and ends in order. systemd is a stand-in, of which every second unit fails.
 * HOSTILE_SEED and HOSTILE_TURNS make other messages and more of them. */
/* needs: agent tests/unit/hostile.c */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/admission/client.h"
#include "agent/daemon/core.h"
#include "agent/guard/job_dir.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "tests/unit/hostile.h"
#include "tests/unit/scratch.h"

#define TURNS 24
#define SLOTS 4

static char directory[SCRATCH_MAX];
static struct daemon d;
static int never[2]; /* stands for systemd's connection */
static unsigned units;
static char unit[128]; /* the last one that is starting */

/* ---- systemd ------------------------------------------------------------------------------------------- */

static int wait_for(struct systemd *s, int *poll_events, int64_t *us)
{
    (void)s;
    *poll_events = 0;
    *us = -1;
    return never[0];
}

static int start(struct systemd *s, const struct systemd_service *service, struct err *e)
{
    (void)s;
    if (units++ % 2)
        return err_set(e, ERR_HOST, "the stand-in does not start it");
    snprintf(unit, sizeof unit, "%s", service->name);
    return 0;
}

static const struct systemd_ops systemd = {.wait_for = wait_for, .start = start};

static void ignore_gpus(struct daemon *daemon)
{
    (void)daemon;
}

static const struct daemon_events daemon_events = {clients_serve_queue, ignore_gpus, clients_checked};

static void set_up(void)
{
    struct err e = ERR_INIT;
    char *argv[] = {(char *)(uintptr_t) "daemon", (char *)(uintptr_t) "--directory", directory, NULL};
    ck_assert_ptr_nonnull(scratch_dir(directory, "hostile"));
    ck_assert_int_eq(pipe2(never, O_CLOEXEC), 0);
    log_init("hvdagent", LOG_FATAL);
    d.config.directory = directory;
    d.argc = 3;
    d.argv = argv;
    d.config.max_connections = 64;
    d.config.request_timeout_ms = 2000;
    d.config.max_waiting = 8;
    d.config.slice = "hvd.slice";
    d.rules = (struct lease_rules){.slots = SLOTS, .max_jobs = SLOTS};
    d.listener.fd = d.lock = -1;
    d.gpus.daemon = &d;
    d.gpus.log.fd = -1;
    d.units.ops = &systemd;
    ck_assert_int_eq(loop_init(&d.loop, &e), 0);
    daemon_core_init(&d, &daemon_events);
    uv_timer_init(&d.loop, &d.totals_timer);
    uv_timer_init(&d.loop, &d.units.timer);
    uv_poll_init(&d.loop, &d.units.poll, never[0]);
    d.totals_timer.data = &d;
    totals_open(&d.totals, directory, 1);
    ck_assert_int_eq(leases_open(&d.leases, directory, &e), 0);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void tear_down(void)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&d.queue_timer, (uv_handle_t *)&d.totals_timer,
                              (uv_handle_t *)&d.units.timer, (uv_handle_t *)&d.units.poll};
    for (struct client *c = d.clients, *next; c; c = next) {
        next = c->next;
        client_drop(c);
    }
    uv_timer_start(&d.units.timer, on_tick, 10,
                   10); /* the threads that close descriptors keep no loop alive */
    for (uint64_t end = clock_now() + 5 * NSEC_PER_SEC; d.clients && clock_now() < end;)
        uv_run(&d.loop, UV_RUN_ONCE);
    ck_assert_ptr_null(d.clients);
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        uv_close(handles[i], NULL);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&d.loop), 0);
    leases_close(&d.leases);
    totals_close(&d.totals);
    (void)remove_tree(AT_FDCWD, directory, 4);
}

/* ---- clients ------------------------------------------------------------------------------------------- */

static void send_frame(int fd, const struct buf *message, bool with_descriptors)
{
    int pair[2];
    uint8_t header[FRAME_HEADER_SIZE];
    struct frame f = {.kind = FRAME_CONTROL, .length = (uint32_t)message->len};
    union {
        char bytes[CMSG_SPACE(sizeof pair)];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part[] = {{header, sizeof header}, {(void *)(uintptr_t)buf_data(message), message->len}};
    struct msghdr m = {.msg_iov = part, .msg_iovlen = 2};
    frame_encode_header(&f, header);
    ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
    if (with_descriptors) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof pair)};
        memcpy(CMSG_DATA(c), pair, sizeof pair);
    }
    (void)sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(pair[0]);
    close(pair[1]);
}

/* A valid request for a lease, so that what follows meets leases and a queue. */
static void ask_for_lease(struct buf *out)
{
    Hvd__Daemon m = HVD__DAEMON__INIT;
    Hvd__LeaseRequest request = HVD__LEASE_REQUEST__INIT;
    uint8_t bytes[256];
    request.protocol = DAEMON_PROTOCOL;
    request.job = (char *)(uintptr_t) "job";
    request.slots = 1;
    request.wait = true;
    m.body_case = HVD__DAEMON__BODY_REQUEST;
    m.request = &request;
    (void)buf_put(out, bytes, hvd__daemon__pack(&m, bytes));
}

/* One that names a unit which there is. */
static void report_as_session(struct hostile *h, struct buf *out)
{
    Hvd__Daemon m = HVD__DAEMON__INIT;
    Hvd__SessionReport report = HVD__SESSION_REPORT__INIT;
    Hvd__PeerTraffic peer = HVD__PEER_TRAFFIC__INIT, *peers[] = {&peer};
    uint8_t bytes[512];
    report.unit = unit;
    report.over = hostile_random(h) % 2;
    report.cause = (Hvd__Cause)(hostile_random(h) % 2 ? INT32_MAX : 9999);
    report.ranks = report.stalls = report.silence_ms = report.heartbeats_missed = UINT32_MAX;
    peer.host = (char *)(uintptr_t) "\033]0;x\a";
    peer.sent = peer.received = UINT64_MAX;
    report.peer = peers;
    report.n_peer = 1;
    m.body_case = HVD__DAEMON__BODY_REPORT;
    m.report = &report;
    (void)buf_put(out, bytes, hvd__daemon__pack(&m, bytes));
}

static void talk(const struct buf *message, bool with_descriptors, bool stays)
{
    static int kept[64];
    static size_t next;
    int pair[2];
    char bytes[4096];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    client_open(&d, pair[0]);
    send_frame(pair[1], message, with_descriptors);
    for (int i = 0; i < 5; i++)
        uv_run(&d.loop, UV_RUN_NOWAIT);
    while (recv(pair[1], bytes, sizeof bytes, 0) > 0)
        ;
    if (unit[0] && units % 3 == 0)
        (void)client_unit_started(&d, unit, NULL);
    ck_assert_uint_le(leases_slots_taken(&d.leases), SLOTS);
    int *slot = &kept[next++ % 64]; /* some stay while others come */
    if (*slot > 0)
        close(*slot);
    *slot = stays ? pair[1] : 0;
    if (!stays)
        close(pair[1]);
    uv_run(&d.loop, UV_RUN_NOWAIT);
}

START_TEST(every_request)
{
    struct hostile h;
    struct buf b;
    hostile_seed(&h, hostile_given_seed(), 0);
    for (unsigned turn = 0; turn < hostile_turns(TURNS); turn++) {
        for (size_t i = 0; i < hostile_bodies(&hvd__daemon__descriptor) + 2; i++) {
            const ProtobufCFieldDescriptor *body = hostile_nth(&hvd__daemon__descriptor, i);
            buf_init(&b, FRAME_PAYLOAD_MAX);
            if (body)
                hostile_body(&h, body, turn, &b);
            else if (i == hostile_bodies(&hvd__daemon__descriptor))
                ask_for_lease(&b);
            else
                report_as_session(&h, &b);
            talk(&b, !body || hostile_random(&h) % 2, hostile_random(&h) % 2);
            buf_free(&b);
        }
        daemon_drain(&d, "", &(struct err){0}); /* root may have drained it */
    }
    ck_assert_uint_gt(units, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hostile_daemon");
    TCase *t = tcase_create("hostile_daemon");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, every_request);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    printf("# HOSTILE_SEED=%lu\n", hostile_given_seed());
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
