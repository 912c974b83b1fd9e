/* Peers, their life and their time; the public calls. A link's making is in link_setup.c, its bytes are in
 * link_stream.c.
 *
 *   NONE -> CONNECTING (links_connect, lower index) -> READY (chosen) -> LOST
 *   NONE -> READY (accepted and proven) -> LOST;  NONE, CONNECTING -> LOST at the start deadline
 *
 * A failure is noted where it is seen (links_fail) and told at the end of the round, so no callback runs
 * inside a send. A host that leaves says why before; a send to it may fail before that was read. So the
 * socket is read to its end before such a failure is told. */
#include "common/net/links.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/secret.h"
#include "common/net/links_internal.h"

#define DEFAULT_MS 30000u
#define EVENTS_MAX 64
#define BEATS      4  /* heartbeats within the silence that ends a link */
#define LAST_READS 64 /* of a host that is lost: more than a socket holds */
#define UNSENT_MAX                                                                                           \
    (512u << 10) /* bytes in a socket that the wire has not taken: what a control frame waits behind */

void links_timer(struct links *l, uint64_t at)
{
    if (l->timer == 0 || at < l->timer)
        l->timer = at;
}

static uint64_t beat_period(const struct links *l)
{
    return l->heartbeat / BEATS;
}

/* A peer is ready or lost: the last one takes the listeners away. */
static void note_settled(struct links *l)
{
    if (--l->unsettled > 0)
        return;
    if (!l->lasting)
        link_setup_close_listeners(l);
    link_report(l);
}

void links_fail(struct links *l, struct peer *p, const struct err *why)
{
    if (p->failed || p->state == PEER_LOST)
        return;
    p->failed = true;
    p->why = *why;
    l->any_failed = true;
}

/* The bytes of a link that was made by `h`: its last message first. */
static int open_stream(struct links *l, struct link_stream *s, int fd, const struct link_handshake *h,
                       struct err *e)
{
    size_t first_size;
    const void *first = link_handshake_output(h, &first_size);
    if (link_stream_init(s, fd, h->peer, &l->events, l->ctx, first, first_size, e) < 0)
        return -1;
    if (!l->tls)
        return 0;
    uint8_t secret[TLS_SECRET_SIZE];
    int rc = link_handshake_secret(h, secret, e);
    if (rc == 0)
        /* The end that connected is TLS's client. */
        rc = link_stream_encrypt(s, l->tls, secret, h->peer < l->self, e);
    explicit_bzero(secret, sizeof secret);
    return rc;
}

/* All links are to be ready within the limit. */
static void begin_limit(struct links *l)
{
    if (l->start_deadline)
        return;
    l->start_deadline = l->now + l->start;
    links_timer(l, l->start_deadline);
}

void links_peer_ready(struct links *l, struct peer *p, int fd, const struct link_handshake *h)
{
    struct err e = ERR_INIT;
    p->stream = calloc(1, sizeof *p->stream);
    p->watch = (struct watch){.kind = WATCH_PEER};
    if (!p->stream)
        close(fd);
    if (!p->stream || open_stream(l, p->stream, fd, h, &e) < 0 ||
        net_set_link_options(fd, (unsigned)(l->heartbeat / NSEC_PER_MSEC), UNSENT_MAX, &e) < 0 ||
        link_stream_flush(p->stream, &e) < 0 || links_watch_peer(l, p, &e) < 0) {
        err_set(&e, ERR_MEMORY, "no memory for a link");
        links_fail(l, p, &e);
        return;
    }
    p->state = PEER_READY;
    if (l->start_deadline == LINKS_PATIENT && (p->host == 0 || l->self == 0)) {
        l->start_deadline = 0;
        begin_limit(l);
    }
    p->received_at = p->sent_at = l->now;
    links_timer(l, l->now + beat_period(l));
    note_settled(l);
    if (!l->down)
        l->events.ready(l->ctx, p->host);
}

/* ---- making and ending --------------------------------------------------------------------------------- */

struct peer *links_peer_new(uint32_t host, const char *name)
{
    struct peer *p = calloc(1, sizeof *p);
    if (p && (p->name = strdup(name))) {
        p->host = host;
        return p;
    }
    free(p);
    return NULL;
}

void links_peer_free(struct peer *p)
{
    if (!p)
        return;
    if (p->stream)
        link_stream_free(p->stream);
    free(p->stream);
    free(p->address);
    free(p->name);
    free(p);
}

static int copy_config(struct links *l, const struct links_config *c, struct err *e)
{
    size_t job = strlen(c->job);
    if (job > LINK_JOB_MAX || c->hosts == 0 || c->self >= c->hosts)
        return err_set(e, ERR_PROTOCOL, "job '%.80s', host %u of %u cannot make links", c->job, c->self,
                       c->hosts);
    memcpy(l->job, c->job, job);
    l->key = secret_new(AUTH_KEY_SIZE);
    if (!l->key)
        return err_set(e, ERR_MEMORY, "no memory for links to %u hosts", c->hosts);
    secret_copy(l->key, c->key, AUTH_KEY_SIZE);
    l->self = c->self;
    l->hosts = c->hosts;
    l->heartbeat = (c->heartbeat_ms ? c->heartbeat_ms : DEFAULT_MS) * NSEC_PER_MSEC;
    l->start = (c->start_ms ? c->start_ms : DEFAULT_MS) * NSEC_PER_MSEC;
    l->identity = (struct link_identity){.auth = c->auth,
                                         .key = l->key,
                                         .job = l->job,
                                         .epoch = c->epoch,
                                         .kind = c->kind,
                                         .self = c->self,
                                         .hosts = c->hosts,
                                         .encrypt = c->tls != NULL};
    l->tls = c->tls;
    l->lasting = c->lasting;
    l->peer = calloc(c->hosts, sizeof(struct peer *));
    for (uint32_t i = 0; l->peer && i < c->hosts; i++) {
        l->peer[i] = links_peer_new(i, c->name[i]);
        if (!l->peer[i])
            break;
        l->peer[i]->linked = i != c->self && (!c->linked || c->linked[i]);
        l->unsettled += l->peer[i]->linked;
    }
    if (!l->peer || !l->peer[c->hosts - 1])
        return err_set(e, ERR_MEMORY, "no memory for links to %u hosts", c->hosts);
    return 0;
}

void links_identify(const struct links *l, struct links_config *config)
{
    config->job = l->job;
    config->epoch = l->identity.epoch;
    config->key = l->key;
    config->auth = l->identity.auth;
}

struct links *links_new(const struct links_config *config, const struct links_events *events, void *ctx,
                        uint64_t now, struct err *e)
{
    struct links *l = calloc(1, sizeof *l);
    if (!l) {
        err_set(e, ERR_MEMORY, "no memory for links");
        return NULL;
    }
    l->events = *events;
    l->ctx = ctx;
    l->now = now;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0)
        err_sys(e, errno, "cannot make an epoll descriptor");
    if (l->epoll < 0 || copy_config(l, config, e) < 0 ||
        link_setup_listen(l, config->address, config->addresses, &config->ports, e) < 0) {
        links_free(l);
        return NULL;
    }
    return l;
}

/* Also takes its descriptor out of the epoll set. */
void links_peer_close(struct peer *p, const char *reason)
{
    struct link_stream *s = p->stream;
    if (!s || s->fd < 0)
        return;
    /* Between two frames only; whether it gets through is the wire's business. */
    if (reason && s->bulk_sent == 0)
        link_stream_send(s, LINK_FAREWELL, reason, strnlen(reason, LINK_FAREWELL_MAX), NULL);
    link_stream_deliver(s, 0);
    link_stream_close(s);
    link_stream_deliver(s, -1);
}

void links_shutdown(struct links *l, const char *reason)
{
    if (l->down)
        return;
    l->down = true;
    link_setup_close_listeners(l);
    for (uint32_t i = 0; i < l->hosts; i++) {
        link_setup_drop_candidates(l, l->peer[i]);
        links_peer_close(l->peer[i], reason);
        l->peer[i]->state = PEER_LOST;
    }
}

void links_free(struct links *l)
{
    if (!l)
        return;
    if (l->peer && l->peer[l->hosts - 1])
        links_shutdown(l, NULL);
    else
        link_setup_close_listeners(l);
    link_setup_free_closed(l);
    for (uint32_t i = 0; l->peer && i < l->hosts; i++)
        links_peer_free(l->peer[i]);
    if (l->epoll >= 0)
        close(l->epoll);
    free(l->listener);
    free(l->peer);
    secret_free(l->key, AUTH_KEY_SIZE);
    free(l);
}

uint16_t links_port(const struct links *l)
{
    return l->port;
}

int links_fd(const struct links *l)
{
    return l->epoll;
}

bool links_ready(const struct links *l, uint32_t host)
{
    return host < l->hosts && l->peer[host]->state == PEER_READY && !l->peer[host]->failed;
}

int links_connect(struct links *l, uint32_t host, const char *const *address, size_t addresses, uint16_t port,
                  uint64_t now, struct err *e)
{
    if (host >= l->hosts || host == l->self || addresses > NET_ADDRESSES_MAX)
        return err_set(e, ERR_PROTOCOL, "host %u of %u cannot make a link to host %u at %zu addresses",
                       l->self, l->hosts, host, addresses);
    union net_address parsed[NET_ADDRESSES_MAX];
    for (size_t i = 0; i < addresses; i++) {
        if (net_parse(address[i], port, &parsed[i], e) < 0)
            return -1;
        net_set_port(&parsed[i], port);
    }
    l->now = now;
    begin_limit(l);
    struct peer *p = l->peer[host];
    if (host > l->self || !p->linked || p->state != PEER_NONE || l->down)
        return 0;
    if (addresses == 0)
        return err_set(e, ERR_HOST, "host %s has no address for links", l->peer[host]->name);
    p->address = malloc(addresses * sizeof *parsed);
    if (!p->address)
        return err_set(e, ERR_MEMORY, "no memory for a link");
    memcpy(p->address, parsed, addresses * sizeof *parsed);
    p->addresses = (uint32_t)addresses;
    p->state = PEER_CONNECTING;
    link_setup_connect(l, p);
    return 0;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

/* After anything was sent: wait for room when the socket is full, remember what ended. */
static void after_send(struct links *l, struct peer *p, int rc, struct err *e)
{
    struct link_stream *s = p->stream;
    p->sent_at = l->now;
    l->any_ended |= s->ended != NULL;
    p->unread = rc < 0;
    if (rc == 0)
        rc = links_watch_peer(l, p, e);
    if (rc < 0)
        links_fail(l, p, e);
}

/* Messages of the epoch before may be on their way: the fence ends them. */
static void send_fence(struct links *l, struct peer *p)
{
    struct err why = ERR_INIT;
    uint32_t size = p->fence_size;
    p->fence_size = 0;
    after_send(l, p, link_stream_send(p->stream, LINK_CONTROL, p->fence, size, &why), &why);
}

static struct peer *ready_peer(struct links *l, uint32_t host, struct err *e)
{
    if (links_ready(l, host) && l->peer[host]->fence_size > 0)
        send_fence(l, l->peer[host]);
    if (links_ready(l, host))
        return l->peer[host];
    err_set(e, ERR_CLOSED, "there is no link to host %s", host < l->hosts ? l->peer[host]->name : "?");
    return NULL;
}

int links_send_control(struct links *l, uint32_t host, const void *data, size_t size, struct err *e)
{
    struct peer *p = ready_peer(l, host, e);
    struct err why = ERR_INIT;
    if (!p)
        return -1;
    if (size > LINKS_CONTROL_MAX)
        return err_set(e, ERR_PROTOCOL, "a control frame of %zu bytes is too long", size);
    after_send(l, p, link_stream_send(p->stream, LINK_CONTROL, data, size, &why), &why);
    return 0;
}

int links_send_bulk(struct links *l, uint32_t host, struct link_send *send, struct err *e)
{
    struct peer *p = ready_peer(l, host, e);
    struct err why = ERR_INIT;
    if (!p)
        return -1;
    if (send->head.length > LINKS_BULK_MAX)
        return err_set(e, ERR_PROTOCOL, "a bulk frame of %u bytes is too long", send->head.length);
    link_stream_queue(p->stream, send);
    if (!p->stream->blocked)
        after_send(l, p, link_stream_flush(p->stream, &why), &why);
    return 0;
}

/* ---- a round ------------------------------------------------------------------------------------------- */

static void peer_event(struct links *l, struct peer *p, uint32_t events)
{
    struct err e = ERR_INIT;
    struct link_stream *s = p->stream;
    if (p->state != PEER_READY || p->failed)
        return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        uint64_t before = s->frames;
        long n = link_stream_read(s, &e);
        l->frames += s->frames - before;
        if (n > 0 && link_stream_heard(s))
            p->received_at = l->now;
        if (l->down)
            return;
        if (n < 0)
            links_fail(l, p, &e);
        /* A send that failed meanwhile says less. */
        if (n < 0 && p->unread) {
            p->why = e;
            p->unread = false;
        }
    }
    /* Frames that waited for the TLS handshake may go when something was read. */
    bool freed = (events & EPOLLOUT) || (s->blocked && !link_stream_full(s));
    if (freed && !p->failed)
        after_send(l, p, link_stream_flush(s, &e), &e);
}

static void handle_epoll(struct links *l, const struct epoll_event *event)
{
    struct watch *watch = event->data.ptr;
    if (l->down)
        return;
    if (watch->kind == WATCH_PEER)
        peer_event(l, (struct peer *)watch, event->events);
    else if (watch->kind == WATCH_CONN)
        link_setup_event(l, (struct conn *)watch, event->events);
    else
        link_setup_accept(l, (struct listener *)watch);
}

/* Ready links: beat when nothing else was sent; silence is believed only after the socket was read. */
static void beat_timer(struct links *l, struct peer *p)
{
    struct err e = ERR_INIT;
    if (l->now >= p->received_at + l->heartbeat)
        peer_event(l, p, EPOLLIN);
    if (p->failed || l->down)
        return;
    if (l->now >= p->received_at + l->heartbeat) {
        err_set(&e, ERR_TIMEOUT, "nothing was heard of it for %llu ms",
                (unsigned long long)(l->heartbeat / NSEC_PER_MSEC));
        links_fail(l, p, &e);
        return;
    }
    if (l->now >= p->sent_at + beat_period(l) && link_stream_idle(p->stream))
        after_send(l, p, link_stream_send(p->stream, LINK_HEARTBEAT, NULL, 0, &e), &e);
    uint64_t next = p->sent_at + beat_period(l);
    links_timer(l, next > l->now ? next : l->now + beat_period(l));
    links_timer(l, p->received_at + l->heartbeat);
}

static void start_expired(struct links *l, struct peer *p)
{
    struct err e = ERR_INIT;
    double seconds = (double)l->start / 1e9;
    if (p->why.code)
        err_set(&e, ERR_TIMEOUT, "no link within %g s, last: %s", seconds, p->why.text);
    else if (p->host > l->self)
        err_set(&e, ERR_TIMEOUT, "it did not connect within %g s", seconds);
    else
        err_set(&e, ERR_TIMEOUT, "no link within %g s", seconds);
    links_fail(l, p, &e);
}

/* Silence counts only while we listened: after a time in which this process did not run (stopped, starved),
 * peers get a new chance. A round comes at least every beat, so a gap of two is such a time. */
static void forgive_gap(struct links *l)
{
    uint64_t gap = l->round_at ? l->now - l->round_at : 0;
    if (gap < 2 * beat_period(l))
        return;
    for (uint32_t i = 0; i < l->hosts; i++) {
        uint64_t heard = l->peer[i]->received_at + gap;
        l->peer[i]->received_at = heard < l->now ? heard : l->now;
    }
}

static void run_timers(struct links *l)
{
    bool expired = l->start_deadline && l->now >= l->start_deadline;
    l->timer = 0;
    link_setup_incoming_timer(l);
    for (uint32_t i = 0; i < l->hosts && !l->down; i++) {
        struct peer *p = l->peer[i];
        if (!p->linked || p->failed)
            continue;
        if (p->state == PEER_READY)
            beat_timer(l, p);
        else if (p->state != PEER_LOST && expired)
            start_expired(l, p);
        else if (p->state == PEER_CONNECTING)
            link_setup_peer_timer(l, p);
    }
    if (l->unsettled > 0 && l->start_deadline && !expired)
        links_timer(l, l->start_deadline);
}

static void deliver_ended(struct links *l)
{
    l->any_ended = false;
    for (uint32_t i = 0; i < l->hosts; i++)
        if (l->peer[i]->stream && l->peer[i]->stream->ended)
            link_stream_deliver(l->peer[i]->stream, 0);
}

/* The end of the stream says more than the send that failed. */
static void read_last_words(struct links *l, struct peer *p)
{
    struct err e = ERR_INIT;
    uint64_t before = p->stream->frames;
    long n = 1;
    p->unread = false;
    for (int reads = 0; n > 0 && reads < LAST_READS && !l->down; reads++)
        n = link_stream_read(p->stream, &e);
    l->frames += p->stream->frames - before;
    if (n < 0 && !l->down)
        p->why = e;
}

static void tell_failed(struct links *l)
{
    l->any_failed = false;
    for (uint32_t i = 0; i < l->hosts && !l->down; i++) {
        struct peer *p = l->peer[i];
        if (!p->failed || p->state == PEER_LOST)
            continue;
        if (p->state == PEER_READY && p->unread)
            read_last_words(l, p);
        if (l->down)
            return;
        bool was_ready = p->state == PEER_READY, corrupted = p->why.code == ERR_CORRUPTED;
        p->state = PEER_LOST;
        link_setup_drop_candidates(l, p);
        link_report_lost(l, p);
        links_peer_close(p, corrupted ? p->why.text : NULL);
        if (!was_ready)
            note_settled(l);
        if (!l->down)
            l->events.lost(l->ctx, i, &p->why);
    }
}

int links_timeout(const struct links *l, uint64_t now)
{
    if (l->down)
        return -1;
    if (l->any_failed || l->any_ended)
        return 0;
    if (l->timer == 0)
        return -1;
    if (now >= l->timer)
        return 0;
    uint64_t ms = (l->timer - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
    return ms > 3600000 ? 3600000 : (int)ms;
}

static void handle_told(struct links *l)
{
    struct peer *p = l->told;
    l->told = NULL;
    while (p) {
        struct peer *next = p->next_told;
        uint32_t events = p->told;
        p->told = 0;
        if (!l->down)
            peer_event(l, p, events);
        p = next;
    }
}

static void handle_own(struct links *l)
{
    l->own_told = false;
    struct epoll_event event[EVENTS_MAX];
    int n = l->down ? 0 : epoll_wait(l->epoll, event, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++)
        handle_epoll(l, &event[i]);
}

int links_progress(struct links *l, uint64_t now)
{
    uint64_t before = l->frames;
    l->now = now;
    forgive_gap(l);
    l->round_at = now;
    if (l->any_ended)
        deliver_ended(l);
    handle_told(l);
    if (l->own_told || !l->events.watch)
        handle_own(l);
    if (!l->down && l->timer && now >= l->timer)
        run_timers(l);
    /* Once: what ends because of it waits for the next round, so that a fast receiver cannot keep us from
     * reading. */
    if (l->any_ended)
        deliver_ended(l);
    while (l->any_failed && !l->down)
        tell_failed(l);
    link_setup_free_closed(l);
    return (int)(l->frames - before);
}
