#include "agent/rendezvous/pmix_client/pmix_host.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/rendezvous/pmix_client/pmix_variables.h"
#include "common/base/clock.h"
#include "common/protocol/frame.h"
#include "common/base/log.h"

#define LAST_WORDS_MS 1000  /* from the end of its socket to the end of its process */
#define NOT_LOADED    127   /* the loader's exit status */
#define START_MS      10000 /* from its start to its first word; the library looks at the machine meanwhile */

static void release_socket(struct pmix_host *h);

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
}

/* ---- its operations ------------------------------------------------------------------------------------ */

struct pmix_operation {
    struct pmix_operation *next;
    struct pmix_host *host;
    uint64_t ticket, handle;
};

static void forget_operation(struct pmix_operation *o)
{
    struct pmix_operation **at = &o->host->first;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    free(o);
}

static void send_result(struct pmix_host *h, uint64_t ticket, const struct err *why, const uint8_t *data,
                        size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__RESULT;
    m.ticket = ticket;
    if (why) {
        m.code = why->code;
        m.text = (char *)(uintptr_t)why->text;
    } else {
        m.data = bytes_of(data, len);
    }
    pmix_relay_send(&h->relay, &m);
}

static void on_done(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct pmix_operation *o = ctx;
    struct pmix_host *h = o->host;
    uint64_t ticket = o->ticket;
    forget_operation(o);
    send_result(h, ticket, why, data, len);
}

static void add_operation(struct pmix_host *h, const Hvd__Pmix *m)
{
    struct tree *x = h->r->tree;
    struct err e = ERR_INIT;
    struct pmix_operation *o = malloc(sizeof *o);
    if (!o) {
        err_set(&e, ERR_MEMORY, "no memory for an operation");
        send_result(h, m->ticket, &e, NULL, 0);
        return;
    }
    *o = (struct pmix_operation){h->first, h, m->ticket, 0};
    h->first = o;
    uint64_t handle = m->kind == HVD__PMIX__KIND__GATHER
                          ? tree_gather(x, TREE_PMIX, m->id.data, m->id.len, m->hosts, m->n_hosts,
                                        m->data.data, m->data.len, on_done, o)
                          : tree_request(x, TREE_PMIX, m->host, m->data.data, m->data.len, on_done, o);
    if (handle) /* else it has ended and is gone */
        o->handle = handle;
}

/* Its own list of them ends with ours. */
static void cancel_operation(struct pmix_host *h, const Hvd__Pmix *m)
{
    struct err why = ERR_INIT;
    struct pmix_operation *o = h->first;
    while (o && o->ticket != m->ticket)
        o = o->next;
    err_set(&why, m->code ? (enum err_code)m->code : ERR_CLOSED, "%s", m->text);
    if (o)
        tree_cancel(h->r->tree, o->handle, &why);
}

static void answer_request(struct pmix_host *h, const Hvd__Pmix *m)
{
    struct err why = ERR_INIT;
    if (m->code)
        err_set(&why, (enum err_code)m->code, "%s", m->text);
    tree_answer(h->r->tree, TREE_PMIX, m->host, m->ticket, m->code ? &why : NULL, m->data.data, m->data.len);
}

/* Hosts of the plan, ascending, this one among them: as tree.h wants them. */
static bool is_gather(const struct pmix_host *h, const Hvd__Pmix *m)
{
    bool here = false;
    for (size_t i = 0; i < m->n_hosts; i++) {
        here = here || m->hosts[i] == h->r->spawn->host_index;
        if (m->hosts[i] >= h->r->spawn->n_host || (i > 0 && m->hosts[i] <= m->hosts[i - 1]))
            return false;
    }
    return here && m->id.len <= TREE_ID_MAX;
}

static bool is_other_host(const struct pmix_host *h, uint32_t host)
{
    return host < h->r->spawn->n_host && host != h->r->spawn->host_index;
}

static bool begin_operation(struct pmix_host *h, const Hvd__Pmix *m)
{
    switch (m->kind) {
    case HVD__PMIX__KIND__GATHER:
        if (!is_gather(h, m))
            return false;
        add_operation(h, m);
        return true;
    case HVD__PMIX__KIND__ASK:
        if (!is_other_host(h, m->host))
            return false;
        add_operation(h, m);
        return true;
    case HVD__PMIX__KIND__ANSWER:
        if (!is_other_host(h, m->host))
            return false;
        answer_request(h, m);
        return true;
    case HVD__PMIX__KIND__CANCEL:
        cancel_operation(h, m);
        return true;
    case HVD__PMIX__KIND__FORGET:
        tree_forget(h->r->tree, TREE_PMIX, m->id.data, m->id.len);
        return true;
    case HVD__PMIX__KIND__TELL:
        tree_broadcast(h->r->tree, TREE_PMIX, m->data.data, m->data.len);
        return true;
    default:
        return false;
    }
}

#define KIND(name) HVD__PMIX__KIND__##name
#define STARTS     (1u << PMIX_HOST_STARTING)
#define SERVES     (1u << PMIX_HOST_READY)
#define ENDED      (1u << PMIX_HOST_ENDED)

static const struct legal_row rows[] = {
    {KIND(STARTED), STARTS, ENDED, true},        {KIND(NOTICE), STARTS | SERVES, ENDED, false},
    {KIND(PING), STARTS | SERVES, ENDED, false}, {KIND(ABORT), SERVES, ENDED, false},
    {KIND(SIGNAL), SERVES, ENDED, false},        {KIND(GATHER), SERVES, ENDED, false},
    {KIND(ASK), SERVES, ENDED, false},           {KIND(CANCEL), SERVES, ENDED, false},
    {KIND(FORGET), SERVES, ENDED, false},        {KIND(ANSWER), SERVES, ENDED, false},
    {KIND(TELL), SERVES, ENDED, false},          {KIND(SAID), SERVES, ENDED, false},
};
static const struct legal_table table = LEGAL_TABLE(rows, legal_pmix_name);

/* ---- its words ----------------------------------------------------------------------------------------- */

static void on_started(struct pmix_host *h, const Hvd__Pmix *m)
{
    struct err why = ERR_INIT;
    h->state = PMIX_HOST_READY;
    if (m->code)
        err_set(&why, (enum err_code)m->code, "%s", m->text);
    else if (m->number == 0 || m->number > UINT16_MAX)
        err_set(&why, ERR_PROTOCOL, "its server says that it listens at port %u", m->number);
    h->events->started(h->ctx, why.code ? &why : NULL, (uint16_t)m->number, m->environment, m->n_environment);
}

static void on_message(void *ctx, const Hvd__Pmix *m)
{
    struct pmix_host *h = ctx;
    const struct rendezvous_events *session = h->r->events;
    if (!legal_hears(&h->legal, &table, m->kind, h->state, "the PMIx server",
                     h->state == PMIX_HOST_STARTING ? "starting" : "serving"))
        return;
    switch (m->kind) {
    case HVD__PMIX__KIND__STARTED:
        on_started(h, m);
        break;
    case HVD__PMIX__KIND__NOTICE:
        session->notice(h->r->ctx, m->number, m->text);
        break;
    case HVD__PMIX__KIND__ABORT:
        session->abort(h->r->ctx, m->rank, m->number, m->text, m->time);
        break;
    case HVD__PMIX__KIND__SIGNAL:
        session->signal(h->r->ctx, m->rank, (int)m->number);
        break;
    case HVD__PMIX__KIND__SAID:
        session->said(h->r->ctx, m->rank, m->number == STREAM_STDOUT, (const char *)m->data.data,
                      m->data.len < RENDEZVOUS_SAID_MAX ? m->data.len : RENDEZVOUS_SAID_MAX);
        break;
    case HVD__PMIX__KIND__PING:
        child_moves(&h->child);
        break;
    default:
        if (!begin_operation(h, m))
            legal_refuse(&h->legal, "the PMIx server", legal_pmix_name(m->kind),
                         "it names hosts that are not there");
        break;
    }
}

static void on_end(void *ctx, const struct err *why)
{
    struct pmix_host *h = ctx;
    if (why)
        child_fail(&h->child, "broke the protocol: %s", why->text);
    else
        release_socket(h); /* its death is told when it is reaped */
}

static const struct pmix_relay_events relay_events = {on_message, on_end};

/* ---- ours ---------------------------------------------------------------------------------------------- */

void pmix_host_rank_ended(struct pmix_host *h, uint32_t rank, const char *how)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__RANK_ENDED;
    m.rank = rank;
    m.text = (char *)(uintptr_t)how;
    pmix_relay_send(&h->relay, &m);
}

void pmix_host_request(struct pmix_host *h, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    struct err e = ERR_INIT;
    if (!h->relay.open) {
        err_set(&e, ERR_CLOSED, "the PMIx server of host %s has ended", h->r->host);
        tree_answer(h->r->tree, TREE_PMIX, from, ticket, &e, NULL, 0);
        return;
    }
    m.kind = HVD__PMIX__KIND__REQUEST;
    m.host = from;
    m.ticket = ticket;
    m.data = bytes_of(data, len);
    pmix_relay_send(&h->relay, &m);
}

void pmix_host_broadcast(struct pmix_host *h, uint32_t from, const uint8_t *data, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__BROADCAST;
    m.host = from;
    m.data = bytes_of(data, len);
    pmix_relay_send(&h->relay, &m);
}

void pmix_host_drain(struct pmix_host *h)
{
    pmix_relay_drain(&h->relay);
}

/* ---- start --------------------------------------------------------------------------------------------- */

/* Makes a copy of Spawn one that names no variables. The result and spawn->program are to be freed; NULL: no
 * memory. */
static Hvd__Program *without_environment(Hvd__Spawn *spawn)
{
    Hvd__Program **list = calloc(spawn->n_program + 1, sizeof *list);
    Hvd__Program *item = calloc(spawn->n_program + 1, sizeof *item);
    for (size_t i = 0; list && item && i < spawn->n_program; i++) {
        item[i] = *spawn->program[i];
        item[i].n_env = 0;
        list[i] = &item[i];
    }
    spawn->program = list;
    spawn->n_env = 0;
    return list ? item : NULL;
}

static int send_config(struct pmix_host *h, bool before_workers, struct err *e)
{
    const struct rendezvous *r = h->r;
    Hvd__Pmix m = HVD__PMIX__INIT;
    Hvd__PmixConfig c = HVD__PMIX_CONFIG__INIT;
    Hvd__Spawn spawn = *r->spawn;
    Hvd__Program *program = without_environment(&spawn);
    Hvd__RankEnded *item = calloc(spawn.size, sizeof *item), **list = calloc(spawn.size, sizeof *list);
    c.spawn = &spawn;
    c.job = (char *)(uintptr_t)r->job;
    c.host = (char *)(uintptr_t)r->host;
    c.directory = (char *)(uintptr_t)r->directory;
    c.before_workers = before_workers;
    c.log_level = (uint32_t)log_level();
    c.ping_ms = h->r->silence_ms / 4;
    /* For OpenMPI 5 it would stand above the user's word. */
    c.crowded = r->values.crowded && !pmix_variables_given(r->spawn, "OMPI_MCA_mpi_yield_when_idle");
    c.n_cpus = r->values.bound ? spawn.n_worker : 0;
    c.cpus = r->values.bound;
    for (uint32_t i = 0; item && list && i < spawn.size; i++) {
        if (!r->end[i])
            continue;
        hvd__rank_ended__init(&item[c.n_ended]);
        item[c.n_ended].rank = i;
        item[c.n_ended].cause = r->end[i];
        list[c.n_ended] = &item[c.n_ended];
        c.n_ended++;
    }
    c.ended = list;
    m.kind = HVD__PMIX__KIND__CONFIG;
    m.config = &c;
    if (item && list && program)
        pmix_relay_send(&h->relay, &m);
    else
        err_set(e, ERR_MEMORY, "no memory for %u ranks", spawn.size);
    free(item);
    free(list);
    free(spawn.program);
    free(program);
    return e->code ? -1 : 0;
}

static void on_drain(void *ctx)
{
    pmix_host_drain(ctx);
}

static void on_let_go(void *ctx)
{
    release_socket(ctx);
}

static void on_failed(void *ctx, const char *text)
{
    struct pmix_host *h = ctx;
    h->events->failed(h->ctx, text);
}

static void on_notice(void *ctx, enum log_level level, const char *text)
{
    struct pmix_host *h = ctx;
    h->r->events->notice(h->r->ctx, level, text);
}

static const struct child_events child_events = {on_drain, on_let_go, on_failed, on_notice};

int pmix_host_start(struct pmix_host *h, struct rendezvous *r, bool before_workers,
                    const struct pmix_host_events *events, void *ctx, struct err *e)
{
    const struct child_program program = {.program = PMIX_PROGRAM,
                                          .cgroup_fd = r->cgroup_fd,
                                          .start_ms = START_MS,
                                          .silence_ms = r->silence_ms};
    *h = (struct pmix_host){.r = r, .events = events, .ctx = ctx};
    child_init(&h->child, r->loop, "the PMIx server", &child_events, h);
    int fd = child_start(&h->child, &program, e);
    if (fd < 0)
        return -1;
    h->state = PMIX_HOST_STARTING;
    if (pmix_relay_open(&h->relay, r->loop, fd, &relay_events, h, e) < 0 ||
        send_config(h, before_workers, e) < 0) {
        pmix_host_end(h);
        return -1;
    }
    return 0;
}

/* The server has closed its socket before it has started, so it ends now. Its end is told here, and not again
 * when it is reaped. */
static int explain_end(struct pmix_host *h, struct err *e)
{
    siginfo_t how = {0};
    int fd = h->child.pid > 0 ? (int)syscall(SYS_pidfd_open, h->child.pid, 0) : -1;
    struct pollfd ends = {.fd = fd, .events = POLLIN};
    h->child.failed = true;
    if (fd >= 0 && poll(&ends, 1, LAST_WORDS_MS) == 1)
        (void)waitid(P_PID, (id_t)h->child.pid, &how, WEXITED | WNOWAIT | WNOHANG);
    if (fd >= 0)
        close(fd);
    if (how.si_code == CLD_EXITED && how.si_status == NOT_LOADED) {
        err_set(e, ERR_UNSUPPORTED, "the PMIx server cannot start: the line before has the missing library");
        return err_hint(e, "install libpmix2 (Debian's name), or run without --rendezvous pmix"), -1;
    }
    if (how.si_code == CLD_EXITED)
        return err_set(e, ERR_CLOSED, "the PMIx server ended with exit status %d before it could start",
                       how.si_status);
    return err_set(e, ERR_CLOSED, "the PMIx server has ended before it could start");
}

int pmix_host_await(struct pmix_host *h, struct err *e)
{
    uint64_t until = clock_now() + START_MS * NSEC_PER_MSEC;
    while (h->state == PMIX_HOST_STARTING) {
        uint64_t now = clock_now();
        if (now >= until || pmix_relay_wait(&h->relay, (int)((until - now) / NSEC_PER_MSEC) + 1) < 0)
            return err_set(e, ERR_TIMEOUT, "its server has not started within %d s", START_MS / 1000);
    }
    return h->state == PMIX_HOST_READY ? 0 : explain_end(h, e);
}

/* ---- end ----------------------------------------------------------------------------------------------- */

/* Lets go of its socket, upon which it ends; kills it when it does not. */
static void release_socket(struct pmix_host *h)
{
    if (h->state == PMIX_HOST_NONE)
        return;
    h->state = PMIX_HOST_ENDED;
    pmix_relay_close(&h->relay);
    child_let_go(&h->child);
}

void pmix_host_end(struct pmix_host *h)
{
    if (h->state != PMIX_HOST_NONE)
        child_end(&h->child);
}

bool pmix_host_is_failing(const struct pmix_host *h)
{
    return h->child.failed || (h->state == PMIX_HOST_ENDED && !h->child.ending);
}

bool pmix_host_reaped(struct pmix_host *h, pid_t pid, uint32_t status, uint32_t signal)
{
    return child_reaped(&h->child, pid, status, signal);
}

void pmix_host_close(struct pmix_host *h)
{
    pmix_host_end(h);
    child_close(&h->child);
    while (h->first)
        forget_operation(h->first);
}
