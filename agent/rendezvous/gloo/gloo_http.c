/* Module `gloo`: libmicrohttpd without threads. Its epoll descriptor is on the session's loop, connections
 * come from the listener.
 *
 *   target (begin_request) -> headers: admit or refuse -> body -> serve -> answer, Connection: close
 *                                                          |
 *                                                          +- held: suspended until wake, time-out or stop
 *
 * The clients make a connection for each request, and the server closes it. So the port that is unusable for
 * a minute is the server's. The clients do not have enough ports for thousands of requests a second.
 *
 * A faulty request (libmicrohttpd's own checks, a path that is none, a body that is too long) is answered
 * with 4xx and ends its connection. A client that says nothing for IDLE_SECONDS, or that left in the middle
 * of a request, is closed then. The target is taken as it was sent: no %xx is decoded and '?' is a character
 * like others, as the clients mean it. */
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/gloo/gloo_http.h"
#include "common/base/clock.h"
#include "common/process/module.h"
#include "common/process/spawn.h"

#define IDLE_SECONDS      10
#define CONNECTION_MEMORY 8192 /* request line and headers */

extern const char hvd_module_version[];
extern const struct gloo_http_ops hvd_gloo_http;

MODULE_DEFINE_VERSION;

struct request {
    struct gloo_http *http;
    struct MHD_Connection *connection;
    struct gloo_request is;
    bool begun;
    size_t filled, announced;    /* of the body */
    struct request *prev, *next; /* while it is held, in the order in which patience ends */
    bool held;
    uint64_t held_until;
    size_t len;
    char text[]; /* the target */
};

/* The handles outlive the rest until the loop has closed them. */
struct watch {
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned open;
};

struct gloo_http {
    struct gloo_http_config config;
    gloo_http_serve *serve;
    void *ctx;
    struct MHD_Daemon *daemon;
    struct watch *watch;
    struct request *first, *last; /* held */
    size_t announced;
    bool stopping;
};

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

static void set_timer(struct gloo_http *h)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool any = MHD_get_timeout(h->daemon, &ms) == MHD_YES;
    if (h->first) {
        uint64_t now = clock_now(), rest = h->first->held_until > now ? h->first->held_until - now : 0;
        rest = (rest + 999999) / 1000000;
        ms = any && ms < rest ? ms : rest;
        any = true;
    }
    if (any)
        uv_timer_start(&h->watch->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&h->watch->timer);
}

static void resume_request(struct request *q)
{
    struct gloo_http *h = q->http;
    *(q->prev ? &q->prev->next : &h->first) = q->next;
    *(q->next ? &q->next->prev : &h->last) = q->prev;
    q->held = false;
    MHD_resume_connection(q->connection);
}

static void run_server(struct gloo_http *h)
{
    uint64_t now = clock_now();
    while (h->first && h->first->held_until <= now) {
        h->first->is.may_hold = false;
        resume_request(h->first);
    }
    (void)MHD_run(h->daemon);
    set_timer(h);
}

static void on_timer(uv_timer_t *timer)
{
    run_server(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run_server(poll->data);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void release_value(void *value)
{
    gloo_value_release(value);
}

static enum MHD_Result queue_answer(struct MHD_Connection *connection, unsigned status,
                                    struct gloo_value *value)
{
    static char nothing[1];
    struct MHD_Response *response =
        value && value->len ? MHD_create_response_from_buffer_with_free_callback_cls(value->len, value->bytes,
                                                                                     release_value, value)
                            : MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    if (!response || !value || !value->len)
        gloo_value_release(value);
    if (!response)
        return MHD_NO;
    enum MHD_Result done = MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (done == MHD_YES)
        done = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return done;
}

static void hold_request(struct request *q)
{
    struct gloo_http *h = q->http;
    q->held = true;
    q->held_until = clock_now() + (uint64_t)h->config.hold_ms * 1000000;
    q->prev = h->last;
    q->next = NULL;
    *(h->last ? &h->last->next : &h->first) = q;
    h->last = q;
    MHD_suspend_connection(q->connection);
}

static enum MHD_Result serve_request(struct request *q)
{
    struct gloo_http *h = q->http;
    struct gloo_value *value = NULL;
    q->is.may_hold = q->is.may_hold && !h->stopping;
    unsigned status = h->serve(h->ctx, &q->is, &value);
    if (status == 0 && q->is.may_hold) {
        hold_request(q);
        return MHD_YES;
    }
    return queue_answer(q->connection, status ? status : MHD_HTTP_NOT_FOUND, value);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static void *begin_request(void *cls, const char *target, struct MHD_Connection *connection)
{
    size_t len = strlen(target);
    struct request *q = malloc(sizeof *q + len + 1);
    if (!q)
        return NULL;
    *q = (struct request){.http = cls, .connection = connection, .len = len};
    memcpy(q->text, target, len + 1);
    return q;
}

static void end_request(void *cls, struct MHD_Connection *connection, void **slot,
                        enum MHD_RequestTerminationCode code)
{
    struct gloo_http *h = cls;
    struct request *q = *slot;
    (void)connection, (void)code;
    if (!q)
        return;
    h->announced -= q->announced;
    gloo_value_release(q->is.body);
    free(q);
    *slot = NULL;
}

/* Digits only; false when there is no such header or no such number. */
static bool body_length(struct MHD_Connection *connection, size_t *len)
{
    const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    size_t digits = text ? strspn(text, "0123456789") : 0;
    *len = digits > 0 && digits <= 18 ? strtoull(text, NULL, 10) : 0;
    return digits > 0 && digits <= 18 && text[digits] == '\0';
}

static bool read_verb(const char *method, enum gloo_verb *verb)
{
    static const char *const names[] = {[GLOO_GET] = "GET", [GLOO_PUT] = "PUT", [GLOO_DELETE] = "DELETE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(method, names[i]) == 0) {
            *verb = (enum gloo_verb)i;
            return true;
        }
    return false;
}

/* 0, or the status to refuse it with. */
static unsigned check_head(struct request *q, const char *method)
{
    struct gloo_http *h = q->http;
    size_t len;
    bool has_length = body_length(q->connection, &len);
    if (!read_verb(method, &q->is.verb) || !gloo_path_parse(q->text, q->len, &q->is.path))
        return MHD_HTTP_BAD_REQUEST;
    if (q->is.verb == GLOO_PUT ? !has_length : len > 0)
        return MHD_HTTP_BAD_REQUEST;
    if (len > h->config.body)
        return MHD_HTTP_CONTENT_TOO_LARGE;
    if (len > h->config.bodies - h->announced)
        return MHD_HTTP_INSUFFICIENT_STORAGE;
    if (q->is.verb == GLOO_PUT) {
        q->is.body = gloo_value_new(len);
        if (!q->is.body)
            return MHD_HTTP_INSUFFICIENT_STORAGE;
    }
    h->announced += q->announced = len;
    return 0;
}

static enum MHD_Result take_body(struct request *q, const char *data, size_t *len)
{
    if (*len > q->announced - q->filled)
        return MHD_NO;
    memcpy(q->is.body->bytes + q->filled, data, *len);
    q->filled += *len;
    *len = 0;
    return MHD_YES;
}

/* Called for the headers, for each piece of the body, when all is there, and after each resume. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *len,
                                  void **slot)
{
    struct request *q = *slot;
    (void)cls, (void)url, (void)version;
    if (!q)
        return MHD_NO; /* no memory */
    if (!q->begun) {
        q->begun = q->is.may_hold = true;
        unsigned status = check_head(q, method);
        return status ? queue_answer(connection, status, NULL) : MHD_YES;
    }
    if (*len > 0)
        return take_body(q, data, len);
    if (q->filled < q->announced)
        return MHD_NO;
    return serve_request(q);
}

/* ---- the module's operations --------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct watch *w = handle->data;
    if (--w->open == 0)
        free(w);
}

static void close_watch(struct watch *w)
{
    w->poll.data = w->timer.data = w;
    uv_close((uv_handle_t *)&w->poll, on_closed);
    uv_close((uv_handle_t *)&w->timer, on_closed);
}

static size_t keep_text(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls, (void)connection;
    return strlen(text);
}

static int start_daemon(struct gloo_http *h, uv_loop_t *loop, struct err *e)
{
    h->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO |
                             MHD_USE_SUPPRESS_DATE_NO_CLOCK,
                         0, NULL, NULL, on_request, h, MHD_OPTION_URI_LOG_CALLBACK, begin_request, h,
                         MHD_OPTION_NOTIFY_COMPLETED, end_request, h, MHD_OPTION_UNESCAPE_CALLBACK, keep_text,
                         h, MHD_OPTION_CONNECTION_LIMIT, h->config.connections, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)CONNECTION_MEMORY, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 0, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info)
        return err_set(e, ERR_SYSTEM, "libmicrohttpd does not start");
    int rc = uv_poll_init(loop, &h->watch->poll, info->epoll_fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the Gloo rendezvous: %s", uv_strerror(rc));
    return 0;
}

static struct gloo_http *http_start(uv_loop_t *loop, const struct gloo_http_config *config,
                                    gloo_http_serve *serve, void *ctx, struct err *e)
{
    struct gloo_http *h = calloc(1, sizeof *h);
    struct watch *w = calloc(1, sizeof *w);
    spawn_raise_descriptor_limit(config->connections + 256);
    if (h && w) {
        *h = (struct gloo_http){.config = *config, .serve = serve, .ctx = ctx, .watch = w};
        if (start_daemon(h, loop, e) == 0) {
            uv_timer_init(loop, &w->timer);
            w->open = 2;
            w->poll.data = w->timer.data = h;
            uv_poll_start(&w->poll, UV_READABLE, on_poll);
            return h;
        }
        if (h->daemon)
            MHD_stop_daemon(h->daemon);
    } else {
        err_set(e, ERR_MEMORY, "no memory for the Gloo rendezvous");
    }
    free(w);
    free(h);
    return NULL;
}

static void http_add(struct gloo_http *h, int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } from = {0};
    socklen_t len = sizeof from;
    (void)getpeername(fd, &from.any, &len);
    (void)MHD_add_connection(h->daemon, fd, &from.any, len); /* it closes what it cannot take */
    uv_timer_start(&h->watch->timer, on_timer, 0, 0);        /* several at once */
}

static bool is_same(const struct gloo_path *a, const struct gloo_path *b)
{
    return a->scope_len == b->scope_len && a->key_len == b->key_len &&
           memcmp(a->scope, b->scope, a->scope_len) == 0 && memcmp(a->key, b->key, a->key_len) == 0;
}

static void http_wake(struct gloo_http *h, const struct gloo_path *path)
{
    for (struct request *q = h->first, *next; q; q = next) {
        next = q->next;
        if (path && !is_same(path, &q->is.path))
            continue;
        q->is.may_hold = path != NULL;
        resume_request(q);
    }
    uv_timer_start(&h->watch->timer, on_timer, 0, 0);
}

static void http_stop(struct gloo_http *h)
{
    h->stopping = true;
    http_wake(h, NULL);
    (void)MHD_run(h->daemon);
    close_watch(h->watch);
    MHD_stop_daemon(h->daemon);
    free(h);
}

const struct gloo_http_ops hvd_gloo_http = {http_start, http_add, http_wake, http_stop};
