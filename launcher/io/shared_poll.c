#include "launcher/io/shared_poll.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int shared_poll_init(struct shared_poll *p, uv_loop_t *loop, int fd, uint32_t events,
                     void (*ready)(void *ctx), void *ctx)
{
    struct epoll_event want = {.events = events};
    memset(p, 0, sizeof *p);
    p->ready = ready;
    p->ctx = ctx;
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll < 0)
        return -1;
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &want) < 0 || uv_poll_init(loop, &p->poll, p->epoll) < 0) {
        close(p->epoll);
        return -1;
    }
    p->poll.data = p;
    return 0;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct shared_poll *p = poll->data;
    (void)status;
    (void)events;
    p->ready(p->ctx);
}

void shared_poll_set(struct shared_poll *p, bool active)
{
    if (p->active == active)
        return;
    p->active = active;
    if (active)
        uv_poll_start(&p->poll, UV_READABLE, on_ready); /* an epoll instance is readable when it has events */
    else
        uv_poll_stop(&p->poll);
}

static void close_epoll(uv_handle_t *handle)
{
    struct shared_poll *p = handle->data;
    close(p->epoll);
}

void shared_poll_close(struct shared_poll *p)
{
    shared_poll_set(p, false);
    uv_close((uv_handle_t *)&p->poll, close_epoll);
}
