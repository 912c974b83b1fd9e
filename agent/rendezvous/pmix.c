/* The PMIx contract: a server of the PMIx library for the ranks of this host, there from its first client on.
 *
 * Before the workers start only the doorway is made. Their environment names it as the server, with what the
 * library's PMIx_server_setup_fork would say if it were asked; the names are ours to choose, for the server
 * will be given them. The first knock starts the server, a process of its own (earlier when the command looks
 * as if it will knock: guess.h); connections wait meanwhile and are then spliced to the library's own port.
 * Then the library is asked after all: if it says other than the workers were told, a warning names the way
 * that asks it before (--rendezvous pmix).
 *
 * Another user who finds the library's own port has nothing to say there: the library refuses namespaces
 * that it does not know, and ours cannot be guessed. At the doorway, nobody comes in who does not name it.
 *
 * Without that program (the library was missing when this was built) no variable of PMIx is set. */
#include "agent/rendezvous/pmix.h"

#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/job_dir.h"
#include "agent/rendezvous/doorway.h"
#include "agent/rendezvous/guess.h"
#include "agent/rendezvous/pmix_greeting.h"
#include "agent/rendezvous/pmix_host.h"
#include "agent/rendezvous/splice.h"
#include "agent/rendezvous/stand_in.h"
#include "common/log.h"
#include "common/module.h"

struct pmix {
    struct rendezvous *r;
    struct doorway doorway;
    struct splices splices;
    struct pmix_host *server;
    bool started;       /* somebody has knocked */
    struct err failure; /* it will never be */
    char **environment;
    size_t count;
    enum presence { AWAITED, CAME, GONE } * rank; /* of this host */
    struct stand_ins stand_ins;
    uint8_t *greeting; /* of the first client, for those that ended before they had said theirs; or NULL */
    size_t greeting_len, rank_at;
    int shared_fd; /* holds the directory in shared memory; -1: nobody has knocked yet */
};

/* ---- what the workers are told ------------------------------------------------------------------------- */

/* What happens to a variable of the contract that the library, or the user, has another value for. */
enum rule {
    MUST_AGREE,    /* the library's clients cannot do with another value than the library's */
    OURS,          /* the library knows nothing of it, or any value will do */
    UNLESS_SET,    /* the user's own wins */
    UNLESS_BINDING /* the same, and OpenMPI's ranks may be told to bind themselves */
};

/* The contract's variables. */
static const struct {
    const char *name,
        *format; /* %d: directory, %n: name space, %u: URI, %h: our host's name, %s: in shared memory */
    enum rule rule;
} variables[] = {
    {"PMIX_NAMESPACE", "%n", MUST_AGREE},
    {"PMIX_SERVER_URI41", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI4", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI3", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI2", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI21", "%u", MUST_AGREE},
    {"PMIX_SECURITY_MODE", "native", MUST_AGREE},
    {"PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC", MUST_AGREE},
    {"PMIX_GDS_MODULE", "hash", MUST_AGREE},
    {"PMIX_SERVER_TMPDIR", "%d", MUST_AGREE},
    {"PMIX_SYSTEM_TMPDIR", "%d", OURS},
    {"PMIX_HOSTNAME", "%h", OURS},
    /* Without it OpenMPI 4 takes every rank for a job of its own. */
    {"OMPI_MCA_orte_local_daemon_uri", "1.0;tcp://127.0.0.1:1", OURS},
    /* Whoever starts it has bound it or means it to be free: else each rank looks for the machine's topology
     * first thing, only to see whether it is bound. */
    {"OMPI_MCA_orte_bound_at_launch", "1", UNLESS_BINDING},
    /* A directory in shared memory; by itself it would leave files of killed ranks in /dev/shm. */
    {"OMPI_MCA_btl_vader_backing_directory", "%s", UNLESS_SET},
};
#define VARIABLES (sizeof variables / sizeof *variables)

static void insert(const struct pmix *p, char what, char *text, size_t size)
{
    char shared[JOB_DIR_MAX];
    switch (what) {
    case 'd':
        pmix_server_directory(p->r, text, size);
        break;
    case 'n':
        snprintf(text, size, "%s", p->r->spawn->namespace_);
        break;
    case 's':
        job_dir_shared_path(p->r->directory, shared);
        snprintf(text, size, "%s", shared);
        break;
    case 'h':
        pmix_node_name(p->r, p->r->spawn->host_index, text, size);
        break;
    default:
        pmix_server_name(p->r, text, size);
        snprintf(text + strlen(text), size - strlen(text), ".%u;tcp4://127.0.0.1:%u", p->r->spawn->host_index,
                 (unsigned)p->doorway.port);
    }
}

static void format_variable(const struct pmix *p, size_t i, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "%s=", variables[i].name);
    for (const char *f = variables[i].format; *f && at + 1 < size; f++) {
        if (*f != '%') {
            text[at++] = *f;
            text[at] = '\0';
            continue;
        }
        insert(p, *++f, text + at, size - at);
        at += strlen(text + at);
    }
}

static int add_variable(struct pmix *p, const char *text, struct err *e)
{
    char **more = realloc(p->environment, (p->count + 2) * sizeof *more);
    if (!more)
        return err_set(e, ERR_MEMORY, "no memory for the workers' environment");
    p->environment = more;
    p->environment[p->count] = strdup(text);
    p->environment[p->count + 1] = NULL;
    return p->environment[p->count++] ? 0 : err_set(e, ERR_MEMORY, "no memory for the workers' environment");
}

static const char *find(char *const *environment, size_t count, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environment[i], name, len) == 0 && environment[i][len] == '=')
            return environment[i] + len + 1;
    return NULL;
}

static bool is_set(const Hvd__Spawn *spawn, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < spawn->n_env; i++)
        if (strncmp(spawn->env[i], name, len) == 0 && spawn->env[i][len] == '=')
            return true;
    return false;
}

static bool users_own_wins(const Hvd__Spawn *spawn, size_t i)
{
    enum rule rule = variables[i].rule;
    return (rule >= UNLESS_SET && is_set(spawn, variables[i].name)) ||
           (rule == UNLESS_BINDING && is_set(spawn, "OMPI_MCA_hwloc_base_binding_policy"));
}

/* Those of PMIx only when the library was not asked. */
static int predict(struct pmix *p, struct err *e)
{
    char text[PATH_MAX + 128];
    bool asked = p->environment != NULL;
    for (size_t i = 0; i < VARIABLES; i++) {
        bool known = asked && strncmp(variables[i].name, "PMIX_", 5) == 0;
        if (known || users_own_wins(p->r->spawn, i))
            continue;
        format_variable(p, i, text, sizeof text);
        if (add_variable(p, text, e) < 0)
            return -1;
    }
    return 0;
}

static bool is_uri(const char *entry)
{
    return strncmp(entry, "PMIX_SERVER_URI", strlen("PMIX_SERVER_URI")) == 0;
}

/* The library's own word; but its clients come through the doorway. */
static int adopt(struct pmix *p, char *const *said, size_t count, struct err *e)
{
    char text[PATH_MAX + 128];
    for (size_t i = 0; i < count; i++) {
        const char *port = is_uri(said[i]) ? strrchr(said[i], ':') : NULL;
        if (strncmp(said[i], "PMIX_RANK=", strlen("PMIX_RANK=")) == 0)
            continue;
        if (port)
            snprintf(text, sizeof text, "%.*s:%u", (int)(port - said[i]), said[i], (unsigned)p->doorway.port);
        else
            snprintf(text, sizeof text, "%s", said[i]);
        if (add_variable(p, text, e) < 0)
            return -1;
    }
    return 0;
}

/* As far as the port, which is the doorway's here and the library's there. */
static bool same_value(const char *name, const char *told, const char *said)
{
    if (!is_uri(name))
        return strcmp(told, said) == 0;
    const char *port = strrchr(said, ':');
    size_t len = port ? (size_t)(port - said) : strlen(said);
    return strncmp(told, said, len) == 0 && told[len] == ':';
}

/* Were the workers told what the library would have told them? */
static void compare(struct pmix *p, char *const *said, size_t count)
{
    char text[512];
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *value = find(said, count, variables[i].name);
        const char *told = find(p->environment, p->count, variables[i].name);
        if (variables[i].rule != MUST_AGREE || !told || (value && same_value(variables[i].name, told, value)))
            continue;
        snprintf(text, sizeof text,
                 "this host's PMIx library wants other variables than its clients were given (%s=%.100s, not "
                 "%.100s): if they fail, run with --rendezvous env,pmix",
                 variables[i].name, value ? value : "", told);
        p->r->events->notice(p->r->ctx, LOG_WARNING, text);
        return;
    }
}

/* ---- ranks that end without a word ---------------------------------------------------------------------
 */

static const Hvd__HostRanks *ranks_here(const struct pmix *p)
{
    return p->r->spawn->host[p->r->spawn->host_index];
}

/* With the greeting that a rank of this host has said, in another's name. */
static void stand_in(struct pmix *p, uint32_t i)
{
    uint32_t rank = htonl(ranks_here(p)->first_rank + i);
    if (p->rank[i] != AWAITED || !p->r->end[ranks_here(p)->first_rank + i] || !p->greeting ||
        !p->splices.port)
        return;
    p->rank[i] = GONE;
    memcpy(p->greeting + p->rank_at, &rank, sizeof rank);
    stand_in_add(&p->stand_ins, p->splices.port, p->greeting, p->greeting_len);
}

static void stand_in_for_all(struct pmix *p)
{
    for (uint32_t i = 0; i < ranks_here(p)->ranks; i++)
        stand_in(p, i);
}

static void note_greeting(struct pmix *p, const uint8_t *bytes, const struct pmix_greeting *g)
{
    if (p->greeting || !(p->greeting = malloc(g->len)))
        return;
    memcpy(p->greeting, bytes, g->len);
    p->greeting_len = g->len;
    p->rank_at = g->rank_at;
    stand_in_for_all(p);
}

/* ---- the server ---------------------------------------------------------------------------------------- */

static void fail(struct pmix *p, const struct err *why)
{
    char text[ERR_TEXT_MAX + 64];
    if (p->failure.code)
        return;
    p->failure = *why;
    snprintf(text, sizeof text, "there is no PMIx on this host: %s", why->text);
    p->r->events->notice(p->r->ctx, LOG_ERROR, text);
    splice_close_all(&p->splices);
}

static void on_started(void *ctx, const struct err *why, uint16_t port, char *const *environment,
                       size_t count)
{
    struct pmix *p = ctx;
    if (why) {
        fail(p, why);
        return;
    }
    if (p->environment)
        compare(p, environment, count);
    else if (adopt(p, environment, count, &p->failure) < 0)
        return;
    splice_serve(&p->splices, port);
    stand_in_for_all(p);
}

/* Its clients see the end of their connections. */
static void on_failed(void *ctx, const char *text)
{
    struct pmix *p = ctx;
    char whole[ERR_TEXT_MAX], last[64] = "";
    if (p->failure.code) /* it had not started, and that is known */
        return;
    if (p->splices.spoke)
        snprintf(last, sizeof last, "; rank %u had sent to it last", p->splices.last);
    snprintf(whole, sizeof whole, "%s%s", text, last);
    err_set(&p->failure, ERR_CLOSED, "%s", whole);
    splice_close_all(&p->splices);
    p->r->events->failed(p->r->ctx, whole);
}

static const struct pmix_host_events host_events = {on_started, on_failed};

/* `now`: the workers' environment waits for it. */
static int start(struct pmix *p, bool now, struct err *e)
{
    p->started = true;
    if (pmix_host_start(p->server, p->r, now, &host_events, p, e) < 0)
        return -1;
    if (!now)
        return 0;
    exchange_expect(p->r->exchange); /* links are made while the library and the workers start */
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
    if (!p->started && !p->failure.code && start(p, false, &e) < 0)
        fail(p, &e);
}

static void on_client(void *ctx, int fd)
{
    struct pmix *p = ctx;
    splice_add(&p->splices, fd);
    start_once(p);
}

static enum splice_greeting check_greeting(void *ctx, const uint8_t *bytes, size_t len, uint32_t *rank)
{
    struct pmix *p = ctx;
    const Hvd__HostRanks *here = ranks_here(p);
    struct pmix_greeting g;
    enum splice_greeting answer = pmix_greeting_read(bytes, len, p->r->spawn->namespace_, &g);
    if (answer != SPLICE_GOOD)
        return answer;
    if (g.rank < here->first_rank || g.rank - here->first_rank >= here->ranks ||
        p->rank[g.rank - here->first_rank] == GONE)
        return SPLICE_BAD;
    p->rank[g.rank - here->first_rank] = CAME;
    *rank = g.rank;
    note_greeting(p, bytes, &g);
    return SPLICE_GOOD;
}

/* ---- other hosts --------------------------------------------------------------------------------------- */

static void on_request(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    struct pmix *p = ctx;
    start_once(p);
    if (p->failure.code)
        exchange_answer(p->r->exchange, EXCHANGE_PMIX, from, ticket, &p->failure, NULL, 0);
    else
        pmix_host_request(p->server, from, ticket, data, len);
}

static void on_broadcast(void *ctx, uint32_t from, const uint8_t *data, size_t len)
{
    struct pmix *p = ctx;
    pmix_host_broadcast(p->server, from, data, len);
}

static const struct exchange_handler handler = {on_request, on_broadcast};

/* ---- before the workers -------------------------------------------------------------------------------- */

static const char *search_path(const Hvd__Spawn *spawn)
{
    for (size_t i = 0; i < spawn->n_env; i++)
        if (strncmp(spawn->env[i], "PATH=", 5) == 0)
            return spawn->env[i] + 5;
    return getenv("PATH");
}

/* Because it is wanted, or because the command looks as if it will be needed: the workers are then told of
 * the library's shared memory, and need not ask the server for each key. Only who wanted it is refused
 * without it. */
static int start_before_workers(struct pmix *p, bool wanted, struct err *e)
{
    const Hvd__Spawn *spawn = p->r->spawn;
    if (!wanted && !guess_uses_pmix(spawn->argv, search_path(spawn), p->r->wdir))
        return 0;
    if (start(p, true, e) < 0) {
        pmix_host_end(p->server);
        if (!wanted)
            fail(p, e);
    } else if (p->failure.code) {
        *e = p->failure;
    }
    if (wanted)
        return e->code ? -1 : 0;
    err_clear(e);
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static int prepare(struct pmix *p, struct err *e)
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
    if (doorway_open(&p->doorway, r->loop, on_client, p, e) < 0)
        return -1;
    exchange_serve(r->exchange, EXCHANGE_PMIX, &handler, p);
    if (start_before_workers(p, wanted, e) < 0)
        return -1;
    if (predict(p, e) < 0)
        return -1;
    r->values.pmix = p->environment;
    return 0;
}

static void pmix_close(void *state)
{
    struct pmix *p = state;
    p->r->values.pmix = NULL;
    exchange_serve(p->r->exchange, EXCHANGE_PMIX, NULL, NULL);
    doorway_close(&p->doorway);
    splice_close_all(&p->splices);
    stand_in_close_all(&p->stand_ins);
    pmix_host_end(p->server);
    if (p->shared_fd >= 0)
        close(p->shared_fd);
    p->shared_fd = -1;
    free(p->rank);
    free(p->greeting);
    p->rank = NULL;
    p->greeting = NULL;
    for (size_t i = 0; i < p->count; i++)
        free(p->environment[i]);
    free(p->environment);
    p->environment = NULL;
    p->count = 0;
}

static void *pmix_open(struct rendezvous *r, struct err *e)
{
    static struct pmix pmix; /* one a process; its handles outlive the close */
    struct pmix *p = &pmix;
    *p = (struct pmix){.r = r,
                       .server = r->pmix,
                       .shared_fd = -1,
                       .stand_ins = {.loop = r->loop},
                       .splices = {.loop = r->loop, .check = check_greeting, .ctx = p}};
    if (prepare(p, e) < 0) {
        pmix_close(p);
        return NULL;
    }
    return p;
}

static void pmix_rank_ended(void *state, uint32_t rank)
{
    struct pmix *p = state;
    const Hvd__HostRanks *here = ranks_here(p);
    pmix_host_rank_ended(p->server, rank, p->r->end[rank]);
    if (p->rank && rank >= here->first_rank && rank - here->first_rank < here->ranks)
        stand_in(p, rank - here->first_rank);
}

const struct contract_ops contract_pmix = {CONTRACT_PMIX, pmix_open, pmix_rank_ended, pmix_close};
