#include "agent/rendezvous/pmix_client/surrogate.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

struct surrogate {
    struct surrogate *next, **link;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    char answer[64]; /* is not read further */
    size_t len;
    uint8_t handshake[];
};

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void end_surrogate(struct surrogate *s)
{
    if (uv_is_closing((uv_handle_t *)&s->tcp))
        return;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

static void get_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct surrogate *s = handle->data;
    (void)suggested;
    *buf = uv_buf_init(s->answer, sizeof s->answer);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    if (n < 0)
        end_surrogate(stream->data);
}

static void on_written(uv_write_t *request, int status)
{
    (void)request, (void)status; /* an end is read as well */
}

static void on_shut(uv_shutdown_t *request, int status)
{
    (void)request, (void)status;
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct surrogate *s = connect->data;
    uv_stream_t *stream = (uv_stream_t *)&s->tcp;
    uv_buf_t buf = uv_buf_init((char *)s->handshake, (unsigned)s->len);
    if (status == UV_ECANCELED)
        return;
    if (status < 0)
        log_warning("a rendezvous server of ours does not answer: %s", uv_strerror(status));
    if (status < 0 || uv_write(&s->write, stream, &buf, 1, on_written) < 0 ||
        uv_shutdown(&s->shutdown, stream, on_shut) < 0 || uv_read_start(stream, get_buffer, on_read) < 0)
        end_surrogate(s);
}

void surrogates_add(struct surrogates *all, uint16_t port, const uint8_t *handshake, size_t len)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}, .sin_port = htons(port)};
    struct surrogate *s = calloc(1, sizeof *s + len);
    if (!s)
        return;
    memcpy(s->handshake, handshake, len);
    s->len = len;
    uv_tcp_init(all->loop, &s->tcp);
    s->tcp.data = s->connect.data = s;
    s->next = all->first;
    s->link = &all->first;
    if (s->next)
        s->next->link = &s->next;
    all->first = s;
    if (uv_tcp_connect(&s->connect, &s->tcp, (struct sockaddr *)&to, on_connected) < 0)
        end_surrogate(s);
}

void surrogates_close(struct surrogates *all)
{
    while (all->first)
        end_surrogate(all->first);
}
