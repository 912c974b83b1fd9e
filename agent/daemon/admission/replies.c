#include "agent/daemon/admission/admission.h"

#include <string.h>
#include <sys/socket.h>

#include "agent/daemon/core.h"
#include "common/base/clock.h"

/* In one answer: with the longest names they fit into DAEMON_ANSWER_MAX. */
#define STATUS_LEASES  180
#define STATUS_WAITING 40
#define NUMBERS_MAX    32   /* of one of them, with what stands before each text */
#define OTHERS_MAX     2048 /* version, why it is drained or not healthy, numbers */
#define SUMS_MAX       ((1 + SUM_PEERS) * (SUM_PEER_NAME + NUMBERS_MAX) + (SUMS + SUM_CAUSES) * 10)
_Static_assert(STATUS_LEASES *(LEASE_JOB_MAX + LEASE_UNIT_MAX + LEASE_USER_MAX + NUMBERS_MAX) +
                       STATUS_WAITING * (LEASE_JOB_MAX + LEASE_USER_MAX + NUMBERS_MAX) + GPU_SET_TEXT +
                       SUMS_MAX + OTHERS_MAX <
                   DAEMON_ANSWER_MAX,
               "an answer must fit");

static bool send_reply(struct client *c, const Hvd__Daemon *m)
{
    static uint8_t bytes[FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + DAEMON_ANSWER_MAX];
    struct err e = ERR_INIT;
    memcpy(bytes, DAEMON_MAGIC, FRAME_MAGIC_SIZE);
    ptrdiff_t len = daemon_pack(m, bytes + FRAME_MAGIC_SIZE, sizeof bytes - FRAME_MAGIC_SIZE, &e);
    size_t all = FRAME_MAGIC_SIZE + (size_t)len;
    return len > 0 && send(c->fd[0], bytes, all, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)all;
}

bool reply_waiting(struct client *c, const char *text)
{
    Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    waiting.text = (char *)(uintptr_t)text;
    m.body_case = HVD__DAEMON__BODY_WAITING;
    m.waiting = &waiting;
    return send_reply(c, &m);
}

void reply_refusal(struct client *c)
{
    Hvd__LeaseRefusal refusal = HVD__LEASE_REFUSAL__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    refusal.text = c->refusal.text;
    refusal.code =
        c->refusal.code == ERR_BUSY ? HVD__LEASE_REFUSAL__CODE__BUSY : HVD__LEASE_REFUSAL__CODE__OTHER;
    m.body_case = HVD__DAEMON__BODY_REFUSAL;
    m.refusal = &refusal;
    (void)send_reply(c, &m);
}

void reply_gpus(struct client *c)
{
    Hvd__Daemon m = HVD__DAEMON__INIT;
    m.body_case = HVD__DAEMON__BODY_GPUS;
    m.gpus = (Hvd__Gpus *)(uintptr_t)gpu_watch_tell(&c->daemon->gpus, c->uid);
    (void)send_reply(c, &m);
}

static void put_queue(const struct client *c, Hvd__AgentStatus *status)
{
    static Hvd__AgentWaiting item[STATUS_WAITING], *list[STATUS_WAITING];
    const struct queue *q = &c->daemon->queue;
    status->waiting = list;
    for (size_t i = 0; i < q->count && status->n_waiting < STATUS_WAITING; i++) {
        const struct lease_want *want = &q->entry[i]->want;
        Hvd__AgentWaiting *a = list[status->n_waiting] = &item[status->n_waiting];
        bool his = c->uid == 0 || c->uid == want->uid;
        hvd__agent_waiting__init(a);
        a->user = (char *)(uintptr_t)want->user;
        a->slots = want->slots;
        a->fewer = want->fewer;
        a->priority = q->entry[i]->priority;
        a->job = his ? (char *)(uintptr_t)want->job : a->job;
        status->n_waiting++;
    }
    status->waiting_left_out = (uint32_t)(q->count - status->n_waiting);
}

void reply_status(struct client *c)
{
    struct daemon *d = c->daemon;
    static Hvd__AgentLease item[STATUS_LEASES], *list[STATUS_LEASES];
    static struct totals_message told;
    Hvd__AgentStatus status = HVD__AGENT_STATUS__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    status.version = (char *)HVD_VERSION;
    status.slots = d->rules.slots;
    status.taken = leases_slots_taken(&d->leases);
    status.shared = d->rules.share;
    status.drained = (char *)(uintptr_t)daemon_drained(d);
    status.node = d->node;
    char why[2 * GPU_FAULT_TEXT], gpus[STATUS_LEASES * 2 + GPU_SET_TEXT], *free_text = gpus;
    status.gpus = d->rules.gpus;
    status.unhealthy = (char *)(uintptr_t)gpu_watch_refuses(&d->gpus, why, sizeof why);
    put_queue(c, &status);
    status.lease = list;
    for (size_t i = 0; i < d->leases.count && status.n_lease < STATUS_LEASES; i++) {
        struct lease *lease = &d->leases.item[i];
        Hvd__AgentLease *a = list[status.n_lease] = &item[status.n_lease];
        bool his = c->uid == 0 || c->uid == lease->uid;
        hvd__agent_lease__init(a);
        a->user = lease->user;
        a->slots = lease->slots;
        a->since = lease->since;
        a->job = his ? lease->job : a->job;
        a->unit = his ? lease->unit : a->unit;
        a->gpus = free_text; /* no two have the same, so there is room for all */
        free_text += strlen(gpu_set_text(lease->gpus, free_text)) + 1;
        status.n_lease++;
    }
    status.left_out = (uint32_t)(d->leases.count - status.n_lease);
    totals_save(&d->totals);
    totals_tell(&d->totals, (uint32_t)d->queue.count, clock_now() / NSEC_PER_MSEC, &told);
    status.sums = &told.sums;
    status.now = &told.now;
    m.body_case = HVD__DAEMON__BODY_STATUS;
    m.status = &status;
    (void)send_reply(c, &m);
}
