/* Module `metrics`: libmicrohttpd without threads, its epoll descriptor on our loop. */
#include "agent/daemon/metrics/metrics.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/exposition.h"
#include "common/process/module.h"

#define CONNECTION_MEMORY 4096 /* request line and headers */

extern const char hvd_module_version[];
extern const struct metrics_http_ops hvd_metrics_http;

MODULE_DEFINE_VERSION;

/* The handles outlive the rest until the loop has closed them. */
struct watch {
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned open;
};

struct metrics_http {
    void (*write)(void *ctx, FILE *out);
    void *ctx;
    struct MHD_Daemon *daemon;
    struct watch *watch;
};

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

static void serve_connections(struct metrics_http *h)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    (void)MHD_run(h->daemon);
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
        uv_timer_start(&h->watch->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&h->watch->timer);
}

static void on_timer(uv_timer_t *timer)
{
    serve_connections(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    serve_connections(poll->data);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static enum MHD_Result answer_request(struct MHD_Connection *connection, unsigned status, char *text,
                                      size_t size)
{
    static char nothing[1];
    struct MHD_Response *response = text
                                        ? MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE)
                                        : MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    enum MHD_Result done = MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (done == MHD_YES && text)
        done = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, EXPOSITION_TYPE);
    if (done == MHD_YES)
        done = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return done;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *len,
                                  void **slot)
{
    struct metrics_http *h = cls;
    char *text = NULL;
    size_t size = 0;
    (void)version, (void)data, (void)slot;
    if (*len > 0)
        return MHD_NO; /* no request here has a body */
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_request(connection, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, 0);
    if (strcmp(url, "/metrics") != 0)
        return answer_request(connection, MHD_HTTP_NOT_FOUND, NULL, 0);
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return MHD_NO;
    h->write(h->ctx, out);
    bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return answer_request(connection, MHD_HTTP_OK, text, size);
    free(text);
    return MHD_NO;
}

/* ---- the module's operations --------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct watch *w = handle->data;
    if (--w->open == 0)
        free(w);
}

static void http_stop(struct metrics_http *h)
{
    struct watch *w = h->watch;
    w->poll.data = w->timer.data = w;
    uv_close((uv_handle_t *)&w->poll, on_closed);
    uv_close((uv_handle_t *)&w->timer, on_closed);
    MHD_stop_daemon(h->daemon);
    free(h);
}

static struct MHD_Daemon *start_daemon(struct metrics_http *h, int listener)
{
    return MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, listener,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)METRICS_CLIENTS,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)METRICS_IDLE_S,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
                            MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

static struct metrics_http *http_start(uv_loop_t *loop, int listener, void (*write)(void *ctx, FILE *out),
                                       void *ctx, struct err *e)
{
    struct metrics_http *h = calloc(1, sizeof *h);
    struct watch *w = calloc(1, sizeof *w);
    const union MHD_DaemonInfo *info = NULL;
    if (h && w) {
        *h = (struct metrics_http){.write = write, .ctx = ctx, .watch = w};
        h->daemon = start_daemon(h, listener);
        info = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    }
    if (info && uv_poll_init(loop, &w->poll, info->epoll_fd) == 0) {
        uv_timer_init(loop, &w->timer);
        w->open = 2;
        w->poll.data = w->timer.data = h;
        uv_poll_start(&w->poll, UV_READABLE, on_poll);
        return h;
    }
    if (h && h->daemon)
        MHD_stop_daemon(h->daemon); /* closes the listener, too */
    else
        close(listener);
    free(w);
    free(h);
    err_set(e, ERR_SYSTEM, "libmicrohttpd does not start");
    return NULL;
}

const struct metrics_http_ops hvd_metrics_http = {http_start, http_stop};
