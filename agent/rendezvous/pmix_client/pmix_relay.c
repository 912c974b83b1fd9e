#include "agent/rendezvous/pmix_client/pmix_relay.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/tree/tree.h"
#include "common/protocol/message.h"

#define HEADER      4
#define MESSAGE_MAX (TREE_MESSAGE_MAX + (64u << 20)) /* the configuration names every host and worker */
#define QUEUE_MAX   (2 * (size_t)MESSAGE_MAX)

static void write_waiting(struct pmix_relay *r);

static void end_relay(struct pmix_relay *r, const struct err *why)
{
    if (!r->open)
        return;
    pmix_relay_close(r);
    r->events->end(r->ctx, why);
}

/* ---- in ------------------------------------------------------------------------------------------------ */

/* 1: a message was handled. 0: there is none yet. */
static int handle_next(struct pmix_relay *r, struct err *e)
{
    if (r->in.len < HEADER)
        return 0;
    uint32_t len = get_u32(buf_data(&r->in));
    if (len > MESSAGE_MAX)
        return err_set(e, ERR_PROTOCOL, "a message of %u bytes", (unsigned)len);
    if (r->in.len - HEADER < len)
        return 0;
    Hvd__Pmix *m = message_unpack_pmix(buf_data(&r->in) + HEADER, len, e);
    if (!m)
        return -1;
    buf_consume(&r->in, HEADER + (size_t)len);
    r->events->message(r->ctx, m);
    message_free(m);
    return 1;
}

void pmix_relay_drain(struct pmix_relay *r)
{
    struct err e = ERR_INIT;
    uint8_t bytes[32768];
    while (r->open) {
        ssize_t n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            end_relay(r, NULL);
            return;
        }
        if (buf_put(&r->in, bytes, (size_t)n) < 0)
            err_set(&e, ERR_MEMORY, "no memory for a message");
        while (r->open && !e.code && handle_next(r, &e) > 0)
            ;
        if (e.code)
            end_relay(r, &e);
    }
}

int pmix_relay_wait(struct pmix_relay *r, int ms)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    int n = 0;
    while (r->open && (n = poll(&p, 1, ms)) < 0 && errno == EINTR)
        ;
    if (r->open && n <= 0)
        return -1;
    pmix_relay_drain(r);
    return 0;
}

/* ---- out ----------------------------------------------------------------------------------------------- */

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct pmix_relay *r = poll->data;
    if (events & UV_WRITABLE)
        write_waiting(r);
    if (status < 0 || (events & UV_READABLE))
        pmix_relay_drain(r);
}

static void write_waiting(struct pmix_relay *r)
{
    if (buf_send(&r->out, r->fd) < 0)
        return; /* reading finds the end */
    uv_poll_start(&r->poll, UV_READABLE | (r->out.len ? UV_WRITABLE : 0), on_ready);
}

void pmix_relay_send(struct pmix_relay *r, const Hvd__Pmix *m)
{
    struct err e = ERR_INIT;
    uint8_t header[HEADER];
    size_t size = hvd__pmix__get_packed_size(m);
    if (!r->open)
        return;
    put_u32(header, (uint32_t)size);
    if (size > MESSAGE_MAX || buf_room(&r->out) < HEADER + size || buf_put(&r->out, header, HEADER) < 0 ||
        message_pack(&m->base, &r->out, &e) < 0) {
        err_set(&e, ERR_MEMORY, "a message of %zu bytes does not fit", size);
        end_relay(r, &e);
        return;
    }
    write_waiting(r);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

int pmix_relay_open(struct pmix_relay *r, uv_loop_t *loop, int fd, const struct pmix_relay_events *events,
                    void *ctx, struct err *e)
{
    *r = (struct pmix_relay){.fd = fd, .events = events, .ctx = ctx};
    buf_init(&r->in, QUEUE_MAX);
    buf_init(&r->out, QUEUE_MAX);
    int rc = uv_poll_init(loop, &r->poll, fd);
    if (rc < 0) {
        close(fd);
        return err_set(e, ERR_SYSTEM, "cannot watch a socket: %s", uv_strerror(rc));
    }
    r->poll.data = r;
    r->open = true;
    uv_poll_start(&r->poll, UV_READABLE, on_ready);
    return 0;
}

void pmix_relay_close(struct pmix_relay *r)
{
    if (!r->open)
        return;
    r->open = false;
    uv_close((uv_handle_t *)&r->poll, NULL);
    close(r->fd);
    buf_free(&r->in);
    buf_free(&r->out);
}
