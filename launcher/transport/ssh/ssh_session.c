/* A connection from start() to closed().
 *
 * When it works the states follow one another in the order of the table below; each is one function that
 * is called again and again until it no longer would block. ssh_advance is the only driver and set_state
 * the only one that changes the state. Each callback of the loop (socket, timers, ssh -G, resolver, agent)
 * only notes what happened and calls ssh_advance.
 *
 * The socket is ours, not libssh2's: it reads and writes through recv_bytes and send_bytes. Writing always
 * succeeds (into t->wire.out, bounded: nothing new is written while it is long), because libssh2 1.10
 * fails when another packet, say a window adjustment, comes between the halves of a short write. EOF is
 * held back until libssh2's queue was read, because a read error hides what is queued. Every read re-arms
 * TCP_QUICKACK: sshd sends in small pieces and waits for acknowledgements.
 *
 * How it fails: a step returns SSH_FAILED, or the peer goes, or close() was called. Either way
 * finish_transport() closes what is open, in any state; freeing libssh2's session never waits since the
 * socket is unplugged before; when the last handle is closed, closed() is reported. */
#include "launcher/transport/ssh/ssh_session.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/transport/ssh/ssh_agent.h"
#include "launcher/transport/ssh/ssh_config.h"
#include "launcher/transport/ssh/ssh_connect.h"
#include "launcher/transport/ssh/ssh_query.h"

#define OUT_MAX (1024 * 1024)

static const struct ssh_step {
    const char *name;
    enum transport_phase phase;
    enum ssh_result (*run)(struct transport *t);
} steps[SSH_STATE_COUNT] = {
    [SSH_START] = {"start", TRANSPORT_RESOLVE, NULL},
    [SSH_CONFIG] = {"configuration", TRANSPORT_RESOLVE, ssh_step_config},
    [SSH_RESOLVE] = {"resolve", TRANSPORT_RESOLVE, ssh_step_resolve},
    [SSH_CONNECT] = {"connect", TRANSPORT_CONNECT, ssh_step_connect},
    [SSH_HANDSHAKE] = {"handshake", TRANSPORT_HOST_KEY, ssh_step_handshake},
    [SSH_VERIFY] = {"host key", TRANSPORT_HOST_KEY, ssh_step_verify},
    [SSH_AUTHENTICATE] = {"authentication", TRANSPORT_AUTHENTICATION, ssh_step_authenticate},
    [SSH_CHANNEL] = {"channel", TRANSPORT_AGENT_START, ssh_step_channel},
    [SSH_EXEC] = {"exec", TRANSPORT_AGENT_START, ssh_step_exec},
    [SSH_RUN] = {"run", TRANSPORT_AGENT_START, ssh_step_run},
    [SSH_AWAIT_CLOSE] = {"await close", TRANSPORT_AGENT_START, ssh_step_await_close},
    [SSH_CLOSING] = {"closing", TRANSPORT_AGENT_START, NULL},
};

static void set_state(struct transport *t, enum ssh_state state)
{
    uint64_t now = clock_now();
    bool first = t->state == SSH_START;
    log_trace("%s: ssh %s -> %s after %.1f ms", t->target->host, steps[t->state].name, steps[state].name,
              (double)(now - t->state_since) / NSEC_PER_MSEC);
    t->state = state;
    t->state_since = now;
    if (state == SSH_CLOSING || (!first && steps[state].phase == t->phase))
        return;
    t->phase = steps[state].phase;
    t->events->phase(t->ctx, t->phase);
}

/* ---- the socket ---------------------------------------------------------------------------------------- */

static ssize_t recv_bytes(libssh2_socket_t fd, void *bytes, size_t len, int flags, void **abstract)
{
    struct transport *t = *abstract;
    int on = 1;
    if (t->wire.unplugged)
        return -ECONNRESET;
    if (t->wire.peer_gone)
        return -EAGAIN;
    ssize_t n = recv(fd, bytes, len, MSG_DONTWAIT);
    if (n > 0) {
        t->wire.got_bytes = true;
        setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
        return n;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        t->wire.peer_gone = true;
    return -EAGAIN;
}

static ssize_t send_bytes(libssh2_socket_t fd, const void *bytes, size_t len, int flags, void **abstract)
{
    struct transport *t = *abstract;
    size_t sent = 0;
    if (t->wire.unplugged)
        return -ECONNRESET;
    if (t->wire.out.len == 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            t->wire.peer_gone = true; /* reading finds what the host said before */
        sent = n > 0 ? (size_t)n : 0;
    }
    if (t->wire.peer_gone)
        return (ssize_t)len;
    if (sent < len && buf_put(&t->wire.out, (const uint8_t *)bytes + sent, len - sent) < 0)
        return -ENOBUFS;
    return (ssize_t)len;
}

/* Sends what the socket did not take before. */
static void flush_socket(struct transport *t)
{
    if (!t->wire.peer_gone && buf_send(&t->wire.out, t->wire.fd) < 0)
        t->wire.peer_gone = true;
}

static void socket_ready(uv_poll_t *poll, int status, int events)
{
    struct transport *t = poll->data;
    if (events & UV_WRITABLE)
        flush_socket(t);
    ssh_advance(t);
}

static void update_interest(struct transport *t)
{
    if (!t->wire.poll_open || t->state == SSH_CLOSING)
        return;
    /* While the ssh-agent computes a signature, bytes of the host stay in the socket. */
    int want = (t->auth.waiting ? 0 : UV_READABLE) | (t->wire.out.len ? UV_WRITABLE : 0);
    if (want == t->wire.interest)
        return;
    t->wire.interest = want;
    if (want)
        uv_poll_start(&t->wire.poll, want, socket_ready);
    else
        uv_poll_stop(&t->wire.poll);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

void ssh_handle_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    if (--t->open_handles > 0)
        return;
    struct transport_end end = {t->end.exit_status, t->end.term_signal, t->err.code ? &t->err : NULL};
    t->events->closed(t->ctx, &end);
}

static void part_closed(void *ctx)
{
    struct transport *t = ctx;
    ssh_handle_closed((uv_handle_t *)&t->kick);
}

static void free_library(struct transport *t)
{
    if (!t->session)
        return;
    if (!t->wire.peer_gone && t->state > SSH_HANDSHAKE)
        libssh2_session_disconnect(t->session, "done");
    flush_socket(t);
    t->wire.unplugged = true;
    /* With the socket dead each call ends what it began; a few are needed when an exchange was under way. */
    for (int i = 0; i < 16 && libssh2_session_free(t->session) == LIBSSH2_ERROR_EAGAIN; i++)
        ;
    t->session = NULL;
    t->channel = NULL;
}

static void free_keys(struct ssh_auth *a)
{
    for (size_t i = 0; i < a->count; i++) {
        free(a->key[i].name);
        free(a->key[i].info.blob);
    }
    a->count = 0;
}

/* Every way out comes through here, once. */
static void finish_transport(struct transport *t)
{
    if (t->state == SSH_CLOSING)
        return;
    enum transport_phase phase = t->phase;
    free_library(t);
    set_state(t, SSH_CLOSING);
    t->phase = phase;
    if (t->query_open)
        ssh_query_close(&t->query);
    if (t->connect_open)
        ssh_connect_close(&t->connect);
    if (t->auth.agent_open)
        ssh_agent_close(&t->auth.agent, ssh_handle_closed, t);
    if (t->wire.poll_open) {
        uv_poll_stop(&t->wire.poll);
        uv_close((uv_handle_t *)&t->wire.poll, ssh_handle_closed);
    }
    if (t->wire.fd >= 0)
        close(t->wire.fd);
    t->wire.fd = -1;
    uv_close((uv_handle_t *)&t->kick, ssh_handle_closed);
    uv_close((uv_handle_t *)&t->timer, ssh_handle_closed);
    buf_free(&t->wire.out);
    buf_free(&t->pending);
    known_hosts_free(&t->known);
    known_hosts_free(&t->known_plain);
    free_keys(&t->auth);
}

/* ---- the driver ---------------------------------------------------------------------------------------- */

static enum ssh_result run_step(struct transport *t)
{
    enum ssh_result result = steps[t->state].run(t);
    if (result == SSH_AGAIN && t->wire.peer_gone && t->state >= SSH_HANDSHAKE && t->state < SSH_RUN) {
        err_set(&t->err, ERR_HOST, "%s closed the connection during %s", t->config.hostname,
                steps[t->state].name);
        if (t->state == SSH_HANDSHAKE)
            err_hint(&t->err, "sshd there may be overloaded (MaxStartups) or refuse this address");
        return SSH_FAILED;
    }
    return result;
}

void ssh_advance(struct transport *t)
{
    if (t->state == SSH_CLOSING)
        return;
    if (t->state == SSH_START && !t->end.requested)
        set_state(t, SSH_CONFIG);
    while (!t->end.requested) {
        enum ssh_result result = run_step(t);
        if (result == SSH_AGAIN && !t->end.requested) {
            update_interest(t);
            return;
        }
        if (result != SSH_DONE || t->state == SSH_AWAIT_CLOSE)
            break;
        if (!t->end.requested)
            set_state(t, t->state + 1);
    }
    if (t->end.requested)
        err_clear(&t->err);
    finish_transport(t);
}

static void on_kick(uv_timer_t *timer)
{
    ssh_advance(timer->data);
}

void ssh_kick(struct transport *t)
{
    if (t->state != SSH_CLOSING)
        uv_timer_start(&t->kick, on_kick, 0, 0);
}

enum ssh_result ssh_library_failed(struct transport *t, enum err_code code, const char *attempted)
{
    char *text = NULL;
    if (t->session)
        libssh2_session_last_error(t->session, &text, NULL, 0);
    err_set(&t->err, code, "%s: %s: %s", t->config.hostname, attempted,
            text && *text ? text : "unknown error");
    return SSH_FAILED;
}

/* ---- the steps up to the handshake --------------------------------------------------------------------- */

static void query_done(void *ctx)
{
    ssh_advance(ctx);
}

/* ssh's configuration is asked for only when the user has one: it costs a process for each host. */
static enum ssh_result begin_query(struct transport *t)
{
    const struct ssh_user *me = ssh_user_find(&t->err);
    char path[SSH_PATH_MAX];
    if (!me ||
        ssh_config_defaults(&t->config, me, t->target->host, t->target->user, t->target->port, &t->err) < 0)
        return SSH_FAILED;
    int n = snprintf(path, sizeof path, "%s/.ssh/config", me->home);
    if (n < 0 || (size_t)n >= sizeof path || access(path, R_OK) < 0)
        return SSH_DONE;
    t->query.done = query_done;
    t->query.closed = part_closed;
    t->query.ctx = t;
    if (ssh_query_start(&t->query, t->loop, t->target, me->moved ? path : NULL) < 0) {
        log_warning("%s: ~/.ssh/config is not used: %s", t->target->host, t->query.err.text);
        return SSH_DONE;
    }
    t->query_open = true;
    t->open_handles++;
    return SSH_AGAIN;
}

enum ssh_result ssh_step_config(struct transport *t)
{
    if (!t->query_open) {
        enum ssh_result result = begin_query(t);
        if (result != SSH_AGAIN)
            return result;
    }
    if (!t->query.finished)
        return SSH_AGAIN;
    struct buf *output = &t->query.output;
    if (t->query.err.code) {
        t->err = t->query.err;
        err_wrap(&t->err, "%s", t->target->host);
        return SSH_FAILED;
    }
    if (ssh_config_parse(&t->config, ssh_user_find(NULL), (const char *)buf_data(output), output->len,
                         &t->err) < 0)
        return SSH_FAILED;
    buf_free(output);
    if (t->config.unsupported[0]) {
        err_set(&t->err, ERR_UNSUPPORTED, "%s: ssh's configuration has \"%s\"", t->target->host,
                t->config.unsupported);
        return SSH_FAILED;
    }
    return SSH_DONE;
}

static void tell_unresolved(void *ctx, const char *why, bool unknown)
{
    struct transport *t = ctx;
    t->events->unresolved(t->ctx, why, unknown);
}

static void address_event(void *ctx)
{
    ssh_advance(ctx);
}

enum ssh_result ssh_step_resolve(struct transport *t)
{
    struct ssh_connect *c = &t->connect;
    if (!t->connect_open) {
        c->resolved = c->connected = address_event;
        c->unresolved = t->events->unresolved ? tell_unresolved : NULL;
        c->closed = part_closed;
        c->ctx = t;
        ssh_connect_init(c, t->loop, t->config.hostname, t->config.port);
        t->connect_open = true;
        t->open_handles++;
        ssh_connect_resolve(c, t->config.family);
    }
    if (c->err.code) {
        t->err = c->err;
        return SSH_FAILED;
    }
    if (c->count == 0)
        return SSH_AGAIN;
    ssh_connect_begin(c);
    return SSH_DONE;
}

enum ssh_result ssh_step_connect(struct transport *t)
{
    if (t->connect.fd < 0 && t->connect.failed == t->connect.count) {
        t->err = t->connect.err;
        return SSH_FAILED;
    }
    if (t->connect.fd < 0)
        return SSH_AGAIN;
    t->wire.fd = t->connect.fd;
    int rc = uv_poll_init(t->loop, &t->wire.poll, t->wire.fd);
    if (rc < 0) {
        err_set(&t->err, ERR_SYSTEM, "%s: cannot watch the connection: %s", t->config.hostname,
                uv_strerror(rc));
        return SSH_FAILED;
    }
    t->wire.poll.data = t;
    t->wire.poll_open = true;
    t->open_handles++;
    buf_init(&t->wire.out, OUT_MAX);
    return SSH_DONE;
}

typedef void callback(void);

/* libssh2 1.11.1 gave the call a type for functions, and deprecates the older one. */
static void set_callback(LIBSSH2_SESSION *session, int kind, callback *function)
{
#if LIBSSH2_VERSION_NUM >= 0x010b01
    libssh2_session_callback_set2(session, kind, function);
#else
    libssh2_session_callback_set(session, kind, (void *)function);
#endif
}

enum ssh_result ssh_new_session(struct transport *t)
{
    t->session = libssh2_session_init_ex(NULL, NULL, NULL, t);
    if (!t->session) {
        err_set(&t->err, ERR_MEMORY, "no memory for an SSH session");
        return SSH_FAILED;
    }
    libssh2_session_set_blocking(t->session, 0);
    set_callback(t->session, LIBSSH2_CALLBACK_RECV, (callback *)recv_bytes);
    set_callback(t->session, LIBSSH2_CALLBACK_SEND, (callback *)send_bytes);
    return SSH_DONE;
}
