/* From listening and connecting to one ready link per pair of hosts. The story stands in links.h.
 *
 * An outgoing attempt ends in one of: refused or timed out (the peer's `why` remembers it; when all of its
 * addresses have ended so, all are tried again RETRY later, until the start deadline); the wrong end (no key,
 * wrong job; same treatment); authenticated (a candidate); chosen. An incoming connection ends in: rejected
 * (debug log, closed), timed out, pushed out by younger ones, ready. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/links_internal.h"

#define CHOOSE_WAIT        (50 * NSEC_PER_MSEC)
#define RETRY_WAIT         (100 * NSEC_PER_MSEC)
#define RETRY_WAIT_LASTING (5 * NSEC_PER_MSEC)  /* while others go on to the same epoch */
#define RETRY_WAIT_PATIENT (10 * NSEC_PER_MSEC) /* while others are in an earlier one, for any time */
#define HANDSHAKE_DEADLINE (10 * NSEC_PER_SEC)
#define INCOMING_SPARE     64 /* half-open connections beyond what the job's hosts can need */

static uint64_t retry_wait(const struct links *l)
{
    if (l->start_deadline == LINKS_PATIENT)
        return RETRY_WAIT_PATIENT;
    return l->lasting ? RETRY_WAIT_LASTING : RETRY_WAIT;
}

static void unlink_conn(struct conn **list, struct conn *c)
{
    while (*list && *list != c)
        list = &(*list)->next;
    if (*list)
        *list = c->next;
}

/* Takes the connection off its list and closes it. With fd -1 its descriptor lives on elsewhere. */
static void drop_conn(struct links *l, struct conn *c)
{
    if (c->incoming) {
        unlink_conn(&l->incoming, c);
        l->incoming_count--;
    } else {
        unlink_conn(&l->peer[c->handshake.peer]->candidate, c);
    }
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->next = l->closed;
    l->closed = c;
}

void link_setup_free_closed(struct links *l)
{
    while (l->closed) {
        struct conn *c = l->closed;
        l->closed = c->next;
        free(c);
    }
}

void link_setup_drop_candidates(struct links *l, struct peer *p)
{
    while (p->candidate)
        drop_conn(l, p->candidate);
    p->choose_at = p->retry_at = 0;
}

/* ---- listening ----------------------------------------------------------------------------------------- */

int link_setup_listen(struct links *l, const char *const *address, size_t addresses,
                      const struct port_range *ports, struct err *e)
{
    if (addresses > NET_ADDRESSES_MAX)
        addresses = NET_ADDRESSES_MAX;
    union net_address at[NET_ADDRESSES_MAX];
    for (size_t i = 0; i < addresses; i++)
        if (net_parse(address[i], 0, &at[i], e) < 0)
            return -1;
    l->listener = calloc(addresses ? addresses : 1, sizeof *l->listener);
    if (!l->listener)
        return err_set(e, ERR_MEMORY, "no memory for links");
    int fds[NET_ADDRESSES_MAX];
    if (port_range_listen(ports, at, addresses, &l->port, fds, e) < 0)
        return -1;
    int rc = 0;
    l->listeners = addresses;
    for (size_t i = 0; i < addresses; i++) {
        l->listener[i] = (struct listener){.watch = {.kind = WATCH_LISTENER}, .fd = fds[i]};
        if (links_watch(l, fds[i], &l->listener[i].watch, EPOLLIN, e) < 0)
            rc = -1;
    }
    return rc;
}

void link_setup_drop_incoming(struct links *l)
{
    while (l->incoming)
        drop_conn(l, l->incoming);
}

void link_setup_close_listeners(struct links *l)
{
    for (size_t i = 0; i < l->listeners; i++) {
        if (l->listener[i].fd >= 0)
            close(l->listener[i].fd);
        l->listener[i].fd = -1;
    }
    link_setup_drop_incoming(l);
}

/* Reads of a fresh nonce can only fail when the kernel has no getrandom; the connection is closed then. */
static struct conn *new_conn(struct links *l, int fd, bool incoming, uint32_t peer)
{
    uint8_t nonce[AUTH_KEY_SIZE];
    struct conn *c = calloc(1, sizeof *c);
    int rc = c ? auth_random(nonce, sizeof nonce, NULL) : -1;
    if (rc == 0)
        rc = incoming ? link_handshake_accept(&c->handshake, &l->identity, nonce, NULL)
                      : link_handshake_connect(&c->handshake, &l->identity, peer, nonce, NULL);
    if (rc < 0) {
        free(c);
        close(fd);
        return NULL;
    }
    c->watch.kind = WATCH_CONN;
    c->fd = fd;
    c->incoming = incoming;
    c->connecting = !incoming;
    c->deadline = l->now + HANDSHAKE_DEADLINE;
    links_timer(l, c->deadline);
    struct conn **list = incoming ? &l->incoming : &l->peer[peer]->candidate;
    c->next = *list;
    *list = c;
    l->incoming_count += incoming;
    return c;
}

/* A stranger must not keep the job's hosts out by holding connections open: the oldest has to go. */
static void drop_oldest(struct links *l)
{
    struct conn *c = l->incoming;
    while (c && c->next)
        c = c->next;
    if (c)
        drop_conn(l, c);
}

void link_setup_accept(struct links *l, struct listener *listener)
{
    for (int i = 0; i < 64 && listener->fd >= 0; i++) {
        union net_address from;
        int fd = net_accept(listener->fd, &from);
        if (fd < 0)
            return;
        if (l->incoming_count >= l->hosts * 4 + INCOMING_SPARE)
            drop_oldest(l);
        struct conn *c = new_conn(l, fd, true, 0);
        if (c && links_watch(l, fd, &c->watch, EPOLLIN, NULL) < 0)
            drop_conn(l, c);
    }
}

/* ---- connecting ---------------------------------------------------------------------------------------- */

/* Did the peer speak? Then it was there, and has said what is wrong. */
static bool is_answer(const struct err *e)
{
    return e->code == ERR_PROTOCOL || e->code == ERR_VERSION;
}

/* Keeps the reason that is told when there is no link in time: the peer's last answer, or else the last
 * error. An answer stays, even when another address of the peer leads nowhere or the peer has gone. */
static void remember_cause(struct peer *p, const struct err *e)
{
    if (is_answer(e) || !is_answer(&p->why))
        p->why = *e;
}

void link_setup_connect(struct links *l, struct peer *p)
{
    p->retry_at = 0;
    char text[NET_TEXT_MAX];
    for (uint32_t i = 0; i < p->addresses; i++) {
        struct err e = ERR_INIT;
        int fd = net_connect(&p->address[i], &e);
        struct conn *c = fd >= 0 ? new_conn(l, fd, false, p->host) : NULL;
        if (c) {
            c->rank = i;
            if (links_watch(l, fd, &c->watch, EPOLLOUT, &e) == 0)
                continue;
            drop_conn(l, c);
        }
        remember_cause(p, &e);
        log_debug("host %u at %s: %s", p->host, net_format_port(&p->address[i], text), e.text);
    }
    if (!p->candidate) {
        p->retry_at = l->now + retry_wait(l);
        links_timer(l, p->retry_at);
    }
}

/* The candidate's link becomes the peer's, the others end. */
static void choose_conn(struct links *l, struct peer *p, struct conn *c)
{
    struct err e = ERR_INIT;
    if (link_handshake_choose(&c->handshake, &e) < 0) {
        links_fail(l, p, &e);
        return;
    }
    char text[NET_TEXT_MAX];
    log_debug("link to host %u: %s", p->host, net_format_port(&p->address[c->rank], text));
    int fd = c->fd;
    c->fd = -1;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
    links_peer_ready(l, p, fd, &c->handshake); /* `c` lives until the end of the round */
    link_setup_drop_candidates(l, p);
}

/* Is there a winner now? The best-ranked of those that live is, at once; any authenticated one is, 50 ms
 * after the first. */
static void consider_candidates(struct links *l, struct peer *p)
{
    struct conn *best = NULL, *best_alive = NULL;
    for (struct conn *c = p->candidate; c; c = c->next) {
        if (!best_alive || c->rank < best_alive->rank)
            best_alive = c;
        if (c->handshake.state == LINK_HANDSHAKE_AUTHENTICATED && (!best || c->rank < best->rank))
            best = c;
    }
    if (best && (best == best_alive || (p->choose_at && l->now >= p->choose_at))) {
        choose_conn(l, p, best);
        return;
    }
    if (best && !p->choose_at) {
        p->choose_at = l->now + CHOOSE_WAIT;
        links_timer(l, p->choose_at);
    }
    if (!p->candidate && !p->retry_at) {
        p->retry_at = l->now + retry_wait(l);
        links_timer(l, p->retry_at);
    }
}

static void conn_failed(struct links *l, struct conn *c, struct err *e)
{
    if (c->incoming) {
        log_debug("a connection was closed: %s", e->text);
        drop_conn(l, c);
        return;
    }
    struct peer *p = l->peer[c->handshake.peer];
    char text[NET_TEXT_MAX];
    err_wrap(e, "%s", net_format_port(&p->address[c->rank], text));
    log_debug("host %u at %s", p->host, e->text);
    remember_cause(p, e);
    drop_conn(l, c);
    consider_candidates(l, p);
}

/* ---- the handshake on a socket ------------------------------------------------------------------------- */

static int send_output(struct links *l, struct conn *c, struct err *e)
{
    size_t size;
    const void *out = link_handshake_output(&c->handshake, &size);
    if (size > 0) {
        ssize_t n = send(c->fd, out, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return err_sys(e, errno, "the connection broke in the handshake");
        if (n > 0)
            link_handshake_sent(&c->handshake, (size_t)n);
        size -= n > 0 ? (size_t)n : 0;
    }
    return links_watch(l, c->fd, &c->watch, EPOLLIN | (size ? EPOLLOUT : 0u), e);
}

/* Reads only what the handshake wants, so that what follows it stays in the socket. */
static int receive_input(struct conn *c, struct err *e)
{
    uint8_t bytes[LINK_HELLO_SIZE + LINK_CHALLENGE_SIZE];
    for (;;) {
        size_t wants = link_handshake_wants(&c->handshake);
        if (wants == 0)
            return 0;
        ssize_t n = recv(c->fd, bytes, wants < sizeof bytes ? wants : sizeof bytes, MSG_DONTWAIT);
        if (n == 0)
            return err_set(e, ERR_CLOSED, "the peer closed the connection in the handshake");
        if (n < 0)
            return errno == EAGAIN || errno == EINTR
                       ? 0
                       : err_sys(e, errno, "the connection broke in the handshake");
        if (link_handshake_receive(&c->handshake, bytes, (size_t)n, e) < 0)
            return -1;
    }
}

/* An authenticated candidate may only wait: bytes or an end now are faults. */
static int check_quiet(struct conn *c, struct err *e)
{
    uint8_t byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return err_set(e, ERR_CLOSED,
                   n > 0 ? "the peer spoke before it was chosen"
                         : "the peer closed the connection in the handshake");
}

static void incoming_ready(struct links *l, struct conn *c)
{
    struct peer *p = l->peer[c->handshake.peer];
    struct err e = ERR_INIT;
    if (p->host < l->self || !p->linked || p->state == PEER_READY || p->state == PEER_LOST || p->failed) {
        err_set(&e, ERR_PROTOCOL, "host %u made a link that is not due", p->host);
        conn_failed(l, c, &e);
        return;
    }
    int fd = c->fd;
    c->fd = -1;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
    drop_conn(l, c);
    links_peer_ready(l, p, fd, &c->handshake);
}

void link_setup_event(struct links *l, struct conn *c, uint32_t events)
{
    struct err e = ERR_INIT;
    if (c->fd < 0)
        return;
    if (c->connecting && net_connected(c->fd, &e) < 0) {
        conn_failed(l, c, &e);
        return;
    }
    c->connecting = false;
    bool quiet = c->handshake.state == LINK_HANDSHAKE_AUTHENTICATED;
    if ((quiet ? check_quiet(c, &e) : receive_input(c, &e)) < 0 || send_output(l, c, &e) < 0) {
        conn_failed(l, c, &e);
        return;
    }
    if (c->incoming && c->handshake.state == LINK_HANDSHAKE_READY)
        incoming_ready(l, c);
    else if (!c->incoming && c->handshake.state == LINK_HANDSHAKE_AUTHENTICATED)
        consider_candidates(l, l->peer[c->handshake.peer]);
}

/* ---- deadlines ----------------------------------------------------------------------------------------- */

static void expire_conn(struct links *l, struct conn *c)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_TIMEOUT, c->connecting ? "no answer" : "the handshake did not end in time");
    conn_failed(l, c, &e);
}

void link_setup_incoming_timer(struct links *l)
{
    for (struct conn *c = l->incoming, *next; c; c = next) {
        next = c->next;
        if (l->now >= c->deadline)
            expire_conn(l, c);
        else
            links_timer(l, c->deadline);
    }
}

void link_setup_peer_timer(struct links *l, struct peer *p)
{
    for (struct conn *c = p->candidate, *next; c; c = next) {
        next = c->next;
        if (l->now >= c->deadline && c->handshake.state != LINK_HANDSHAKE_AUTHENTICATED)
            expire_conn(l, c);
        else
            links_timer(l, c->deadline);
        if (p->state != PEER_CONNECTING || p->failed)
            return; /* the candidates have been dropped, `next` too */
    }
    if (p->choose_at && l->now >= p->choose_at)
        consider_candidates(l, p);
    else if (p->choose_at)
        links_timer(l, p->choose_at);
    if (p->state == PEER_CONNECTING && p->retry_at && l->now >= p->retry_at)
        link_setup_connect(l, p);
    else if (p->retry_at)
        links_timer(l, p->retry_at);
}
