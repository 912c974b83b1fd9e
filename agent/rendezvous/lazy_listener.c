#include "agent/rendezvous/lazy_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/rendezvous/peer_owner.h"
#include "common/base/log.h"
#include "common/net/net.h"

#define BACKLOG 4096 /* all ranks of a host may knock at once, and some libraries never try again */

/* The first one is news, unless it has just left; whoever goes on knocking shall not fill the log. */
static void log_refusal(struct lazy_listener *d, const struct err *why)
{
    bool news = !d->warned && why->code != ERR_CLOSED;
    log_at(news ? LOG_WARNING : LOG_DEBUG, "a connection to the rendezvous was closed: %s", why->text);
    d->warned = d->warned || news;
}

/* Without a free descriptor the listener would stay readable and keep the loop busy: who knocks is closed. */
static bool refuse_without_descriptor(struct lazy_listener *d)
{
    struct err e = ERR_INIT;
    union net_address from;
    close(d->spare);
    int fd = net_accept(d->fd, &from);
    if (fd >= 0)
        close(fd);
    d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    err_set(&e, ERR_SYSTEM, "this process has no free descriptor");
    log_refusal(d, &e);
    return fd >= 0;
}

static void on_knock(uv_poll_t *poll, int status, int events)
{
    struct lazy_listener *d = poll->data;
    union net_address from;
    (void)status, (void)events;
    for (int i = 0; i < 64 && d->open; i++) {
        struct err e = ERR_INIT;
        uid_t uid;
        int fd = net_accept(d->fd, &from);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && refuse_without_descriptor(d))
            continue;
        if (fd < 0)
            return;
        if (peer_owner(&d->owner, fd, &uid, &e) == 0 && uid != geteuid())
            err_set(&e, ERR_PROTOCOL, "user %u is not the job's", (unsigned)uid);
        if (e.code) {
            log_refusal(d, &e);
            close(fd);
            continue;
        }
        d->on_client(d->ctx, fd);
    }
}

int lazy_listener_open(struct lazy_listener *d, uv_loop_t *loop, void (*on_client)(void *ctx, int fd),
                       void *ctx, struct err *e)
{
    union net_address at;
    const int silence = 1; /* s; what they all do first is to say something, so one turn accepts and reads */
    *d = (struct lazy_listener){.on_client = on_client, .ctx = ctx};
    if (net_parse("127.0.0.1", 0, &at, e) < 0)
        return -1;
    d->fd = net_listen(&at, BACKLOG, e);
    if (d->fd < 0)
        return err_wrap(e, "cannot listen for the rendezvous");
    (void)setsockopt(d->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silence, sizeof silence);
    d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    d->poll = malloc(sizeof *d->poll);
    int rc = d->poll ? uv_poll_init(loop, d->poll, d->fd) : UV_ENOMEM;
    if (rc < 0) {
        free(d->poll);
        close(d->spare);
        close(d->fd);
        return err_set(e, ERR_SYSTEM, "cannot watch a socket: %s", uv_strerror(rc));
    }
    d->poll->data = d;
    d->port = net_port(&at);
    d->open = true;
    uv_poll_start(d->poll, UV_READABLE, on_knock);
    return 0;
}

static void on_closed(uv_handle_t *poll)
{
    free(poll);
}

void lazy_listener_close(struct lazy_listener *d)
{
    if (!d->open)
        return;
    d->open = false;
    uv_close((uv_handle_t *)d->poll, on_closed);
    peer_owner_close(&d->owner);
    close(d->spare);
    close(d->fd);
}
