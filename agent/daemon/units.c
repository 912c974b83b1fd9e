#include "agent/daemon/units.h"

#include <poll.h>

#include "common/process/module.h"

static void on_poll(uv_poll_t *poll, int status, int events);

static void on_timer(uv_timer_t *timer)
{
    struct units *u = timer->data;
    on_poll(&u->poll, 0, 0);
}

/* After each call to systemd the events that we wait for may be others. */
static void rearm_watch(struct units *u)
{
    int events;
    int64_t us;
    (void)u->ops->wait_for(u->systemd, &events, &us);
    uv_poll_start(&u->poll, (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0),
                  on_poll);
    if (us >= 0)
        uv_timer_start(&u->timer, on_timer, (uint64_t)us / 1000 + 1, 0);
    else
        uv_timer_stop(&u->timer);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct units *u = poll->data;
    struct err e = ERR_INIT;
    (void)status;
    (void)events;
    if (u->ops->process(u->systemd, &e) == 0) {
        rearm_watch(u);
        return;
    }
    uv_poll_stop(&u->poll);
    u->lost(u->ctx, &e);
}

int units_open(struct units *u, uv_loop_t *loop, const struct systemd_events *events,
               void (*lost)(void *ctx, const struct err *e), void *ctx, struct err *e)
{
    int poll_events;
    int64_t us;
    *u = (struct units){.lost = lost, .ctx = ctx};
    u->ops = module_symbol(SYSTEMD_MODULE, SYSTEMD_SYMBOL, e);
    u->systemd = u->ops ? u->ops->open(events, ctx, e) : NULL;
    if (!u->systemd)
        return -1;
    uv_timer_init(loop, &u->timer);
    int rc = uv_poll_init(loop, &u->poll, u->ops->wait_for(u->systemd, &poll_events, &us));
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the connection to systemd: %s", uv_strerror(rc));
    u->poll.data = u->timer.data = u;
    rearm_watch(u);
    return 0;
}

void units_close(struct units *u)
{
    if (!u->systemd)
        return;
    uv_close((uv_handle_t *)&u->poll, NULL);
    uv_close((uv_handle_t *)&u->timer, NULL);
    u->ops->close(u->systemd);
    u->systemd = NULL;
}

int units_start(struct units *u, const struct systemd_service *service, struct err *e)
{
    int rc = u->ops->start(u->systemd, service, e);
    rearm_watch(u);
    return rc;
}

int units_list(struct units *u, const char *pattern, void (*see)(void *ctx, const char *unit), struct err *e)
{
    int rc = u->ops->list(u->systemd, pattern, see, u->ctx, e);
    rearm_watch(u);
    return rc;
}
