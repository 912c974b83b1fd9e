/* The largest replies of the managed agent, with as many and as long things as there can be: each fits into
 * one answer, whatever users have asked for, named and reported.
 *
 * needs: agent */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/admission/admission.h"
#include "agent/daemon/core.h"
#include "agent/gpu/gpu_scan.h"
#include "agent/gpu/nvml.h"
#include "common/protocol/message.h"

static struct daemon d;
static struct client asker, waiting[QUEUE_MAX];
static struct lease leases[LEASES_MAX];
static Hvd__Gpu gpu[GPU_SET_MAX], *gpus[GPU_SET_MAX];
static Hvd__Gpus said;
static char longest[512];
static int other;

static void fill(char *text, size_t size)
{
    memset(text, 'w', size - 1);
    text[size - 1] = '\0';
}

static void many_leases(void)
{
    for (size_t i = 0; i < LEASES_MAX; i++) {
        struct lease *l = &leases[i];
        fill(l->job, sizeof l->job);
        fill(l->unit, sizeof l->unit);
        fill(l->user, sizeof l->user);
        l->slots = UINT32_MAX;
        l->since = UINT64_MAX;
        l->gpus = i < GPU_SET_MAX / 2 ? UINT64_C(1) << (2 * i) : 0; /* gaps: the longest text */
    }
    d.leases.item = leases;
    d.leases.count = LEASES_MAX;
    for (size_t i = 0; i < QUEUE_MAX; i++) {
        struct queue_entry *x = &waiting[i].entry;
        fill(waiting[i].job, sizeof waiting[i].job);
        fill(waiting[i].user, sizeof waiting[i].user);
        x->want = (struct lease_want){
            .job = waiting[i].job, .user = waiting[i].user, .slots = UINT32_MAX, .fewer = true};
        x->priority = UINT32_MAX;
        d.queue.entry[i] = x;
    }
    d.queue.count = QUEUE_MAX;
}

static void many_sums(void)
{
    memset(d.totals.sum, 0xff, sizeof d.totals.sum);
    memset(d.totals.ended, 0xff, sizeof d.totals.ended);
    d.totals.peers = SUM_PEERS;
    for (size_t i = 0; i <= SUM_PEERS; i++) {
        fill(d.totals.peer[i].host, sizeof d.totals.peer[i].host);
        d.totals.peer[i].sent = d.totals.peer[i].received = UINT64_MAX;
    }
}

static void many_gpus(void)
{
    hvd__gpus__init(&said);
    said.gpu = gpus;
    said.n_gpu = d.gpus.health.slots = GPU_SET_MAX;
    said.driver = said.cuda = said.nvml = said.problem = longest;
    for (uint32_t i = 0; i < GPU_SET_MAX; i++) {
        struct gpu_slot *slot = &d.gpus.health.slot[i];
        fill(slot->uuid, sizeof slot->uuid);
        fill(slot->bus, sizeof slot->bus);
        fill(slot->why, sizeof slot->why);
        slot->xids = UINT64_MAX;
        slot->last_xid = slot->device = UINT32_MAX;
        hvd__gpu__init(gpus[i] = &gpu[i]);
        gpu[i].uuid = slot->uuid;
        gpu[i].name = gpu[i].fault = longest + sizeof longest - NVML_TEXT;
        gpu[i].numa = INT32_MIN;
        gpu[i].memory = gpu[i].memory_used = UINT64_MAX;
        gpu[i].temperature = gpu[i].slowdown = UINT32_MAX;
        gpu[i].utilisation = INT32_MIN;
        gpu[i].ecc_corrected = gpu[i].ecc_uncorrected = INT64_MIN;
    }
    d.gpus.last = &said;
}

static void set_up(void)
{
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    memset(&d, 0, sizeof d);
    fill(longest, sizeof longest);
    fill(d.drained, sizeof d.drained);
    fill(d.node, sizeof d.node);
    d.rules.slots = d.rules.gpus = UINT32_MAX;
    d.rules.share = true;
    d.gpus.daemon = &d;
    d.gpus.log.fd = -1;
    many_leases();
    many_sums();
    many_gpus();
    asker = (struct client){.daemon = &d, .fd = {pair[0]}, .fds = 1}; /* root: he is told most */
    other = pair[1];
}

static void tear_down(void)
{
    close(asker.fd[0]);
    close(other);
}

static Hvd__Daemon *answered(void)
{
    static uint8_t bytes[2 * DAEMON_ANSWER_MAX];
    struct err e = ERR_INIT;
    ssize_t n = recv(other, bytes, sizeof bytes, 0);
    ck_assert_msg(n > (ssize_t)(FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE), "there is no answer");
    ptrdiff_t len = daemon_frame_length(bytes + FRAME_MAGIC_SIZE, DAEMON_ANSWER_MAX, &e);
    ck_assert_int_eq(len + FRAME_MAGIC_SIZE, n);
    Hvd__Daemon *m = daemon_unpack(bytes + FRAME_MAGIC_SIZE, (size_t)len, &e);
    ck_assert_msg(m != NULL, "%s", e.text);
    return m;
}

START_TEST(a_status_fits)
{
    reply_status(&asker);
    Hvd__Daemon *m = answered();
    ck_assert_uint_gt(m->status->n_lease, 100);
    ck_assert_uint_eq(m->status->n_lease + m->status->left_out, LEASES_MAX);
    ck_assert_uint_eq(m->status->n_waiting + m->status->waiting_left_out, QUEUE_MAX);
    ck_assert_uint_eq(m->status->sums->n_peer, 1 + SUM_PEERS);
    message_free(m);
}
END_TEST

START_TEST(gpus_fit)
{
    reply_gpus(&asker);
    Hvd__Daemon *m = answered();
    ck_assert_uint_eq(m->gpus->n_gpu, GPU_SET_MAX);
    message_free(m);
}
END_TEST

/* The code says whether waiting helps; the text does not. */
START_TEST(a_refusal_has_a_code)
{
    static const enum err_code why[] = {ERR_BUSY, ERR_HOST};
    static const Hvd__LeaseRefusal__Code wanted[] = {HVD__LEASE_REFUSAL__CODE__BUSY,
                                                     HVD__LEASE_REFUSAL__CODE__OTHER};
    for (size_t i = 0; i < 2; i++) {
        err_clear(&asker.refusal);
        err_set(&asker.refusal, why[i], "it is busy: 1 slot is wanted");
        reply_refusal(&asker);
        Hvd__Daemon *m = answered();
        ck_assert_str_eq(m->refusal->text, "it is busy: 1 slot is wanted");
        ck_assert_int_eq(m->refusal->code, wanted[i]);
        message_free(m);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replies");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_status_fits);
    tcase_add_test(all, gpus_fit);
    tcase_add_test(all, a_refusal_has_a_code);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
