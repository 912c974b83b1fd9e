#include "agent/daemon/admission/client.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/admission/replies.h"
#include "agent/daemon/daemon.h"
#include "agent/daemon/admission/request.h"
#include "agent/daemon/admission/decide.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define START_MS       30000 /* systemd answers within that, or not at all */
#define BUSY_MS        1500  /* for the slots of a job that has ended already */
#define CLOSE_AGAIN_MS 100   /* without a thread, until the next attempt */

#define REFUSALS_A_SECOND 20 /* of them a line is written each */

static void decide(void *owner);
static void start_session(void *owner);
static void refuse(void *owner);
static void tell_status(void *owner);
static void wait_in_queue(void *owner);
static void refuse_late(void *owner);
static void fail(void *owner);
static void say_late(void *owner);
static void let_go(void *owner);

static const char *const state_names[] = {"reading", "deciding", "waiting", "starting", "checking", "closed"};
static const char *const event_names[] = {"request", "broken", "late",    "admitted", "queued",
                                          "refused", "asked",  "started", "failed",   "check"};

static const struct fsm_row rows[] = {
    {CLIENT_READING, EV_REQUEST, CLIENT_DECIDING, decide},
    {CLIENT_READING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_READING, EV_LATE, CLIENT_CLOSED, say_late},
    {CLIENT_DECIDING, EV_ADMITTED, CLIENT_STARTING, start_session},
    {CLIENT_DECIDING, EV_REFUSED, CLIENT_CLOSED, refuse},
    {CLIENT_DECIDING, EV_QUEUED, CLIENT_WAITING, wait_in_queue},
    {CLIENT_WAITING, EV_ADMITTED, CLIENT_STARTING, start_session},
    {CLIENT_WAITING, EV_REFUSED, CLIENT_CLOSED, refuse},
    {CLIENT_WAITING, EV_LATE, CLIENT_CLOSED, refuse_late},
    {CLIENT_WAITING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_DECIDING, EV_ASKED, CLIENT_CLOSED, tell_status},
    {CLIENT_DECIDING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_DECIDING, EV_CHECK, CLIENT_CHECKING, NULL}, /* which has an end: see gpu_watch.h */
    {CLIENT_CHECKING, EV_ASKED, CLIENT_CLOSED, tell_status},
    {CLIENT_CHECKING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_STARTED, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_FAILED, CLIENT_CLOSED, fail},
    {CLIENT_STARTING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_LATE, CLIENT_CLOSED, refuse}, /* its unit may still come: the lease stays */
};

static const struct fsm_table table = {"client", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- the end ------------------------------------------------------------------------------------------- */

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
    if (queue_place(&c->daemon->queue, &c->entry)) {
        queue_remove(&c->daemon->queue, &c->entry);
        daemon_queue_changed(c->daemon);
    }
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

/* Whoever asks again and again does not use up what the journal takes of us. */
static void say_refused(const struct client *c)
{
    struct refusals *r = &c->daemon->refusals;
    uint64_t now = clock_now();
    if (now - r->since >= NSEC_PER_SEC) {
        r->since = now;
        r->said = 0;
    }
    if (r->said++ >= REFUSALS_A_SECOND) {
        r->unsaid++;
        return;
    }
    if (r->unsaid)
        log_info("%u requests more were refused", r->unsaid);
    r->unsaid = 0;
    log_info("%s (uid %u) was refused: %s", c->user, (unsigned)c->uid, c->refusal.text);
}

static void refuse(void *owner)
{
    struct client *c = owner;
    c->daemon->metrics.refused++;
    say_refused(c);
    answer_refusal(c);
    let_go(c);
}

/* Nobody is overtaken, not even by who would not wait. */
static void refuse_late(void *owner)
{
    struct client *c = owner;
    struct daemon *d = c->daemon;
    struct lease lease;
    err_clear(&c->refusal);
    if (leases_admit(&d->leases, &d->rules, &c->entry.want, &lease, &c->refusal) == LEASE_GIVEN)
        err_set(&c->refusal, ERR_BUSY, "it is busy: %zu jobs wait there already", d->queue.count - 1);
    refuse(c);
}

static void tell_status(void *owner)
{
    struct client *c = owner;
    if (c->about == CLIENT_ACCEPTS_GPUS)
        gpu_watch_accept(&c->daemon->gpus);
    if (c->about != CLIENT_ASKS_NODE)
        answer_gpus(c);
    else
        answer_status(c);
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

/* ---- its session --------------------------------------------------------------------------------------- */

void clients_checked(struct daemon *d)
{
    for (struct client *c = d->clients, *next; c; c = next) {
        next = c->next;
        if (c->fsm.state == CLIENT_CHECKING)
            fsm_post(&c->fsm, EV_ASKED);
    }
}

static void decide(void *owner)
{
    struct client *c = owner;
    uv_poll_stop(&c->poll);
    uv_timer_stop(&c->timer);
    request_name_user(c);
    Hvd__Daemon *m = daemon_unpack(c->frame, c->have, &c->refusal);
    enum client_event event = m ? wish_decide(c, m) : EV_REFUSED;
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

static void start_session(void *owner)
{
    struct client *c = owner;
    struct daemon *d = c->daemon;
    const struct lease *lease = leases_find(&d->leases, c->unit);
    char description[160], user[16], slots[GPU_LEASE_TEXT];
    char *argv[] = {d->program, "session", "--lease", slots, c->unit, d->socket, NULL};
    uv_poll_stop(&c->poll);
    snprintf(description, sizeof description, "Job %s of %s", lease->job, lease->user);
    snprintf(user, sizeof user, "%u", (unsigned)c->uid);
    gpu_watch_lease(&d->gpus, lease, slots);
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
    else
        daemon_session_began(d, unit);
    fsm_post(&c->fsm, failure ? EV_FAILED : EV_STARTED);
    return true;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static void on_gone(uv_poll_t *poll, int status, int events)
{
    struct client *c = poll->data;
    (void)status;
    (void)events;
    fsm_post(&c->fsm, EV_BROKEN);
}

/* What the launcher has said lies in the socket, for the session: only the end of it is heard. */
static void wait_in_queue(void *owner)
{
    struct client *c = owner;
    uv_poll_start(&c->poll, UV_DISCONNECT, on_gone);
    if (!c->entry.patient)
        uv_timer_start(&c->timer, on_late, BUSY_MS, 0);
    daemon_queue_changed(c->daemon);
}

static struct client *client_of(struct queue_entry *x)
{
    return (struct client *)(void *)((char *)x - offsetof(struct client, entry));
}

/* It waits no longer. */
static void let_in(struct client *c, enum lease_verdict verdict, const struct lease *lease)
{
    struct daemon *d = c->daemon;
    queue_remove(&d->queue, &c->entry);
    enum client_event event = verdict == LEASE_GIVEN ? wish_grant(c, lease) : EV_REFUSED;
    bool gone = event == EV_ADMITTED && c->entry.told[0] && !answer_waiting(c, "");
    fsm_post(&c->fsm, gone ? EV_BROKEN : event);
    if (gone)
        daemon_end_lease(d, lease->unit);
}

static void refuse_all(struct daemon *d, const char *why)
{
    while (d->queue.count > 0) {
        struct client *c = client_of(d->queue.entry[0]);
        err_set(&c->refusal, ERR_HOST, "%s", why);
        let_in(c, LEASE_NEVER, NULL);
    }
}

void clients_serve_queue(struct daemon *d)
{
    uint64_t again = UINT64_MAX, now = clock_now() / NSEC_PER_MSEC;
    struct queue_entry *x;
    struct lease lease;
    enum lease_verdict verdict;
    struct err e = ERR_INIT;
    const char *why = d->queue.count ? daemon_refuses(d) : NULL;
    if (why)
        refuse_all(d, why);
    while ((x = queue_next(&d->queue, &d->leases, &d->rules, &lease, &verdict, &e))) {
        client_of(x)->refusal = e;
        let_in(client_of(x), verdict, &lease);
    }
    for (size_t i = d->queue.count; i > 0; i--) { /* who is dropped leaves a gap behind the others only */
        x = d->queue.entry[i - 1];
        const char *news = queue_news(&d->queue, x, &d->leases, &d->rules, now, &again);
        if (news && !answer_waiting(client_of(x), news))
            client_drop(client_of(x));
    }
    if (again != UINT64_MAX)
        uv_timer_start(&d->queue_timer, daemon_on_queue_timer, again, 0);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct client *c = poll->data;
    struct err e = ERR_INIT;
    (void)events;
    int rc = status < 0 ? -1 : request_read(c, &e);
    if (rc == 0)
        return;
    if (e.code)
        daemon_complain(c->daemon, c, e.text);
    fsm_post(&c->fsm, rc > 0 ? EV_REQUEST : EV_BROKEN);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

/* Says so in the refusal. */
static bool is_one_too_many(const struct daemon *d, struct client *c)
{
    size_t most = (size_t)d->config.max_connections, same = 0, all = 0;
    for (const struct client *o = d->clients; o; o = o->next) {
        bool counts =
            o->fsm.state != CLIENT_WAITING || !o->entry.patient; /* else it has a limit of its own */
        all += counts;
        same += counts && o->uid == c->uid;
    }
    if (all >= most)
        err_set(&c->refusal, ERR_HOST, "it has %zu connections, and takes no more: try again", all);
    else if (same >= most / 4 && c->uid != 0)
        err_set(&c->refusal, ERR_HOST, "uid %u has %zu connections to it, and gets no more: try again",
                (unsigned)c->uid, same);
    return c->refusal.code != 0;
}

void client_open(struct daemon *d, int fd)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct client){.daemon = d, .fd = {fd}, .fds = 1};
    bool taken = request_identify(c) == 0 && !is_one_too_many(d, c);
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
    if (c->refusal.code)
        answer_refusal(c);
    daemon_complain(d, c, "has too many connections");
    client_drop(c);
}
