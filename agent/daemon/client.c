#include "agent/daemon/client.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/daemon.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"

#define START_MS       30000 /* systemd answers within that, or not at all */
#define BUSY_MS        1500  /* for the slots of a job that has ended already */
#define CLOSE_AGAIN_MS 100   /* without a thread, until the next attempt */
#define STATUS_LEASES  200   /* in one answer: with the longest names they fit into DAEMON_ANSWER_MAX */

enum client_state { CLIENT_READING, CLIENT_DECIDING, CLIENT_WAITING, CLIENT_STARTING, CLIENT_CLOSED };
enum client_event {
    EV_REQUEST,
    EV_BROKEN,
    EV_LATE,
    EV_ADMITTED,
    EV_BUSY,
    EV_FREED,
    EV_REFUSED,
    EV_ASKED,
    EV_STARTED,
    EV_FAILED
};

static void decide(void *owner);
static void start_session(void *owner);
static void refuse(void *owner);
static void tell_status(void *owner);
static void wait_for_slots(void *owner);
static void fail(void *owner);
static void say_late(void *owner);
static void let_go(void *owner);

static const char *const state_names[] = {"reading", "deciding", "waiting", "starting", "closed"};
static const char *const event_names[] = {"request", "broken",  "late",  "admitted", "busy",
                                          "freed",   "refused", "asked", "started",  "failed"};

static const struct fsm_row rows[] = {
    {CLIENT_READING, EV_REQUEST, CLIENT_DECIDING, decide},
    {CLIENT_READING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_READING, EV_LATE, CLIENT_CLOSED, say_late},
    {CLIENT_DECIDING, EV_ADMITTED, CLIENT_STARTING, start_session},
    {CLIENT_DECIDING, EV_REFUSED, CLIENT_CLOSED, refuse},
    {CLIENT_DECIDING, EV_BUSY, CLIENT_WAITING, wait_for_slots},
    {CLIENT_WAITING, EV_FREED, CLIENT_DECIDING, decide},
    {CLIENT_WAITING, EV_LATE, CLIENT_CLOSED, refuse},
    {CLIENT_WAITING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_DECIDING, EV_ASKED, CLIENT_CLOSED, tell_status},
    {CLIENT_STARTING, EV_STARTED, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_FAILED, CLIENT_CLOSED, fail},
    {CLIENT_STARTING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_LATE, CLIENT_CLOSED, refuse}, /* its unit may still come: the lease stays */
};

static const struct fsm_table table = {"client", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- the end ---------------------------------------------------------------------------------------------
 */

static void on_closed(uv_handle_t *handle)
{
    struct client *c = handle->data;
    if (--c->handles > 0)
        return;
    free(c->groups);
    free(c);
}

static void forget(struct client *c)
{
    struct client **link = &c->daemon->clients;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    c->daemon->client_count--;
    uv_close((uv_handle_t *)&c->timer, on_closed);
}

static void on_descriptors_closed(void *ctx)
{
    struct client *c = ctx;
    c->closing.ended.data = c;
    uv_close((uv_handle_t *)&c->closing.ended, on_closed);
    forget(c);
}

static void close_descriptors(uv_timer_t *timer)
{
    struct client *c = timer->data;
    if (closing_start(&c->closing, &c->daemon->loop, c->fd, c->fds, on_descriptors_closed, c) < 0)
        uv_timer_start(timer, close_descriptors, CLOSE_AGAIN_MS, 0);
}

/* Most need no thread: the connection of somebody who passed nothing is no session's. */
static void let_go(void *owner)
{
    struct client *c = owner;
    uv_close((uv_handle_t *)&c->poll, on_closed); /* before its number can be another's */
    uv_timer_stop(&c->timer);
    if (c->fds == 1 && closing_at_once(c->fd[0])) {
        forget(c);
        return;
    }
    c->handles++;
    close_descriptors(&c->timer);
}

void client_drop(struct client *c)
{
    if (c->fsm.state != CLIENT_CLOSED)
        fsm_post(&c->fsm, EV_BROKEN);
}

/* Into an empty socket: who does not take it does not want it. */
static void answer(struct client *c, const Hvd__Daemon *m)
{
    static uint8_t bytes[FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + DAEMON_ANSWER_MAX];
    struct err e = ERR_INIT;
    memcpy(bytes, DAEMON_MAGIC, FRAME_MAGIC_SIZE);
    ptrdiff_t len = daemon_pack(m, bytes + FRAME_MAGIC_SIZE, sizeof bytes - FRAME_MAGIC_SIZE, &e);
    if (len > 0)
        (void)send(c->fd[0], bytes, FRAME_MAGIC_SIZE + (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void refuse(void *owner)
{
    struct client *c = owner;
    Hvd__LeaseRefusal refusal = HVD__LEASE_REFUSAL__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    refusal.text = c->refusal.text;
    m.body_case = HVD__DAEMON__BODY_REFUSAL;
    m.refusal = &refusal;
    c->daemon->metrics.refused++;
    log_info("%s (uid %u) was refused: %s", c->user, (unsigned)c->uid, c->refusal.text);
    answer(c, &m);
    let_go(c);
}

static void tell_status(void *owner)
{
    struct client *c = owner;
    struct daemon *d = c->daemon;
    static Hvd__AgentLease item[STATUS_LEASES], *list[STATUS_LEASES];
    Hvd__AgentStatus status = HVD__AGENT_STATUS__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    status.version = (char *)HVD_VERSION;
    status.slots = d->rules.slots;
    status.taken = leases_slots_taken(&d->leases);
    status.shared = d->rules.share;
    status.drained = (char *)(uintptr_t)daemon_drained(d);
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
    m.body_case = HVD__DAEMON__BODY_STATUS;
    m.status = &status;
    answer(c, &m);
    let_go(c);
}

static void fail(void *owner)
{
    struct client *c = owner;
    daemon_end_lease(c->daemon, c->unit);
    refuse(c);
}

static void say_late(void *owner)
{
    struct client *c = owner;
    daemon_complain(c->daemon, c, "did not say in time what it wants");
    let_go(c);
}

/* ---- what it wants ---------------------------------------------------------------------------------------
 */

static int admit(struct client *c, const Hvd__LeaseRequest *request, struct lease *lease, struct err *e)
{
    struct daemon *d = c->daemon;
    if (request->protocol != DAEMON_PROTOCOL)
        return err_set(e, ERR_VERSION, "hvdagent attach speaks version %u, the managed agent version %u",
                       request->protocol, DAEMON_PROTOCOL);
    if (!daemon_config_allows(&d->config, c->uid, c->groups, c->group_count))
        return err_set(e, ERR_HOST, "%s may not run jobs there", c->user);
    if (daemon_drained(d)[0])
        return err_set(e, ERR_HOST, "it is drained: %s", daemon_drained(d));
    struct lease_want want = {.job = request->job,
                              .user = c->user,
                              .uid = c->uid,
                              .slots = request->slots,
                              .fewer = request->fewer};
    if (leases_admit(&d->leases, &d->rules, &want, lease, e) < 0)
        return -1;
    return leases_add(&d->leases, lease, e);
}

/* Names need the user database, which may take its time: for those only who will be decided about. */
static void name_user(struct client *c)
{
    const struct passwd *p = getpwuid(c->uid);
    if (p && strlen(p->pw_name) < sizeof c->user && !strpbrk(p->pw_name, "\r\n"))
        snprintf(c->user, sizeof c->user, "%s", p->pw_name);
}

static enum client_event decide_lease(struct client *c, const Hvd__LeaseRequest *request)
{
    struct lease lease;
    char got[32];
    if (c->fds != 1 + DAEMON_DESCRIPTORS)
        err_set(&c->refusal, ERR_PROTOCOL, "a request without its descriptors");
    if (c->refusal.code || admit(c, request, &lease, &c->refusal) < 0)
        return c->refusal.code == ERR_TIMEOUT ? EV_BUSY : EV_REFUSED;
    snprintf(c->unit, sizeof c->unit, "%s", lease.unit);
    c->daemon->metrics.given++;
    snprintf(got, sizeof got, "gets %u slots", lease.slots);
    journal_job(c->daemon, &lease, got);
    return EV_ADMITTED;
}

static enum client_event decide_drain(struct client *c, const Hvd__AgentDrain *drain)
{
    if (c->uid != 0)
        err_set(&c->refusal, ERR_HOST, "only root may drain a node");
    else
        daemon_drain(c->daemon, !drain->on ? "" : drain->reason[0] ? drain->reason : "by root", &c->refusal);
    return c->refusal.code ? EV_REFUSED : EV_ASKED;
}

static void decide(void *owner)
{
    struct client *c = owner;
    enum client_event event = EV_REFUSED;
    uv_poll_stop(&c->poll);
    uv_timer_stop(&c->timer);
    name_user(c);
    err_clear(&c->refusal);
    Hvd__Daemon *m = daemon_unpack(c->frame, c->have, &c->refusal);
    if (m && m->body_case == HVD__DAEMON__BODY_REQUEST)
        event = decide_lease(c, m->request);
    else if (m && m->body_case == HVD__DAEMON__BODY_QUERY)
        event = EV_ASKED;
    else if (m && m->body_case == HVD__DAEMON__BODY_DRAIN)
        event = decide_drain(c, m->drain);
    else
        err_set(&c->refusal, ERR_PROTOCOL, "that is no request");
    message_free(m);
    fsm_post(&c->fsm, event);
}

static void on_late(uv_timer_t *timer)
{
    struct client *c = timer->data;
    if (c->fsm.state == CLIENT_STARTING)
        err_set(&c->refusal, ERR_TIMEOUT, "systemd did not start the session within %d s", START_MS / 1000);
    fsm_post(&c->fsm, EV_LATE);
}

static void wait_for_slots(void *owner)
{
    struct client *c = owner;
    uint64_t now = clock_now();
    c->busy_since = c->busy_since ? c->busy_since : now;
    uint64_t waited = (now - c->busy_since) / NSEC_PER_MSEC;
    uv_timer_start(&c->timer, on_late, waited < BUSY_MS ? BUSY_MS - waited : 0, 0);
}

void clients_slots_freed(struct daemon *d)
{
    size_t waiting = 0;
    for (struct client *c = d->clients; c; c = c->next)
        waiting += c->fsm.state == CLIENT_WAITING;
    /* Who came later stands before who came earlier. Each is decided about once: whoever waits on stays
     * behind. */
    for (; waiting > 0; waiting--) {
        struct client *c = d->clients;
        for (size_t skip = waiting; c; c = c->next)
            if (c->fsm.state == CLIENT_WAITING && --skip == 0)
                break;
        if (c)
            fsm_post(&c->fsm, EV_FREED);
    }
}

static void start_session(void *owner)
{
    struct client *c = owner;
    struct daemon *d = c->daemon;
    const struct lease *lease = leases_find(&d->leases, c->unit);
    char description[160], user[16], slots[16];
    char *argv[] = {d->program, "session", "--lease", slots, NULL};
    snprintf(description, sizeof description, "Job %s of %s", lease->job, lease->user);
    snprintf(user, sizeof user, "%u", (unsigned)c->uid);
    snprintf(slots, sizeof slots, "%u", lease->slots);
    struct systemd_service service = {.name = c->unit,
                                      .description = description,
                                      .argv = argv,
                                      .user = user,
                                      .slice = d->config.slice,
                                      .pam = d->config.pam,
                                      .tasks_max = (uint64_t)d->config.tasks_max,
                                      .fd = {c->fd[0], c->fd[1 + DAEMON_STATUS], c->fd[1 + DAEMON_STDERR]}};
    if (units_start(&d->units, &service, &c->refusal) < 0) {
        fsm_post(&c->fsm, EV_FAILED);
        return;
    }
    uv_timer_start(&c->timer, on_late, START_MS, 0);
}

bool client_unit_started(struct daemon *d, const char *unit, const char *failure)
{
    struct client *c = d->clients;
    while (c && (c->fsm.state != CLIENT_STARTING || strcmp(c->unit, unit) != 0))
        c = c->next;
    if (!c)
        return false;
    if (failure)
        err_set(&c->refusal, ERR_HOST, "systemd did not start the session: %s (journalctl -u %s)", failure,
                unit);
    fsm_post(&c->fsm, failure ? EV_FAILED : EV_STARTED);
    return true;
}

/* ---- reading ---------------------------------------------------------------------------------------------
 */

/* All that came, so that none is left to the kernel to close in our place. -1 with *e when they are not what
 * is wanted. */
static int take_descriptors(struct client *c, struct msghdr *m, struct err *e)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int), first = c->fds;
        memcpy(c->fd + c->fds, CMSG_DATA(h), count * sizeof(int)); /* there is room: see below */
        c->fds += count;
        for (size_t i = first; i < c->fds; i++)
            if (!closing_is_harmless(c->fd[i]))
                return err_set(e, ERR_PROTOCOL, "sent a descriptor that is no pipe and no unix socket");
    }
    if (c->fds > 1 + DAEMON_DESCRIPTORS)
        return err_set(e, ERR_PROTOCOL, "sent %zu descriptors, and %d are wanted", c->fds - 1,
                       DAEMON_DESCRIPTORS);
    return 0;
}

/* Up to `want` bytes of the frame, no more: 1 when they are there, 0 when some are to come, -1 at the end. */
static int fill(struct client *c, size_t want, struct err *e)
{
    while (c->have < want) {
        union {
            char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
            struct cmsghdr align;
        } control;
        struct iovec part = {c->frame + c->have, want - c->have};
        struct msghdr m = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(c->fd[0], &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0 || take_descriptors(c, &m, e) < 0)
            return -1;
        c->have += (size_t)n;
    }
    return 1;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct client *c = poll->data;
    struct err e = ERR_INIT;
    ptrdiff_t length = 0;
    (void)events;
    int rc = status < 0 ? -1 : fill(c, FRAME_HEADER_SIZE, &e);
    if (rc > 0) {
        length = daemon_frame_length(c->frame, DAEMON_MESSAGE_MAX, &e);
        rc = length < 0 ? -1 : fill(c, (size_t)length, &e);
    }
    if (rc == 0)
        return;
    if (e.code)
        daemon_complain(c->daemon, c, e.text);
    fsm_post(&c->fsm, rc > 0 ? EV_REQUEST : EV_BROKEN);
}

/* ---- the beginning ---------------------------------------------------------------------------------------
 */

static int identify(struct client *c)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(c->fd[0], SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -1;
    c->uid = peer.uid;
    c->pid = peer.pid;
    size = 0;
    if (getsockopt(c->fd[0], SOL_SOCKET, SO_PEERGROUPS, NULL, &size) < 0 && errno != ERANGE)
        return -1;
    c->groups = malloc(size + sizeof *c->groups);
    if (!c->groups || getsockopt(c->fd[0], SOL_SOCKET, SO_PEERGROUPS, c->groups, &size) < 0)
        return -1;
    c->group_count = size / sizeof *c->groups;
    c->groups[c->group_count++] = peer.gid;
    snprintf(c->user, sizeof c->user, "%u", (unsigned)c->uid);
    return 0;
}

static bool is_one_too_many(struct daemon *d, const struct client *c)
{
    size_t most = (size_t)d->config.max_connections, same = 0;
    for (const struct client *o = d->clients; o; o = o->next)
        same += o->uid == c->uid;
    return d->client_count >= most || (same >= most / 4 && c->uid != 0);
}

void client_open(struct daemon *d, int fd)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct client){.daemon = d, .fd = {fd}, .fds = 1};
    bool taken = identify(c) == 0 && !is_one_too_many(d, c);
    fsm_init(&c->fsm, &table, c, c->user, CLIENT_READING);
    c->next = d->clients;
    d->clients = c;
    d->client_count++;
    uv_timer_init(&d->loop, &c->timer);
    uv_poll_init(&d->loop, &c->poll, fd);
    c->handles = 2;
    c->poll.data = c->timer.data = c;
    if (taken) {
        uv_poll_start(&c->poll, UV_READABLE, on_readable);
        uv_timer_start(&c->timer, on_late, (uint64_t)d->config.request_timeout_ms, 0);
        return;
    }
    daemon_complain(d, c, "has too many connections");
    client_drop(c);
}
