/* Resolve: a numeric address is taken as it is; a name goes to a thread (ssh_lookup). A name that nobody
 * knows may be one that nobody knows yet, as that of a pod that is being made: where the owner wants to wait,
 * it is looked up again, less and less often. Families are interleaved (RFC 8305), so a dead IPv6 route costs
 * one delay and not a time-out. Connect: the next address starts 250 ms after the last, or at once when the
 * last failed. The first socket that is connected wins and the others are closed. When all have failed the
 * error is the first one's, of the address that the resolver liked best. A connect that neither succeeds nor
 * fails is ended by the launcher's deadline through ssh_connect_close. uv_poll reports a refused connect as
 * EBADF or as an event: only SO_ERROR tells the cause. */
#include "launcher/transport/ssh/ssh_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/err.h"

#define NEXT_ADDRESS_MS 250
#define SILENCE_S       8   /* no answer for so long means that none will come: SYN was sent four times */
#define AGAIN_MS        100 /* to the second look-up; each further one waits twice as long */
#define AGAIN_MAX_MS    2000

/* ---- a look-up ----------------------------------------------------------------------------------------- */

/* A name becomes addresses, in a thread of its own that nobody has to wait for.
 * Not uv_getaddrinfo: a request of that keeps the loop alive and its threads are joined when the program
 * exits, and a name server that does not answer takes 10 s to give up. A launcher that has given a host up
 * must be able to leave at once. So: one detached thread for each name (numeric addresses need none), the
 * answer handed over through an eventfd, the memory owned by both until the second lets go. */

struct ssh_lookup {
    atomic_int owners;    /* the thread and whoever asked */
    atomic_bool answered; /* status and list are there; set before the event */
    int event_fd;         /* readable when the answer is there */
    int status;           /* getaddrinfo's; valid once event_fd is readable, as is list */
    int family;
    struct addrinfo *list;
    char host[];
};

#define STACK_BYTES (512 * 1024) /* name service modules are not small */

/* Gives it back, answered or not; a resolver that has no answer yet is left to itself. */
static void ssh_lookup_release(struct ssh_lookup *l)
{
    if (atomic_fetch_sub(&l->owners, 1) > 1)
        return;
    if (l->list)
        freeaddrinfo(l->list);
    close(l->event_fd);
    free(l);
}

static void *resolve_name(void *arg)
{
    struct ssh_lookup *l = arg;
    struct addrinfo hints = {.ai_family = l->family, .ai_socktype = SOCK_STREAM};
    l->status = getaddrinfo(l->host, NULL, &hints, &l->list);
    atomic_store(&l->answered, true);
    eventfd_write(l->event_fd, 1);
    ssh_lookup_release(l);
    return NULL;
}

static int start_thread(struct ssh_lookup *l)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    int rc = pthread_create(&thread, &attributes, resolve_name, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return rc;
}

/* NULL with *e filled when no thread can be started. */
static struct ssh_lookup *ssh_lookup_start(const char *host, int family, struct err *e)
{
    size_t len = strlen(host) + 1;
    struct ssh_lookup *l = calloc(1, sizeof *l + len);
    if (!l) {
        err_set(e, ERR_MEMORY, "no memory to resolve %s", host);
        return NULL;
    }
    memcpy(l->host, host, len);
    l->family = family;
    atomic_init(&l->owners, 2);
    l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = l->event_fd < 0 ? errno : start_thread(l);
    if (rc == 0)
        return l;
    err_sys(e, rc, "cannot resolve %s", host);
    if (l->event_fd >= 0)
        close(l->event_fd);
    free(l);
    return NULL;
}

/* ---- connect ------------------------------------------------------------------------------------------- */

static void handle_closed(uv_handle_t *handle)
{
    struct ssh_connect *c = handle->data;
    if (--c->open_handles == 0)
        c->closed(c->ctx);
}

static void numeric_text(const struct sockaddr *address, char out[SSH_NUMERIC_MAX])
{
    socklen_t len = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (getnameinfo(address, len, out, SSH_NUMERIC_MAX, NULL, 0, NI_NUMERICHOST) != 0)
        out[0] = '\0';
}

static void keep_address(struct ssh_connect *c, const struct sockaddr *address)
{
    if (c->count == SSH_ADDRESSES_MAX)
        return;
    struct ssh_attempt *a = &c->attempt[c->count++];
    if (address->sa_family == AF_INET) {
        memcpy(&a->address.v4, address, sizeof a->address.v4);
        a->address.v4.sin_port = htons(c->port);
    } else {
        memcpy(&a->address.v6, address, sizeof a->address.v6);
        a->address.v6.sin6_port = htons(c->port);
    }
}

static const struct addrinfo *next_of_family(const struct addrinfo *a, int family, bool same)
{
    while (a && ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || (a->ai_family == family) != same))
        a = a->ai_next;
    return a;
}

/* The resolver's order, but the families alternate. */
static void keep_addresses(struct ssh_connect *c, const struct addrinfo *list)
{
    int family = list ? list->ai_family : AF_UNSPEC;
    const struct addrinfo *a = next_of_family(list, family, true), *b = next_of_family(list, family, false);
    while (a || b) {
        if (a) {
            keep_address(c, a->ai_addr);
            a = next_of_family(a->ai_next, family, true);
        }
        if (b) {
            keep_address(c, b->ai_addr);
            b = next_of_family(b->ai_next, family, false);
        }
    }
}

static void end_lookup(struct ssh_connect *c)
{
    uv_poll_stop(&c->lookup_poll);
    uv_close((uv_handle_t *)&c->lookup_poll, handle_closed);
    ssh_lookup_release(c->lookup);
    c->lookup = NULL;
}

/* The name may be known later: it is not there yet, has no address yet, or no server has answered. */
static bool may_come(int rc)
{
    return rc == EAI_NONAME || rc == EAI_NODATA || rc == EAI_AGAIN;
}

static void look_up(struct ssh_connect *c);

static void again_fired(uv_timer_t *timer)
{
    struct ssh_connect *c = timer->data;
    look_up(c);
    if (c->err.code)
        c->resolved(c->ctx);
}

/* The handle of the last look-up is closed before a timer fires. */
static void look_up_again(struct ssh_connect *c, int rc)
{
    unsigned doubled = c->lookups < 8 ? c->lookups : 8;
    uint64_t ms = (uint64_t)AGAIN_MS << doubled;
    uv_timer_start(&c->next, again_fired, ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS, 0);
    c->lookups++;
    c->unresolved(c->ctx, gai_strerror(rc), rc == EAI_NONAME);
}

static void lookup_done(uv_poll_t *poll, int status, int events)
{
    struct ssh_connect *c = poll->data;
    if (!atomic_load(&c->lookup->answered))
        return;
    int rc = c->lookup->status;
    if (rc == 0)
        keep_addresses(c, c->lookup->list);
    if (c->unresolved && may_come(rc)) {
        end_lookup(c);
        look_up_again(c, rc);
        return;
    }
    if (rc != 0) {
        err_set(&c->err, ERR_HOST, "%s host %s: %s", rc == EAI_NONAME ? "unknown" : "cannot resolve", c->host,
                gai_strerror(rc));
        err_hint(&c->err, "check its spelling, DNS and /etc/hosts");
    } else if (c->count == 0) {
        err_set(&c->err, ERR_HOST, "host %s has no address", c->host);
    }
    end_lookup(c);
    c->resolved(c->ctx);
}

/* A literal address; true when it is one. */
static bool numeric_host(struct ssh_connect *c, int family)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST},
                    *list = NULL;
    if (getaddrinfo(c->host, NULL, &hints, &list) != 0)
        return false;
    keep_addresses(c, list);
    freeaddrinfo(list);
    return true;
}

void ssh_connect_init(struct ssh_connect *c, uv_loop_t *loop, const char *host, uint16_t port)
{
    c->loop = loop;
    c->host = host;
    c->port = port;
    c->fd = -1;
    uv_timer_init(loop, &c->next);
    c->next.data = c;
    c->open_handles = 1;
}

static void look_up(struct ssh_connect *c)
{
    c->lookup = ssh_lookup_start(c->host, c->family, &c->err);
    if (!c->lookup)
        return;
    uv_poll_init(c->loop, &c->lookup_poll, c->lookup->event_fd);
    c->lookup_poll.data = c;
    c->open_handles++;
    uv_poll_start(&c->lookup_poll, UV_READABLE, lookup_done);
}

void ssh_connect_resolve(struct ssh_connect *c, int family)
{
    c->family = family;
    if (!numeric_host(c, family))
        look_up(c);
}

static void try_next(struct ssh_connect *c);

static void next_fired(uv_timer_t *timer)
{
    try_next(timer->data);
}

static void end_attempt(struct ssh_attempt *a, bool keep_socket)
{
    uv_poll_stop(&a->poll);
    if (!keep_socket)
        close(a->fd);
    a->fd = -1;
    uv_close((uv_handle_t *)&a->poll, handle_closed);
}

/* All addresses were tried, and those that are left say nothing. */
static void silence_fired(uv_timer_t *timer)
{
    struct ssh_connect *c = timer->data;
    char numeric[SSH_NUMERIC_MAX];
    numeric_text(&c->attempt[c->count - 1].address.any, numeric);
    for (size_t i = 0; i < c->count; i++)
        if (c->attempt[i].fd >= 0)
            end_attempt(&c->attempt[i], false);
    c->failed = c->count;
    bool v6 = strchr(numeric, ':') != NULL;
    err_clear(&c->err);
    err_set(&c->err, ERR_HOST, "no answer from %s%s%s:%u for %d s (host down, or a firewall?)", v6 ? "[" : "",
            numeric, v6 ? "]" : "", (unsigned)c->port, SILENCE_S);
    c->connected(c->ctx);
}

static void attempt_failed(struct ssh_connect *c, const struct ssh_attempt *a, int errnum)
{
    char numeric[SSH_NUMERIC_MAX];
    numeric_text(&a->address.any, numeric);
    c->failed++;
    if (!c->err.code) {
        err_set(&c->err, ERR_HOST, "cannot connect to %s port %u: %s%s%s%s", c->host, (unsigned)c->port,
                strerror(errnum), strcmp(numeric, c->host) ? " (" : "",
                strcmp(numeric, c->host) ? numeric : "", strcmp(numeric, c->host) ? ")" : "");
        if (errnum == ECONNREFUSED)
            err_hint(&c->err, "nothing listens there: is sshd running, and is it this port (-p)?");
        else
            err_hint(&c->err, "is the host up, and is there a route to it?");
    }
    if (c->failed == c->count) {
        uv_timer_stop(&c->next);
        c->connected(c->ctx);
    } else if (c->tried < c->count)
        uv_timer_start(&c->next, next_fired, 0, 0);
}

static void attempt_won(struct ssh_connect *c, struct ssh_attempt *a)
{
    int on = 1;
    c->fd = a->fd;
    numeric_text(&a->address.any, c->numeric);
    end_attempt(a, true);
    uv_timer_stop(&c->next);
    for (size_t i = 0; i < c->tried; i++)
        if (c->attempt[i].fd >= 0)
            end_attempt(&c->attempt[i], false);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    err_clear(&c->err);
    c->connected(c->ctx);
}

static void attempt_ready(uv_poll_t *poll, int status, int events)
{
    struct ssh_attempt *a = (struct ssh_attempt *)poll;
    struct ssh_connect *c = a->owner;
    int errnum = 0;
    socklen_t len = sizeof errnum;
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0)
        errnum = errno;
    if (errnum == 0 && status < 0)
        errnum = -status;
    if (errnum == 0) {
        attempt_won(c, a);
        return;
    }
    end_attempt(a, false);
    attempt_failed(c, a, errnum);
}

/* Starts the next address. Success is always reported from the loop, also when connect() is done at once. */
static void try_next(struct ssh_connect *c)
{
    struct ssh_attempt *a = &c->attempt[c->tried++];
    socklen_t len = a->address.any.sa_family == AF_INET ? sizeof a->address.v4 : sizeof a->address.v6;
    if (c->tried < c->count)
        uv_timer_start(&c->next, next_fired, NEXT_ADDRESS_MS, 0);
    else
        uv_timer_start(&c->next, silence_fired, SILENCE_S * 1000, 0);
    a->fd = socket(a->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0) {
        attempt_failed(c, a, errno);
        return;
    }
    int rc = connect(a->fd, &a->address.any, len) < 0 && errno != EINPROGRESS ? errno : 0;
    if (rc == 0)
        rc = -uv_poll_init(c->loop, &a->poll, a->fd);
    if (rc != 0) {
        close(a->fd);
        a->fd = -1;
        attempt_failed(c, a, rc);
        return;
    }
    a->owner = c;
    a->poll.data = c;
    c->open_handles++;
    uv_poll_start(&a->poll, UV_WRITABLE, attempt_ready);
}

void ssh_connect_begin(struct ssh_connect *c)
{
    for (size_t i = 0; i < c->count; i++)
        c->attempt[i].fd = -1;
    uv_timer_start(&c->next, next_fired, 0, 0);
}

void ssh_connect_close(struct ssh_connect *c)
{
    if (c->lookup)
        end_lookup(c);
    for (size_t i = 0; i < c->tried; i++)
        if (c->attempt[i].fd >= 0)
            end_attempt(&c->attempt[i], false);
    uv_close((uv_handle_t *)&c->next, handle_closed);
}
