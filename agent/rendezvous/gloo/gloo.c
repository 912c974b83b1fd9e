/* The method for stock Horovod's Gloo controller: an HTTP key-value store on loopback, one on each host. All
 * stores together look like the one server that the workers expect.
 *
 *   PUT     is kept here and told to all other hosts, so each value crosses to a host once. A value that only
 *           ranks of this host read (local_<host>) stays here.
 *   GET     is answered from here. The value `<r>` of a rank of a mesh scope is held for HOLD_MS before the
 *           answer is 404: a client that asks again every 10 ms gets the value when it comes. No rank waits
 *           for another rank before it has put its own value, so two held requests never wait for each other.
 *           `rank_<r>` is asked for once, before that, and may be missing: a rank that waited for it would
 *           keep back its own value.
 *   DELETE  is told to all hosts as well; each host counts the ranks that have finished.
 *
 * Messages of one host arrive in their order, so a rank's end never overtakes its values. A value that a host
 * cannot keep (its limit is reached) would be awaited without end: that is reported as an error. The module
 * with the HTTP server is opened at the first connection; values of other hosts are kept before that as
 * well. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/rendezvous/gloo/gloo_path.h"
#include "agent/rendezvous/lazy_listener.h"
#include "agent/rendezvous/gloo/gloo_http.h"
#include "agent/rendezvous/gloo/gloo_store.h"
#include "agent/rendezvous/rendezvous.h"
#include "common/base/log.h"
#include "common/process/module.h"

#define HOLD_MS         1000
#define CONNECTIONS_MAX 16384
#define KEYS            100000
#define VALUE_MAX       (64u << 20)
#define BYTES           ((size_t)256 << 20) /* and what the meshes of this job take */
#define PAIR_BYTES      160                 /* an address of a rank for another one, and more than that */

struct gloo {
    struct rendezvous *r;
    struct lazy_listener listener;
    struct gloo_store *store;
    struct gloo_http_config config;
    const struct gloo_http_ops *ops;
    struct gloo_http *http; /* from the first knock on */
    struct err broken;      /* it could not be made */
    unsigned long requests;
    bool full; /* and said so */
};

/* ---- scopes -------------------------------------------------------------------------------------------- */

/* local_<our name>, also of a process set: nobody elsewhere asks for it. */
static bool is_ours_alone(const struct gloo *g, const struct gloo_path *p)
{
    static const char before[] = "local_", set[] = "_process_set_hash_";
    size_t a = sizeof before - 1, n = strlen(g->r->host);
    if (p->scope_len < a + n || memcmp(p->scope, before, a) != 0 || memcmp(p->scope + a, g->r->host, n) != 0)
        return false;
    size_t rest = p->scope_len - a - n;
    return rest == 0 || (rest >= sizeof set - 1 && memcmp(p->scope + a + n, set, sizeof set - 1) == 0);
}

/* How many ranks meet in a scope of the whole job; 0 for one of a process set. */
static uint32_t count_members(void *ctx, const struct gloo_path *p)
{
    const struct gloo *g = ctx;
    const Hvd__Spawn *spawn = g->r->spawn;
    char text[16];
    uint32_t n = 0;
    if (p->scope_len == strlen("global"))
        return spawn->size;
    if (is_ours_alone(g, p))
        return p->scope_len == strlen("local_") + strlen(g->r->host) ? (uint32_t)spawn->n_worker : 0;
    size_t digits = p->scope_len - strlen("cross_");
    if (p->scope[0] != 'c' || digits >= sizeof text)
        return 0;
    memcpy(text, p->scope + strlen("cross_"), digits);
    text[digits] = '\0';
    char *end;
    unsigned long local_rank = strtoul(text, &end, 10);
    for (size_t i = 0; !*end && i < spawn->n_host; i++)
        n += spawn->host[i]->ranks > local_rank;
    return n;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static void tell_others(struct gloo *g, enum gloo_word word, const struct gloo_path *p,
                        const struct gloo_value *value)
{
    size_t len;
    if (g->r->spawn->n_host < 2 || is_ours_alone(g, p))
        return;
    uint8_t *bytes = gloo_message_write(word, p, value, &len);
    if (bytes)
        tree_broadcast(g->r->tree, TREE_GLOO, bytes, len);
    else
        g->r->events->notice(g->r->ctx, LOG_ERROR, "no memory to tell other hosts of a Gloo value");
    free(bytes);
}

static unsigned put_value(struct gloo *g, const struct gloo_path *p, struct gloo_value *value)
{
    struct err e = ERR_INIT;
    if (gloo_store_put(g->store, p, gloo_value_share(value), &e) < 0) {
        log_debug("a Gloo value is refused: %s", e.text);
        return 507;
    }
    tell_others(g, GLOO_WORD_PUT, p, value);
    if (g->http)
        g->ops->wake(g->http, p);
    return 200;
}

static unsigned serve_request(void *ctx, const struct gloo_request *q, struct gloo_value **answer)
{
    struct gloo *g = ctx;
    uint32_t rank;
    struct gloo_value *value;
    g->requests++;
    switch (q->verb) {
    case GLOO_PUT:
        return put_value(g, &q->path, q->body);
    case GLOO_DELETE:
        if (!gloo_store_delete(g->store, &q->path))
            return 404;
        tell_others(g, GLOO_WORD_DELETE, &q->path, NULL);
        return 200;
    default:
        value = gloo_store_get(g->store, &q->path);
        if (value)
            *answer = gloo_value_share(value);
        else if (q->path.key[0] != 'r' && gloo_path_rank(&q->path, g->r->spawn->size, &rank))
            return 0;
        return value ? 200 : 404;
    }
}

/* Another host's word. */
static void on_broadcast(void *ctx, uint32_t from, const uint8_t *data, size_t len)
{
    struct gloo *g = ctx;
    struct err e = ERR_INIT;
    struct gloo_path path;
    struct gloo_value *value;
    enum gloo_word word;
    if (gloo_message_read(data, len, &word, &path, &value, &e) < 0) {
        log_warning("host %s: %s", g->r->spawn->host[from]->name, e.text);
        return;
    }
    if (word == GLOO_WORD_DELETE) {
        (void)gloo_store_delete(g->store, &path);
        return;
    }
    if (gloo_store_put(g->store, &path, value, &e) == 0) {
        if (g->http)
            g->ops->wake(g->http, &path);
        return;
    }
    if (!g->full) {
        err_wrap(&e, "Gloo values of host %s cannot be kept on %s", g->r->spawn->host[from]->name,
                 g->r->host);
        g->r->events->notice(g->r->ctx, LOG_ERROR, e.text);
    }
    g->full = true;
}

static const struct tree_handler tree_handler = {.broadcast = on_broadcast};

/* ---- the server ---------------------------------------------------------------------------------------- */

static void on_client(void *ctx, int fd)
{
    struct gloo *g = ctx;
    if (!g->http && !g->broken.code) {
        g->ops = module_symbol(GLOO_MODULE, GLOO_SYMBOL, &g->broken);
        g->http = g->ops ? g->ops->start(g->r->loop, &g->config, serve_request, g, &g->broken) : NULL;
        if (!g->http) {
            err_wrap(&g->broken, "no Gloo rendezvous on %s", g->r->host);
            g->r->events->notice(g->r->ctx, LOG_ERROR, g->broken.text);
        }
    }
    if (g->http)
        g->ops->add(g->http, fd);
    else
        close(fd);
}

static void set_limits(struct gloo *g, struct gloo_limits *limits)
{
    const Hvd__Spawn *spawn = g->r->spawn;
    size_t mesh = (size_t)spawn->size * spawn->size * PAIR_BYTES;
    *limits = (struct gloo_limits){.keys = KEYS + (size_t)spawn->size * 8,
                                   .bytes = BYTES + 3 * mesh,
                                   .value = VALUE_MAX,
                                   .ranks = spawn->size,
                                   .members = count_members,
                                   .ctx = g};
    size_t connections = 256 + 4 * spawn->n_worker;
    g->config = (struct gloo_http_config){
        .connections = (unsigned)(connections < CONNECTIONS_MAX ? connections : CONNECTIONS_MAX),
        .body = limits->value,
        .bodies = limits->bytes,
        .hold_ms = HOLD_MS};
}

static void gloo_close(void *state)
{
    struct gloo *g = state;
    struct tree_count sent = tree_sent(g->r->tree);
    struct rusage used = {0};
    if (g->http)
        g->ops->stop(g->http);
    lazy_listener_close(&g->listener);
    tree_serve(g->r->tree, TREE_GLOO, NULL, NULL);
    if (g->requests && getrusage(RUSAGE_SELF, &used) == 0)
        log_debug("Gloo rendezvous: %lu requests; this session: %llu messages and %llu bytes sent to other "
                  "hosts, %ld ms of processor time",
                  g->requests, (unsigned long long)sent.messages, (unsigned long long)sent.bytes,
                  (long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                      (long)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
    gloo_store_free(g->store);
    free(g);
}

static void *gloo_open(struct rendezvous *r, struct err *e)
{
    struct gloo *g = calloc(1, sizeof *g);
    struct gloo_limits limits;
    char path[4096];
    if (!g) {
        err_set(e, ERR_MEMORY, "no memory for the Gloo rendezvous");
        return NULL;
    }
    g->r = r;
    set_limits(g, &limits);
    tree_serve(r->tree, TREE_GLOO, &tree_handler, g);
    g->store = gloo_store_new(&limits);
    if (!g->store) {
        err_set(e, ERR_MEMORY, "no memory for the Gloo rendezvous");
    } else if (module_path(GLOO_MODULE_FILE, path, sizeof path, e) < 0) {
        if (r->spawn->contracts == CONTRACTS_AUTO) { /* nobody has asked for it by name */
            err_clear(e);
            return g;
        }
        err_wrap(e, "--rendezvous gloo");
        err_hint(e, "build hvdrun where libmicrohttpd-dev is installed");
    } else if (lazy_listener_open(&g->listener, r->loop, on_client, g, e) == 0) {
        r->values.gloo_port = g->listener.port;
        return g;
    }
    gloo_close(g);
    return NULL;
}

static void gloo_rank_ended(void *state, uint32_t rank)
{
    struct gloo *g = state;
    (void)rank;
    if (g->http)
        g->ops->wake(g->http, NULL);
}

const struct rendezvous_method rendezvous_gloo = {CONTRACT_GLOO, gloo_open, gloo_rank_ended, gloo_close};
