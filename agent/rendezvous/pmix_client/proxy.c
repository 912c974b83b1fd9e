#include "agent/rendezvous/pmix_client/proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

#define SCRATCH     (64u << 10)
#define GREETING_MS 10000
#define LOST_MS     50 /* a server that dies closes one connection after the other, in no time */

enum { CLIENT, SERVER };

struct way { /* from one end to the other */
    struct proxy *proxy;
    uv_tcp_t from;
    bool ended;   /* nothing more comes */
    bool writing; /* `held` is on its way, and nothing is read meanwhile */
    uint8_t *held;
    uv_write_t write;
    uv_shutdown_t shutdown;
};

struct proxy {
    struct proxies *all;
    struct proxy *next, **link;
    struct way way[2]; /* from the client, from the server */
    uv_timer_t patience;
    uv_connect_t connect;
    uint8_t *handshake; /* NULL once it was sent on */
    size_t have;
    struct proxy_client client; /* once it is complete */
    bool complete, closing;
    int handles;
};

static void start_reading(struct way *w);

/* ---- the end ------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct proxy *s = handle->data;
    if (--s->handles > 0)
        return;
    for (int i = 0; i < 2; i++)
        free(s->way[i].held);
    free(s->handshake);
    free(s);
}

static void end_proxy(struct proxy *s)
{
    if (s->closing)
        return;
    s->closing = true;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    for (int i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&s->way[i].from, on_closed);
    uv_close((uv_handle_t *)&s->patience, on_closed);
}

static void on_lost(uv_timer_t *timer)
{
    end_proxy(timer->data);
}

/* A server that leaves before its client may be dying. Its client learns of it a moment later than whoever
 * reaps the server, so that a client which fails for that is not taken for the cause. */
static void lose_server(struct proxy *s)
{
    for (int i = 0; i < 2; i++)
        uv_read_stop((uv_stream_t *)&s->way[i].from);
    if (!uv_is_active((uv_handle_t *)&s->patience))
        uv_timer_start(&s->patience, on_lost, LOST_MS, 0);
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

static struct way *other_end(struct way *w)
{
    return &w->proxy->way[w == &w->proxy->way[CLIENT] ? SERVER : CLIENT];
}

/* `w` cannot be written to its other end any more. */
static void lose_reader(struct way *w)
{
    if (w == &w->proxy->way[CLIENT])
        lose_server(w->proxy);
    else
        end_proxy(w->proxy);
}

static void on_shut(uv_shutdown_t *request, int status)
{
    (void)request, (void)status;
}

static void pass_end(struct way *w)
{
    struct proxy *s = w->proxy;
    w->ended = true;
    uv_read_stop((uv_stream_t *)&w->from);
    if (other_end(w)->ended || uv_shutdown(&w->shutdown, (uv_stream_t *)&other_end(w)->from, on_shut) < 0)
        end_proxy(s);
}

static void on_written(uv_write_t *request, int status)
{
    struct way *w = request->data;
    free(w->held);
    w->held = NULL;
    w->writing = false;
    if (w->proxy->closing)
        return;
    if (status < 0)
        lose_reader(w);
    else
        start_reading(w);
}

/* Bytes that do not fit into the other side's socket are held, and reading pauses until they are gone. */
static void pass_bytes(struct way *w, const uint8_t *bytes, size_t len)
{
    uv_stream_t *to = (uv_stream_t *)&other_end(w)->from;
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)len);
    if (w == &w->proxy->way[CLIENT]) {
        w->proxy->all->spoke = true;
        w->proxy->all->last = w->proxy->client.rank;
    }
    int n = uv_try_write(to, &buf, 1);
    if (n == UV_EAGAIN)
        n = 0;
    if (n < 0) {
        lose_reader(w);
        return;
    }
    if ((size_t)n == len)
        return;
    len -= (size_t)n;
    w->held = malloc(len);
    if (!w->held) {
        end_proxy(w->proxy);
        return;
    }
    memcpy(w->held, bytes + n, len);
    buf = uv_buf_init((char *)w->held, (unsigned)len);
    w->write.data = w;
    w->writing = true;
    uv_read_stop((uv_stream_t *)&w->from);
    if (uv_write(&w->write, to, &buf, 1, on_written) < 0) {
        w->writing = false;
        end_proxy(w->proxy);
    }
}

static bool is_followed(struct proxy *s, const uint8_t *bytes, size_t len)
{
    return !s->all->follow || s->all->follow(s->all->ctx, &s->client, bytes, len);
}

/* ---- the handshake ------------------------------------------------------------------------------------- */

static void on_connected(uv_connect_t *connect, int status)
{
    struct proxy *s = connect->data;
    if (s->closing)
        return;
    if (status < 0) {
        log_warning("a rendezvous server of ours does not answer: %s", uv_strerror(status));
        lose_server(s);
        return;
    }
    uv_tcp_nodelay(&s->way[SERVER].from, 1);
    uint8_t *handshake = s->handshake;
    s->handshake = NULL;
    pass_bytes(&s->way[CLIENT], handshake, s->have);
    free(handshake);
    for (int i = 0; i < 2 && !s->closing; i++)
        if (!s->way[i].writing)
            start_reading(&s->way[i]);
}

static void join_server(struct proxy *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                             .sin_port = htons(s->all->port)};
    s->connect.data = s;
    if (uv_tcp_connect(&s->connect, &s->way[SERVER].from, (struct sockaddr *)&to, on_connected) < 0)
        end_proxy(s);
}

static void take_handshake(struct proxy *s, const uint8_t *bytes, size_t len)
{
    uint8_t *more = s->have + len <= HANDSHAKE_MAX ? realloc(s->handshake, s->have + len) : NULL;
    enum handshake_verdict answer = HANDSHAKE_BAD;
    if (more) {
        s->handshake = more;
        memcpy(more + s->have, bytes, len);
        s->have += len;
        answer = s->all->check(s->all->ctx, more, s->have, &s->client);
    }
    if (answer == HANDSHAKE_BAD) {
        log_info("a connection to the rendezvous was closed: what it said first is no handshake");
        end_proxy(s);
    }
    if (answer != HANDSHAKE_GOOD)
        return;
    if (!is_followed(s, more + s->client.handshake, s->have - s->client.handshake)) {
        end_proxy(s);
        return;
    }
    s->complete = true;
    uv_timer_stop(&s->patience);
    uv_read_stop((uv_stream_t *)&s->way[CLIENT].from);
    if (s->all->port)
        join_server(s);
}

static void on_impatient(uv_timer_t *timer)
{
    log_info("a connection to the rendezvous was closed: it said nothing in %d s", GREETING_MS / 1000);
    end_proxy(timer->data);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void get_scratch(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct proxy *s = handle->data;
    (void)suggested;
    if (!s->all->scratch)
        s->all->scratch = malloc(SCRATCH);
    *buf = uv_buf_init((char *)s->all->scratch, s->all->scratch ? SCRATCH : 0);
}

/* The library's ends send small messages one after the other without TCP_NODELAY: each waits until the one
 * before it was acknowledged, which the kernel puts off for 40 ms where nothing is answered. It forgets this
 * wish, so it is told again. */
static void acknowledge_quickly(uv_stream_t *stream)
{
    static const int yes = 1;
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)stream, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct proxy *s = stream->data;
    struct way *w = &s->way[stream == (uv_stream_t *)&s->way[CLIENT].from ? CLIENT : SERVER];
    if (s->closing || n == 0)
        return;
    if (n > 0)
        acknowledge_quickly(stream);
    if (n > 0 && !s->complete)
        take_handshake(s, (const uint8_t *)buf->base, (size_t)n);
    else if (n > 0 && w == &s->way[CLIENT] && !is_followed(s, (const uint8_t *)buf->base, (size_t)n))
        end_proxy(s);
    else if (n > 0)
        pass_bytes(w, (const uint8_t *)buf->base, (size_t)n);
    else if (w == &s->way[SERVER] && !s->way[CLIENT].ended)
        lose_server(s);
    else if (n == UV_EOF && s->complete)
        pass_end(w);
    else
        end_proxy(s);
}

static void start_reading(struct way *w)
{
    if (!w->ended && uv_read_start((uv_stream_t *)&w->from, get_scratch, on_read) < 0)
        end_proxy(w->proxy);
}

/* ---- all of them --------------------------------------------------------------------------------------- */

void proxies_add(struct proxies *all, int fd)
{
    struct proxy *s = all->closed ? NULL : calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return;
    }
    s->all = all;
    s->next = all->first;
    s->link = &all->first;
    if (s->next)
        s->next->link = &s->next;
    all->first = s;
    s->handles = 3;
    for (int i = 0; i < 2; i++) {
        s->way[i].proxy = s;
        uv_tcp_init(all->loop, &s->way[i].from);
        s->way[i].from.data = s;
    }
    uv_timer_init(all->loop, &s->patience);
    s->patience.data = s;
    if (uv_tcp_open(&s->way[CLIENT].from, fd) < 0) {
        close(fd);
        end_proxy(s);
        return;
    }
    uv_tcp_nodelay(&s->way[CLIENT].from, 1);
    uv_timer_start(&s->patience, on_impatient, GREETING_MS, 0);
    start_reading(&s->way[CLIENT]);
}

void proxies_serve(struct proxies *all, uint16_t port)
{
    struct proxy *next;
    all->port = port;
    for (struct proxy *s = all->first; s; s = next) {
        next = s->next;
        if (s->complete)
            join_server(s);
    }
}

void proxies_close(struct proxies *all)
{
    all->closed = true;
    while (all->first)
        end_proxy(all->first);
}

void proxies_free(struct proxies *all)
{
    free(all->scratch);
    all->scratch = NULL;
}
