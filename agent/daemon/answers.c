#include "agent/daemon/answers.h"

#include <string.h>
#include <sys/socket.h>

#include "agent/daemon/daemon.h"
#include "common/clock.h"

#define STATUS_LEASES 200 /* in one answer: with the longest names they fit into DAEMON_ANSWER_MAX */

static bool answer(struct client *c, const Hvd__Daemon *m)
{
    static uint8_t bytes[FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + DAEMON_ANSWER_MAX];
    struct err e = ERR_INIT;
    memcpy(bytes, DAEMON_MAGIC, FRAME_MAGIC_SIZE);
    ptrdiff_t len = daemon_pack(m, bytes + FRAME_MAGIC_SIZE, sizeof bytes - FRAME_MAGIC_SIZE, &e);
    size_t all = FRAME_MAGIC_SIZE + (size_t)len;
    return len > 0 && send(c->fd[0], bytes, all, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)all;
}

bool answer_waiting(struct client *c, const char *text)
{
    Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    waiting.text = (char *)(uintptr_t)text;
    m.body_case = HVD__DAEMON__BODY_WAITING;
    m.waiting = &waiting;
    return answer(c, &m);
}

void answer_refusal(struct client *c)
{
    Hvd__LeaseRefusal refusal = HVD__LEASE_REFUSAL__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    refusal.text = c->refusal.text;
    m.body_case = HVD__DAEMON__BODY_REFUSAL;
    m.refusal = &refusal;
    (void)answer(c, &m);
}

void answer_status(struct client *c)
{
    struct daemon *d = c->daemon;
    static Hvd__AgentLease item[STATUS_LEASES], *list[STATUS_LEASES];
    static struct counted_told told;
    Hvd__AgentStatus status = HVD__AGENT_STATUS__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    status.version = (char *)HVD_VERSION;
    status.slots = d->rules.slots;
    status.taken = leases_slots_taken(&d->leases);
    status.shared = d->rules.share;
    status.drained = (char *)(uintptr_t)daemon_drained(d);
    status.node = d->node;
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
        status.n_lease++;
    }
    status.left_out = (uint32_t)(d->leases.count - status.n_lease);
    counted_save(&d->counted);
    counted_tell(&d->counted, (uint32_t)d->queue.count, clock_now() / NSEC_PER_MSEC, &told);
    status.sums = &told.sums;
    status.now = &told.now;
    m.body_case = HVD__DAEMON__BODY_STATUS;
    m.status = &status;
    (void)answer(c, &m);
}
