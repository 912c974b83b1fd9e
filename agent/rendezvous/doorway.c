#include "agent/rendezvous/doorway.h"

#include <stdlib.h>
#include <unistd.h>

#include "agent/rendezvous/peer_owner.h"
#include "common/log.h"
#include "common/net.h"

#define BACKLOG 4096 /* all ranks of a host may knock at once, and some libraries never try again */

static void on_knock(uv_poll_t *poll, int status, int events)
{
    struct doorway *d = poll->data;
    union net_address from;
    (void)status, (void)events;
    for (int i = 0; i < 64 && d->open; i++) {
        struct err e = ERR_INIT;
        uid_t uid;
        int fd = net_accept(d->fd, &from);
        if (fd < 0)
            return;
        if (peer_owner(fd, &uid, &e) == 0 && uid != geteuid())
            err_set(&e, ERR_PROTOCOL, "user %u is not the job's", (unsigned)uid);
        if (e.code) {
            log_warning("a connection to the rendezvous was closed: %s", e.text);
            close(fd);
            continue;
        }
        d->on_client(d->ctx, fd);
    }
}

int doorway_open(struct doorway *d, uv_loop_t *loop, void (*on_client)(void *ctx, int fd), void *ctx,
                 struct err *e)
{
    union net_address at;
    *d = (struct doorway){.on_client = on_client, .ctx = ctx};
    if (net_parse("127.0.0.1", 0, &at, e) < 0)
        return -1;
    d->fd = net_listen(&at, BACKLOG, e);
    if (d->fd < 0)
        return err_wrap(e, "cannot listen for the rendezvous");
    d->poll = malloc(sizeof *d->poll);
    int rc = d->poll ? uv_poll_init(loop, d->poll, d->fd) : UV_ENOMEM;
    if (rc < 0) {
        free(d->poll);
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

void doorway_close(struct doorway *d)
{
    if (!d->open)
        return;
    d->open = false;
    uv_close((uv_handle_t *)d->poll, on_closed);
    close(d->fd);
}
