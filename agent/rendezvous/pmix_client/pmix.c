/* The PMIx contract: a server of the PMIx library for the ranks of this host, there from its first client on.
 *
 * Before the workers start only the listener is made. Their environment names it as the server, with what the
 * library's PMIx_server_setup_fork would say if it were asked; the names are ours to choose, for the server
 * will be given them. The first knock starts the server, a process of its own (earlier when the command looks
 * as if it will knock: detect.h); connections wait meanwhile and are then joined to the library's own port.
 * Then the library is asked after all: if it says other than the workers were told, a warning names the way
 * that asks it before (--rendezvous pmix).
 *
 * Another user who finds the library's own port has nothing to say there: the library refuses namespaces
 * that it does not know, and ours cannot be guessed. At the listener, nobody comes in who does not name it.
 *
 * Without that program (the library was missing when this was built) no variable of PMIx is set. */
#include "agent/rendezvous/pmix_client/pmix.h"

#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "agent/guard/job_dir.h"
#include "agent/rendezvous/lazy_listener.h"
#include "agent/rendezvous/pmix_client/detect.h"
#include "agent/rendezvous/pmix_client/pmix_host.h"
#include "agent/rendezvous/pmix_client/pmix_variables.h"
#include "agent/rendezvous/pmix_client/pmix_wire.h"
#include "agent/rendezvous/pmix_client/proxy.h"
#include "common/base/log.h"
#include "common/process/module.h"
#include "common/protocol/host_ranks.h"
#include "common/protocol/spawn_programs.h"

/* ---- surrogates ---------------------------------------------------------------------------------------- */

/* Connections to the PMIx server in the name of ranks that have ended before they made one.
 *
 * The server would wait for such a rank in operations that other ranks of its host have begun. The server
 * learns of a rank's end by the end of its connection: so a surrogate connects for the rank, sends its
 * handshake, and ends. */

struct surrogates {
    uv_loop_t *loop;
    struct surrogate *first;
};

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

/* Sends the handshake (copied) to the server at this port of loopback, and ends when the server has closed
 * the connection. */
static void surrogates_add(struct surrogates *all, uint16_t port, const uint8_t *handshake, size_t len)
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

/* The the handles are closed when the loop has run again. */
static void surrogates_close(struct surrogates *all)
{
    while (all->first)
        end_surrogate(all->first);
}

struct pmix {
    struct rendezvous *r;
    struct lazy_listener listener;
    struct proxies proxies;
    struct pmix_host *server;
    bool started;       /* somebody has knocked */
    struct err failure; /* it will never be */
    struct pmix_variables variables;
    enum presence { AWAITED, CAME, GONE } * rank; /* of this host */
    struct surrogates surrogates;
    uint8_t *handshake; /* of the first client, for those that ended before they had said theirs; or NULL */
    size_t handshake_len, rank_at;
    bool known_version; /* of the library: what its clients send can be followed */
    bool refused_tool;
    int shared_fd; /* holds the directory in shared memory; -1: nobody has knocked yet */
};

/* ---- ranks that end without a word --------------------------------------------------------------------- */

static const Hvd__HostRanks *ranks_here(const struct pmix *p)
{
    return p->r->spawn->host[p->r->spawn->host_index];
}

/* With the handshake that a rank of this host has said, in another's name. */
static void add_surrogate(struct pmix *p, uint32_t i)
{
    uint32_t rank = htonl(host_rank(ranks_here(p), i));
    if (p->rank[i] != AWAITED || !p->r->end[host_rank(ranks_here(p), i)] || !p->handshake || !p->proxies.port)
        return;
    p->rank[i] = GONE;
    memcpy(p->handshake + p->rank_at, &rank, sizeof rank);
    surrogates_add(&p->surrogates, p->proxies.port, p->handshake, p->handshake_len);
}

static void add_surrogates(struct pmix *p)
{
    for (uint32_t i = 0; i < ranks_here(p)->ranks; i++)
        add_surrogate(p, i);
}

static void note_greeting(struct pmix *p, const uint8_t *bytes, const struct pmix_handshake *g)
{
    if (p->handshake)
        return;
    p->handshake = malloc(g->len);
    if (!p->handshake)
        return;
    memcpy(p->handshake, bytes, g->len);
    p->handshake_len = g->len;
    p->rank_at = g->rank_at;
    add_surrogates(p);
}

/* ---- the server ---------------------------------------------------------------------------------------- */

static void fail_start(struct pmix *p, const struct err *why)
{
    char text[ERR_TEXT_MAX + 64];
    if (p->failure.code)
        return;
    p->failure = *why;
    snprintf(text, sizeof text, "there is no PMIx on this host: %s", why->text);
    p->r->events->notice(p->r->ctx, LOG_ERROR, text);
    proxies_close(&p->proxies);
}

static void on_started(void *ctx, const struct err *why, uint16_t port, char *const *environment,
                       size_t count)
{
    struct pmix *p = ctx;
    if (why) {
        fail_start(p, why);
        return;
    }
    const char *version = pmix_variables_find(environment, count, "PMIX_VERSION");
    p->known_version = version && (strncmp(version, "4.", 2) == 0 || strncmp(version, "5.", 2) == 0);
    if (p->variables.list)
        pmix_variables_compare(&p->variables, environment, count);
    else if (pmix_variables_adopt(&p->variables, environment, count, &p->failure) < 0)
        return;
    proxies_serve(&p->proxies, port);
    add_surrogates(p);
}

/* Its clients see the end of their connections. */
static void on_failed(void *ctx, const char *text)
{
    struct pmix *p = ctx;
    char whole[ERR_TEXT_MAX], last[64] = "";
    if (p->failure.code) /* it had not started, and that is known */
        return;
    if (p->proxies.spoke)
        snprintf(last, sizeof last, "; rank %u had sent to it last", p->proxies.last);
    snprintf(whole, sizeof whole, "%s%s", text, last);
    err_set(&p->failure, ERR_CLOSED, "%s", whole);
    proxies_close(&p->proxies);
    p->r->events->failed(p->r->ctx, whole);
}

static const struct pmix_host_events host_events = {on_started, on_failed};

/* `now`: the workers' environment waits for it. */
static int start_server(struct pmix *p, bool now, struct err *e)
{
    p->started = true;
    if (pmix_host_start(p->server, p->r, now, &host_events, p, e) < 0)
        return -1;
    if (!now)
        return 0;
    tree_expect(p->r->tree); /* links are made while the library and the workers start */
    return pmix_host_await(p->server, e);
}

/* Somebody is there who needs it. */
static void start_once(struct pmix *p)
{
    struct err e = ERR_INIT, none = ERR_INIT;
    if (p->shared_fd < 0 && !p->failure.code)
        p->shared_fd = job_dir_make_shared(p->r->directory, &none);
    if (none.code)
        log_warning("%s", none.text);
    if (!p->started && !p->failure.code && start_server(p, false, &e) < 0)
        fail_start(p, &e);
}

static void on_client(void *ctx, int fd)
{
    struct pmix *p = ctx;
    proxies_add(&p->proxies, fd);
    start_once(p);
}

/* Its own messages say only that it found no server. */
static void refuse_tool(struct pmix *p)
{
    if (!p->refused_tool)
        p->r->events->notice(p->r->ctx, LOG_WARNING,
                             "a tool of PMIx was refused: only the ranks of the job are served");
    p->refused_tool = true;
}

static bool follow_client(void *ctx, struct proxy_client *who, const uint8_t *bytes, size_t len)
{
    struct pmix *p = ctx;
    char text[160];
    const char *wrong = p->known_version ? pmix_stream_follow(&who->stream, bytes, len) : NULL;
    if (wrong) {
        snprintf(text, sizeof text, "the connection of rank %u to the PMIx server was closed: it sent %s",
                 who->rank, wrong);
        p->r->events->notice(p->r->ctx, LOG_WARNING, text);
    }
    return !wrong;
}

static enum handshake_verdict check_greeting(void *ctx, const uint8_t *bytes, size_t len,
                                             struct proxy_client *who)
{
    struct pmix *p = ctx;
    struct pmix_handshake g;
    uint32_t local;
    enum handshake_verdict answer = pmix_handshake_read(bytes, len, p->r->spawn->namespace_, &g);
    if (answer == HANDSHAKE_BAD && g.tool)
        refuse_tool(p);
    if (answer != HANDSHAKE_GOOD)
        return answer;
    local = host_local_rank(ranks_here(p), g.rank);
    if (local == UINT32_MAX || p->rank[local] == GONE)
        return HANDSHAKE_BAD;
    p->rank[local] = CAME;
    who->rank = g.rank;
    who->handshake = g.len;
    note_greeting(p, bytes, &g);
    return HANDSHAKE_GOOD;
}

/* ---- other hosts --------------------------------------------------------------------------------------- */

static void on_request(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    struct pmix *p = ctx;
    start_once(p);
    if (p->failure.code)
        tree_answer(p->r->tree, TREE_PMIX, from, ticket, &p->failure, NULL, 0);
    else
        pmix_host_request(p->server, from, ticket, data, len);
}

static void on_broadcast(void *ctx, uint32_t from, const uint8_t *data, size_t len)
{
    struct pmix *p = ctx;
    pmix_host_broadcast(p->server, from, data, len);
}

static const struct tree_handler handler = {on_request, on_broadcast};

/* ---- before the workers -------------------------------------------------------------------------------- */

/* Because it is wanted, or because the command looks as if it will be needed: the workers are then told of
 * the library's shared memory, and need not ask the server for each key. Only who wanted it is refused
 * without it. */
static int start_before_workers(struct pmix *p, bool wanted, struct err *e)
{
    if (!wanted && !rendezvous_detects(p->r, detect_pmix))
        return 0;
    if (start_server(p, true, e) < 0) {
        pmix_host_end(p->server);
        if (!wanted)
            fail_start(p, e);
    } else if (p->failure.code) {
        *e = p->failure;
    }
    if (wanted)
        return e->code ? -1 : 0;
    err_clear(e);
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static int prepare_server(struct pmix *p, struct err *e)
{
    char path[PATH_MAX];
    struct rendezvous *r = p->r;
    bool wanted = r->spawn->contracts & CONTRACT_PMIX_NOW;
    if (module_path(PMIX_PROGRAM, path, sizeof path, e) < 0) {
        if (wanted)
            return err_wrap(e, "--rendezvous pmix, but this installation was built without PMIx");
        err_clear(e);
        log_info("no PMIx for the workers: this installation was built without it");
        return 0;
    }
    if (!r->spawn->namespace_[0])
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has no name space for PMIx");
    p->rank = calloc(ranks_here(p)->ranks, sizeof *p->rank);
    if (!p->rank)
        return err_set(e, ERR_MEMORY, "no memory for PMIx");
    pmix_server_directory(r, path, sizeof path);
    if (mkdir(path, 0700) < 0)
        return err_set(e, ERR_SYSTEM, "cannot make directory %s", path);
    if (lazy_listener_open(&p->listener, r->loop, on_client, p, e) < 0)
        return -1;
    p->variables.port = p->listener.port;
    tree_serve(r->tree, TREE_PMIX, &handler, p);
    if (start_before_workers(p, wanted, e) < 0)
        return -1;
    if (pmix_variables_predict(&p->variables, e) < 0)
        return -1;
    r->values.pmix = p->variables.list;
    return 0;
}

static void pmix_close(void *state)
{
    struct pmix *p = state;
    p->r->values.pmix = NULL;
    tree_serve(p->r->tree, TREE_PMIX, NULL, NULL);
    lazy_listener_close(&p->listener);
    proxies_close(&p->proxies);
    surrogates_close(&p->surrogates);
    pmix_host_end(p->server);
    if (p->shared_fd >= 0)
        close(p->shared_fd);
    p->shared_fd = -1;
    free(p->rank);
    free(p->handshake);
    p->rank = NULL;
    p->handshake = NULL;
    pmix_variables_free(&p->variables);
}

static void *pmix_open(struct rendezvous *r, struct err *e)
{
    static struct pmix pmix; /* one a process; its handles outlive the close */
    struct pmix *p = &pmix;
    *p = (struct pmix){
        .r = r,
        .server = r->pmix,
        .variables = {.r = r},
        .shared_fd = -1,
        .surrogates = {.loop = r->loop},
        .proxies = {.loop = r->loop, .check = check_greeting, .follow = follow_client, .ctx = p}};
    if (prepare_server(p, e) < 0) {
        pmix_close(p);
        return NULL;
    }
    return p;
}

static void pmix_rank_ended(void *state, uint32_t rank)
{
    struct pmix *p = state;
    uint32_t local = host_local_rank(ranks_here(p), rank);
    pmix_host_rank_ended(p->server, rank, p->r->end[rank]);
    if (p->rank && local != UINT32_MAX)
        add_surrogate(p, local);
}

const struct rendezvous_method rendezvous_pmix = {CONTRACT_PMIX, pmix_open, pmix_rank_ended, pmix_close};
