/* Start: a thread of its own initializes the library (some 20 ms), registers the job and asks what its
 * clients need; then it posts that to the loop and ends. Stop: a thread ends the library, which waits for its
 * own threads; after STOP_MS nobody waits for that any more, for the process ends and its directory is
 * removed. */
#include "agent/rendezvous/pmix/pmix_server.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/module.h"

#define STOP_MS   1000
#define INFOS_MAX 16

MODULE_DEFINE_VERSION;

extern const struct pmix_module pmix_module;
struct pmix_server pmix_server;

struct early {
    struct early *next;
    struct pmix_asked asked;
    size_t len;
    uint8_t data[];
};

struct start_report {
    struct bridge_item item;
    struct err why;
    uint16_t port;
    char **environment;
};

/* ---- clocks -------------------------------------------------------------------------------------------- */

struct pmix_clock {
    uv_timer_t timer;
    void (*run)(void *ctx);
    void *ctx;
};

static void on_clock_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_time(uv_timer_t *timer)
{
    struct pmix_clock *c = timer->data;
    c->run(c->ctx);
}

struct pmix_clock *pmix_clock_start(uint64_t ms, void (*run)(void *ctx), void *ctx)
{
    struct pmix_clock *c = ms ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return NULL;
    c->run = run;
    c->ctx = ctx;
    uv_timer_init(pmix_server.r->loop, &c->timer);
    c->timer.data = c;
    uv_timer_start(&c->timer, on_time, ms, 0);
    return c;
}

void pmix_clock_stop(struct pmix_clock *c)
{
    if (c && !uv_is_closing((uv_handle_t *)&c->timer))
        uv_close((uv_handle_t *)&c->timer, on_clock_closed);
}

/* ---- the job, as the library wants to hear of it --------------------------------------------------------
 */

struct infos {
    pmix_info_t item[INFOS_MAX];
    size_t count;
};

static void put(struct infos *l, const char *key, const void *data, pmix_data_type_t type)
{
    if (l->count < INFOS_MAX)
        PMIX_INFO_LOAD(&l->item[l->count++], key, data, type);
}

static void clear(struct infos *l)
{
    for (size_t i = 0; i < l->count; i++)
        PMIX_INFO_DESTRUCT(&l->item[i]);
    l->count = 0;
}

/* "node1,node2" and "0,1;2,3", as the library's regular expressions. */
static int make_maps(const struct rendezvous *r, char **nodes, char **ranks)
{
    size_t size = 1, used = 0;
    char name[256];
    for (size_t i = 0; i < r->spawn->n_host; i++)
        size += sizeof name + (size_t)r->spawn->host[i]->ranks * 11 + 2;
    char *text = calloc(1, size);
    if (!text)
        return -1;
    for (uint32_t i = 0; i < r->spawn->n_host; i++) {
        pmix_node_name(r, i, name, sizeof name);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", name);
    }
    int rc = PMIx_generate_regex(text, nodes) == PMIX_SUCCESS ? 0 : -1;
    used = 0;
    for (uint32_t i = 0; i < r->spawn->n_host; i++) {
        const Hvd__HostRanks *h = r->spawn->host[i];
        for (uint32_t k = 0; k < h->ranks; k++)
            used += (size_t)snprintf(text + used, size - used, "%s%u",
                                     k   ? ","
                                     : i ? ";"
                                         : "",
                                     h->first_rank + k);
    }
    if (rc == 0 && PMIx_generate_ppn(text, ranks) != PMIX_SUCCESS)
        rc = -1;
    free(text);
    return rc;
}

static pmix_status_t register_job(const struct rendezvous *r)
{
    struct infos l = {.count = 0};
    char *nodes = NULL, *ranks = NULL, directory[PATH_MAX];
    uint32_t size = r->spawn->size, one = 1, local = (uint32_t)r->spawn->n_worker;
    if (make_maps(r, &nodes, &ranks) < 0)
        return PMIX_ERR_NOMEM;
    pmix_server_directory(r, directory, sizeof directory);
    put(&l, PMIX_NODE_MAP, nodes, PMIX_STRING);
    put(&l, PMIX_PROC_MAP, ranks, PMIX_STRING);
    put(&l, PMIX_JOB_SIZE, &size, PMIX_UINT32);
    put(&l, PMIX_UNIV_SIZE, &size, PMIX_UINT32);
    put(&l, PMIX_MAX_PROCS, &size, PMIX_UINT32);
    put(&l, PMIX_JOB_NUM_APPS, &one, PMIX_UINT32);
    put(&l, PMIX_LOCAL_SIZE, &local, PMIX_UINT32);
    put(&l, PMIX_JOBID, pmix_server.space, PMIX_STRING);
    put(&l, PMIX_TMPDIR, directory, PMIX_STRING);
    put(&l, PMIX_NSDIR, directory, PMIX_STRING);
    pmix_status_t rc =
        PMIx_server_register_nspace(pmix_server.space, (int)r->spawn->n_worker, l.item, l.count, NULL, NULL);
    clear(&l);
    free(nodes);
    free(ranks);
    return rc;
}

static pmix_status_t register_clients(const struct rendezvous *r)
{
    for (size_t i = 0; i < r->spawn->n_worker; i++) {
        pmix_proc_t proc;
        PMIX_LOAD_PROCID(&proc, pmix_server.space, r->spawn->worker[i]->rank);
        pmix_status_t rc = PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, NULL, NULL);
        if (rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED)
            return rc;
    }
    return PMIX_SUCCESS;
}

static pmix_status_t init_library(const struct rendezvous *r)
{
    struct infos l = {.count = 0};
    char name[256], directory[PATH_MAX];
    pmix_rank_t rank = r->spawn->host_index;
    bool share = true;
    pmix_server_name(r, name, sizeof name);
    put(&l, PMIX_SERVER_NSPACE, name, PMIX_STRING);
    put(&l, PMIX_SERVER_RANK, &rank, PMIX_PROC_RANK);
    pmix_server_directory(r, directory, sizeof directory);
    put(&l, PMIX_SERVER_TMPDIR, directory, PMIX_STRING);
    put(&l, PMIX_SYSTEM_TMPDIR, directory, PMIX_STRING);
    pmix_node_name(r, r->spawn->host_index, name, sizeof name);
    put(&l, PMIX_HOSTNAME, name, PMIX_STRING);
    put(&l, PMIX_SERVER_SHARE_TOPOLOGY, &share, PMIX_BOOL);
    size_t ours = l.count;
    if (pmix_server.topology.topology) { /* stays ours, so it is not to be cleared */
        PMIX_LOAD_KEY(l.item[ours].key, PMIX_TOPOLOGY2);
        l.item[ours].value.type = PMIX_TOPO;
        l.item[ours].value.data.topo = &pmix_server.topology;
        l.count++;
    }
    pmix_status_t rc = PMIx_server_init(&pmix_upcalls, l.item, l.count);
    l.count = ours;
    clear(&l);
    return rc;
}

/* ---- start --------------------------------------------------------------------------------------------- */

static void on_report(struct bridge_item *item)
{
    struct start_report *report = (struct start_report *)item;
    struct pmix_server *s = &pmix_server;
    s->ready = !report->why.code;
    if (!s->stopping)
        s->started(s->ctx, report->why.code ? &report->why : NULL, report->port, report->environment);
    while (s->early) {
        struct early *e = s->early;
        s->early = e->next;
        if (s->ready && !s->stopping)
            pmix_module.handler.request(s, e->asked.host, e->asked.ticket, e->data, e->len);
        else
            pmix_answer(&e->asked, &report->why, NULL, 0);
        free(e);
    }
    PMIX_ARGV_FREE(report->environment);
    free(report);
}

static uint16_t port_of(char *const *environment)
{
    for (size_t i = 0; environment && environment[i]; i++) {
        const char *port = strrchr(environment[i], ':');
        if (strncmp(environment[i], "PMIX_SERVER_URI", strlen("PMIX_SERVER_URI")) == 0 && port)
            return (uint16_t)strtoul(port + 1, NULL, 10);
    }
    return 0;
}

static void run_start(void *arg)
{
    struct start_report *report = arg;
    struct rendezvous *r = pmix_server.r;
    pmix_proc_t proc;
    const char *what = "PMIx_server_init";
    pmix_topology_find(&pmix_server.topology);
    pmix_status_t rc = init_library(r);
    if (rc == PMIX_SUCCESS) {
        what = "registering the job with PMIx";
        rc = register_job(r);
    }
    if (rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED)
        rc = register_clients(r);
    PMIX_LOAD_PROCID(&proc, pmix_server.space, r->spawn->worker[0]->rank);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_server_setup_fork(&proc, &report->environment);
    report->port = port_of(report->environment);
    if (rc != PMIX_SUCCESS)
        err_set(&report->why, ERR_SYSTEM, "%s failed: %s", what, PMIx_Error_string(rc));
    else if (!report->port)
        err_set(&report->why, ERR_SYSTEM, "the PMIx library listens at no TCP port");
    bridge_post(&pmix_server.bridge, &report->item);
}

/* The library takes settings from the environment, and this process may be a client of another server's. */
static void forget_other_servers(void)
{
    extern char **environ;
    for (size_t i = 0; environ && environ[i];) {
        char name[128];
        size_t len = strcspn(environ[i], "=");
        if (strncmp(environ[i], "PMIX_", 5) != 0 || strncmp(environ[i], "PMIX_MCA_", 9) == 0 ||
            len >= sizeof name) {
            i++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)len, environ[i]);
        if (unsetenv(name) < 0)
            i++;
    }
}

/* The library's threads must not take the signals that are the session's. */
static int start_thread(struct pmix_server *s, void (*run)(void *), void *arg, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = uv_thread_create(&s->thread, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot start a thread: %s", uv_strerror(rc));
    s->threaded = true;
    return 0;
}

static void *start(struct rendezvous *r, bool now, pmix_started *started, void *ctx, struct err *e)
{
    struct pmix_server *s = &pmix_server;
    struct start_report *report = calloc(1, sizeof *report);
    char directory[PATH_MAX];
    *s = (struct pmix_server){.r = r, .started = started, .ctx = ctx};
    PMIX_LOAD_NSPACE(s->space, r->spawn->namespace_);
    if (!report) {
        err_set(e, ERR_MEMORY, "no memory for a PMIx server");
        return NULL;
    }
    report->item.run = on_report;
    forget_other_servers();
    /* The library's shared-memory stores are looked for by clients before they connect. */
    if (!now)
        setenv("PMIX_MCA_gds", "hash", 1);
    pmix_server_directory(r, directory, sizeof directory);
    pmix_topology_without_plugins(directory);
    if (bridge_open(&s->bridge, r->loop, e) < 0 || start_thread(s, run_start, report, e) < 0) {
        bridge_close(&s->bridge);
        free(report);
        return NULL;
    }
    if (now) {
        exchange_expect(r->exchange); /* links are made while the library and the workers start */
        uv_thread_join(&s->thread);
        s->threaded = false;
        bridge_drain(&s->bridge);
    }
    return s;
}

/* ---- while it runs ------------------------------------------------------------------------------------- */

static void rank_ended(void *server, uint32_t rank)
{
    struct pmix_server *s = server;
    if (!s->ready)
        return;
    pmix_collective_rank_ended(rank);
    pmix_modex_rank_ended(rank);
    pmix_store_rank_ended(rank);
    pmix_events_rank_ended(rank);
}

static void keep_for_later(struct pmix_asked asked, const uint8_t *data, size_t len)
{
    struct err none = ERR_INIT;
    struct early *e = malloc(sizeof *e + len);
    if (!e) {
        err_set(&none, ERR_MEMORY, "no memory for a request");
        pmix_answer(&asked, &none, NULL, 0);
        return;
    }
    *e = (struct early){pmix_server.early, asked, len};
    memcpy(e->data, data, len);
    pmix_server.early = e;
}

void pmix_asked(struct pmix_asked asked, const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    switch (len > 0 && !pmix_server.stopping ? data[0] : UINT8_MAX) {
    case PMIX_MESSAGE_MODEX:
        pmix_modex_asked(asked, data + 1, len - 1);
        break;
    case PMIX_MESSAGE_JOINED:
        pmix_collective_asked(asked, data + 1, len - 1);
        break;
    case PMIX_MESSAGE_PUBLISH:
    case PMIX_MESSAGE_LOOKUP:
    case PMIX_MESSAGE_UNPUBLISH:
        pmix_store_asked(asked, data[0], data + 1, len - 1);
        break;
    default:
        err_set(&e, ERR_PROTOCOL, "an unknown request");
        pmix_answer(&asked, &e, NULL, 0);
    }
}

static void on_request(void *server, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    struct pmix_server *s = server;
    struct pmix_asked asked = {from, ticket};
    if (s->ready || s->stopping)
        pmix_asked(asked, data, len);
    else
        keep_for_later(asked, data, len);
}

/* Nobody here has asked for events before the server is ready. */
static void on_broadcast(void *server, uint32_t from, const uint8_t *data, size_t len)
{
    struct pmix_server *s = server;
    (void)from;
    if (len == 0 || s->stopping)
        return;
    if (data[0] == PMIX_MESSAGE_SIGNAL)
        pmix_signal_told(data + 1, len - 1);
    else if (data[0] == PMIX_MESSAGE_EVENT && s->ready)
        pmix_event_told(data + 1, len - 1);
}

/* ---- stop ---------------------------------------------------------------------------------------------- */

static void close_handles(struct pmix_server *s)
{
    if (uv_is_closing((uv_handle_t *)&s->patience))
        return;
    bridge_close(&s->bridge);
    uv_close((uv_handle_t *)&s->patience, NULL);
}

static void on_stopped(struct bridge_item *item)
{
    (void)item;
    uv_thread_join(&pmix_server.thread);
    pmix_topology_free(&pmix_server.topology);
    close_handles(&pmix_server);
}

static void run_stop(void *arg)
{
    static struct bridge_item item = {NULL, on_stopped};
    (void)arg;
    (void)PMIx_server_finalize();
    bridge_post(&pmix_server.bridge, &item);
}

static void on_stop_late(uv_timer_t *timer)
{
    log_info("the PMIx library has not ended within %d ms", STOP_MS);
    close_handles(timer->data);
}

static void stop(void *server)
{
    struct pmix_server *s = server;
    struct err e = ERR_INIT;
    s->stopping = true;
    uv_timer_init(s->r->loop, &s->patience);
    s->patience.data = s;
    if (s->threaded)
        uv_thread_join(&s->thread); /* of the start: the library's initialization is short */
    s->threaded = false;
    bridge_drain(&s->bridge);
    if (!s->ready || start_thread(s, run_stop, NULL, &e) < 0)
        close_handles(s);
    else
        uv_timer_start(&s->patience, on_stop_late, STOP_MS, 0);
}

const struct pmix_module pmix_module = {start, rank_ended, {on_request, on_broadcast}, stop};
