#include "agent/daemon/admission/client.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/admission/admission.h"
#include "agent/daemon/core.h"
#include "agent/daemon/sessions.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define START_MS       30000 /* systemd answers within that, or not at all */
#define BUSY_MS        1500  /* for the slots of a job that has ended already */
#define CLOSE_AGAIN_MS 100   /* without a thread, until the next attempt */

#define REFUSALS_A_SECOND 20 /* of them a line is written each */

static void decide_request(void *owner);
static void start_session(void *owner);
static void refuse_client(void *owner);
static void tell_status(void *owner);
static void wait_in_queue(void *owner);
static void refuse_late(void *owner);
static void fail_start(void *owner);
static void say_late(void *owner);
static void let_go(void *owner);

#define TEXT_OF(name, text) text,
static const char *const state_names[] = {CLIENT_STATES(TEXT_OF)};
static const char *const event_names[] = {CLIENT_EVENTS(TEXT_OF)};

static const struct fsm_row rows[] = {
    {CLIENT_READING, EV_REQUEST, CLIENT_DECIDING, decide_request},
    {CLIENT_READING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_READING, EV_LATE, CLIENT_CLOSED, say_late},
    {CLIENT_DECIDING, EV_ADMITTED, CLIENT_STARTING, start_session},
    {CLIENT_DECIDING, EV_REFUSED, CLIENT_CLOSED, refuse_client},
    {CLIENT_DECIDING, EV_QUEUED, CLIENT_WAITING, wait_in_queue},
    {CLIENT_WAITING, EV_ADMITTED, CLIENT_STARTING, start_session},
    {CLIENT_WAITING, EV_REFUSED, CLIENT_CLOSED, refuse_client},
    {CLIENT_WAITING, EV_LATE, CLIENT_CLOSED, refuse_late},
    {CLIENT_WAITING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_DECIDING, EV_ASKED, CLIENT_CLOSED, tell_status},
    {CLIENT_DECIDING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_DECIDING, EV_CHECK, CLIENT_CHECKING, NULL}, /* gpu_watch.h bounds the wait */
    {CLIENT_CHECKING, EV_ASKED, CLIENT_CLOSED, tell_status},
    {CLIENT_CHECKING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_STARTED, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_FAILED, CLIENT_CLOSED, fail_start},
    {CLIENT_STARTING, EV_BROKEN, CLIENT_CLOSED, let_go},
    {CLIENT_STARTING, EV_LATE, CLIENT_CLOSED, refuse_client}, /* its unit may still come: the lease stays */
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

static void forget_client(struct client *c)
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
    forget_client(c);
}

static void close_descriptors(uv_timer_t *timer)
{
    struct client *c = timer->data;
    if (async_close_start(&c->closing, &c->daemon->loop, c->fd, c->fds, on_descriptors_closed, c) < 0)
        uv_timer_start(timer, close_descriptors, CLOSE_AGAIN_MS, 0);
}

/* Most need no thread: a client that has passed no descriptors has no session. */
static void let_go(void *owner)
{
    struct client *c = owner;
    if (queue_place(&c->daemon->queue, &c->entry)) {
        queue_remove(&c->daemon->queue, &c->entry);
        daemon_queue_changed(c->daemon);
    }
    uv_close((uv_handle_t *)&c->poll, on_closed); /* before its number can be another's */
    uv_timer_stop(&c->timer);
    if (c->fds == 1 && close_if_read(c->fd[0])) {
        forget_client(c);
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

/* A client that asks again and again does not fill the journal. */
static void log_refusal(const struct client *c)
{
    struct log_limit *limit = &c->daemon->refusals;
    if (!daemon_may_log(limit, REFUSALS_A_SECOND))
        return;
    if (limit->unsaid)
        log_info("%u requests more were refused", limit->unsaid);
    limit->unsaid = 0;
    log_info("%s (uid %u) was refused: %s", c->user, (unsigned)c->uid, c->refusal.text);
}

static void refuse_client(void *owner)
{
    struct client *c = owner;
    c->daemon->metrics.refused++;
    log_refusal(c);
    reply_refusal(c);
    let_go(c);
}

/* No request in the queue is overtaken, not even by one that would not wait. */
static void refuse_late(void *owner)
{
    struct client *c = owner;
    struct daemon *d = c->daemon;
    struct lease lease;
    err_clear(&c->refusal);
    if (leases_admit(&d->leases, &d->rules, &c->entry.want, &lease, &c->refusal) == LEASE_GIVEN)
        err_set(&c->refusal, ERR_BUSY, "it is busy: %zu jobs wait there already", d->queue.count - 1);
    refuse_client(c);
}

static void tell_status(void *owner)
{
    struct client *c = owner;
    if (c->about == CLIENT_ACCEPTS_GPUS)
        gpu_watch_accept(&c->daemon->gpus);
    if (c->about != CLIENT_ASKS_NODE)
        reply_gpus(c);
    else
        reply_status(c);
    let_go(c);
}

static void fail_start(void *owner)
{
    struct client *c = owner;
    sessions_end(c->daemon, c->unit);
    refuse_client(c);
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

static void decide_request(void *owner)
{
    struct client *c = owner;
    uv_poll_stop(&c->poll);
    uv_timer_stop(&c->timer);
    request_name_user(c);
    Hvd__Daemon *m = daemon_unpack(c->frame, c->have, &c->refusal);
    if (m && m->body_case == HVD__DAEMON__BODY_REQUEST)
        clients_serve_queue(c->daemon); /* requests in the queue come first */
    enum client_event event = m ? admission_decide(c, m) : EV_REFUSED;
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
    char *argv[] = {d->program, "session", "--lease", slots, c->unit, d->listener.path, NULL};
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
        sessions_began(d, unit);
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

/* The launcher's bytes stay in the socket, for the session: the daemon only hears the end. */
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
    enum client_event event = verdict == LEASE_GIVEN ? admission_grant(c, lease) : EV_REFUSED;
    bool gone = event == EV_ADMITTED && c->entry.told[0] && !reply_waiting(c, "");
    fsm_post(&c->fsm, gone ? EV_BROKEN : event);
    if (gone)
        sessions_end(d, lease->unit);
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
    struct lease lease;
    enum lease_verdict verdict;
    struct err e = ERR_INIT;
    const char *why = d->queue.count ? admission_closed(d) : NULL;
    if (why)
        refuse_all(d, why);
    struct queue_entry *x = queue_next(&d->queue, &d->leases, &d->rules, &lease, &verdict, &e);
    while (x) {
        client_of(x)->refusal = e;
        let_in(client_of(x), verdict, &lease);
        x = queue_next(&d->queue, &d->leases, &d->rules, &lease, &verdict, &e);
    }
    for (size_t i = d->queue.count; i > 0; i--) { /* a dropped client shifts only entries behind it */
        x = d->queue.entry[i - 1];
        const char *news = queue_news(&d->queue, x, &d->leases, &d->rules, now, &again);
        if (news && !reply_waiting(client_of(x), news))
            client_drop(client_of(x));
    }
    if (again != UINT64_MAX)
        daemon_serve_queue_in(d, again);
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
        reply_refusal(c);
    daemon_complain(d, c, "has too many connections");
    client_drop(c);
}
