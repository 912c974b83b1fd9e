/* hvd-pmix: the PMIx server of a host, one process a job and host, started by its session with their socket
 * as descriptor 3 when the first client connects, or is expected.
 *
 * It ends when the session's end of the socket is closed. The library is not ended before: what it holds
 * outside of the process lies in the job's directory. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/protocol/frame.h"
#include "common/protocol/host_ranks.h"
#include "common/protocol/legal.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "common/protocol/message.h"
#include "common/process/spawn.h"

#define SESSION_FD 3

struct process {
    uv_loop_t loop;
    uv_timer_t beat;
    struct pmix_relay session;
    struct rendezvous r;
    Hvd__Pmix *config;  /* the job: kept */
    struct legal legal; /* of what the session sends */
};

enum state { UNTOLD, TOLD };

#define KIND(name) HVD__PMIX__KIND__##name

static const struct legal_row rows[] = {
    {KIND(CONFIG), 1u << UNTOLD, 0, true},
    {KIND(RANK_ENDED), 1u << TOLD, 1u << UNTOLD, false}, /* a configuration that is refused is no reason to */
    {KIND(REQUEST), 1u << TOLD, 1u << UNTOLD, false},
    {KIND(BROADCAST), 1u << TOLD, 1u << UNTOLD, false},
    {KIND(RESULT), 1u << TOLD, 1u << UNTOLD, false},
};
static const struct legal_table table = LEGAL_TABLE(rows, legal_pmix_name);

static struct process process;

/* ---- to the session ------------------------------------------------------------------------------------ */

static void send_dated(Hvd__Pmix__Kind kind, uint32_t rank, uint32_t number, const char *text, uint64_t time)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = kind;
    m.rank = rank;
    m.number = number;
    m.time = time;
    m.text = (char *)(uintptr_t)text;
    pmix_relay_send(&process.session, &m);
}

static void send_message(Hvd__Pmix__Kind kind, uint32_t rank, uint32_t number, const char *text)
{
    send_dated(kind, rank, number, text, 0);
}

static void on_notice(void *ctx, uint32_t level, const char *text)
{
    (void)ctx;
    send_message(HVD__PMIX__KIND__NOTICE, 0, level, text);
}

static void on_abort(void *ctx, uint32_t rank, uint32_t status, const char *text, uint64_t time)
{
    (void)ctx;
    send_dated(HVD__PMIX__KIND__ABORT, rank, status, text, time);
}

static void on_signal(void *ctx, uint32_t rank, int number)
{
    (void)ctx;
    send_message(HVD__PMIX__KIND__SIGNAL, rank, (uint32_t)number, "");
}

static void on_said(void *ctx, uint32_t rank, bool to_stdout, const char *text, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    (void)ctx;
    m.kind = HVD__PMIX__KIND__SAID;
    m.rank = rank;
    m.number = to_stdout ? STREAM_STDOUT : STREAM_STDERR;
    m.data = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)text};
    pmix_relay_send(&process.session, &m);
}

static const struct rendezvous_events events = {
    .notice = on_notice, .abort = on_abort, .signal = on_signal, .said = on_said};

static void on_beat(uv_timer_t *timer)
{
    (void)timer;
    send_message(HVD__PMIX__KIND__PING, 0, 0, "");
}

/* ---- the start ----------------------------------------------------------------------------------------- */

static void say_started(const struct pmix_listening *at, const struct err *why)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__STARTED;
    m.number = at->port;
    m.environment = at->environment;
    while (at->environment && at->environment[m.n_environment])
        m.n_environment++;
    m.code = why->code;
    m.text = (char *)(uintptr_t)why->text;
    pmix_relay_send(&process.session, &m);
}

static int note_ends(const Hvd__PmixConfig *c)
{
    struct rendezvous *r = &process.r;
    r->end = calloc(c->spawn->size, sizeof *r->end);
    if (!r->end)
        return -1;
    for (size_t i = 0; i < c->n_ended; i++)
        if (c->ended[i]->rank < c->spawn->size)
            r->end[c->ended[i]->rank] = c->ended[i]->cause;
    return 0;
}

/* Later code trusts the configuration and looks things up in it without a check: so all is checked here. */
static int check_config(const Hvd__PmixConfig *c, struct err *e)
{
    const Hvd__Spawn *s = c ? c->spawn : NULL;
    if (!s || s->host_index >= s->n_host || !s->namespace_[0])
        return err_set(e, ERR_PROTOCOL, "the session's configuration is not complete");
    if (hosts_check_ranks(s->host, s->n_host, s->size, e) != 0)
        return err_wrap(e, "the session's configuration");
    if (s->n_worker != s->host[s->host_index]->ranks || c->log_level > LOG_FATAL ||
        (c->n_cpus != 0 && c->n_cpus != s->n_worker))
        return err_set(e, ERR_PROTOCOL, "the session's configuration: %zu workers, log level %u", s->n_worker,
                       c->log_level);
    return 0;
}

static void start_server(const Hvd__Pmix *m)
{
    struct pmix_listening at = {0};
    struct err e = ERR_INIT;
    size_t room = SIZE_MAX;
    Hvd__Pmix *kept = check_config(m->config, &e) < 0 ? NULL : message_copy(&m->base, &room);
    if (!kept) {
        err_set(&e, ERR_MEMORY, "no memory for the configuration");
        say_started(&at, &e);
        return;
    }
    const Hvd__PmixConfig *c = kept->config;
    process.config = kept;
    log_init(PMIX_PROGRAM, (enum log_level)c->log_level);
    process.r = (struct rendezvous){.loop = &process.loop,
                                    .spawn = c->spawn,
                                    .job = c->job,
                                    .host = c->host,
                                    .directory = c->directory,
                                    .events = &events,
                                    .values = {.crowded = c->crowded, .bound = c->n_cpus ? c->cpus : NULL}};
    pmix_tree_open(&process.session);
    if (note_ends(c) < 0)
        err_set(&e, ERR_MEMORY, "no memory for %u ranks", c->spawn->size);
    else
        (void)pmix_server_start(&process.r, c->before_workers, &at, &e);
    say_started(&at, &e);
    uv_timer_start(&process.beat, on_beat, 0, c->ping_ms);
}

/* ---- from the session ---------------------------------------------------------------------------------- */

static void on_rank_ended(const Hvd__Pmix *m)
{
    struct rendezvous *r = &process.r;
    if (!r->end || m->rank >= r->spawn->size || r->end[m->rank])
        return;
    r->end[m->rank] = strdup(m->text);
    if (r->end[m->rank])
        pmix_server_rank_ended(m->rank);
}

static void on_message(void *ctx, const Hvd__Pmix *m)
{
    (void)ctx;
    bool told = process.config;
    if (!legal_hears(&process.legal, &table, m->kind, told ? TOLD : UNTOLD, "the session",
                     told ? "serving" : "starting"))
        return;
    switch (m->kind) {
    case HVD__PMIX__KIND__CONFIG:
        start_server(m);
        break;
    case HVD__PMIX__KIND__RANK_ENDED:
        on_rank_ended(m);
        break;
    case HVD__PMIX__KIND__REQUEST:
        pmix_server_asked((struct pmix_asked){m->host, m->ticket}, m->data.data, m->data.len);
        break;
    case HVD__PMIX__KIND__BROADCAST:
        pmix_server_told(m->data.data, m->data.len);
        break;
    case HVD__PMIX__KIND__RESULT:
        pmix_session_result(m);
        break;
    default:
        break;
    }
}

static void on_end(void *ctx, const struct err *why)
{
    (void)ctx;
    if (why)
        log_error("the session: %s", why->text);
    uv_stop(&process.loop);
}

static const struct pmix_relay_events relay_events = {on_message, on_end};

/* ---- life ---------------------------------------------------------------------------------------------- */

static int run_server(struct err *e)
{
    if (loop_init(&process.loop, e) < 0)
        return -1;
    uv_timer_init(&process.loop, &process.beat);
    if (pmix_relay_open(&process.session, &process.loop, SESSION_FD, &relay_events, NULL, e) < 0)
        return -1;
    uv_run(&process.loop, UV_RUN_DEFAULT);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    log_init(PMIX_PROGRAM, LOG_WARNING);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", PMIX_PROGRAM, HVD_VERSION);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "%s is started by hvdagent and takes no arguments\n", PMIX_PROGRAM);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    spawn_raise_descriptor_limit(RLIM_INFINITY); /* each client is one */
    if (run_server(&e) < 0) {
        log_error("%s", e.text);
        return err_exit_status(&e);
    }
    fflush(stdout);
    fflush(stderr);
    _exit(0); /* the library's thread may be in the middle of something, and no destructor waits for it */
}
