/* The collectives engine of this host: the worker socket before the workers start, then a process beside
 * them (engine_host.h). */
#include "agent/session/engine_host.h"

#include <stdio.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "common/status/flight_message.h"

#define COUNTERS_MAX (256u << 10) /* bytes, in memory */

struct session_engine {
    struct engine_host host;
    char socket[JOB_DIR_MAX + sizeof "/" ENGINE_SOCKET_NAME];
    bool poisoned; /* the engine has told the workers HVD_ERR_PEER */
    uint32_t poisoned_by;
    Hvd__Counters *counters; /* the last ones; NULL: none */
    Hvd__Counters *looked;   /* the last ones with pending operations; NULL: none */
    uint64_t counters_at, looked_at;
    struct flight flight; /* the recorder outlives the engine and the workers */
};

/* ---- from the engine ----------------------------------------------------------------------------------- */

static void on_link(void *ctx, Hvd__Link *link)
{
    CONTROL(m, LINK, link, link);
    session_send_control(ctx, &m);
}

static void on_initialized(void *ctx, Hvd__EngineRank *rank)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank->rank);
    if (!w)
        return;
    w->initialized = true;
    w->caller = (pid_t)rank->pid;
    log_debug("rank %u has called hvd_init", w->rank);
    w->shut_down = false;
    s->engine->poisoned = false; /* of an elastic job's former membership */
    if (!s->spawn->elastic)
        return;
    session_rank_entered(s, rank);
    CONTROL(m, ENTERED, entered, rank);
    session_send_control(s, &m);
}

static void on_waits(void *ctx, Hvd__EngineRank *rank)
{
    struct session *s = ctx;
    if (!workers_by_rank(&s->workers, rank->rank))
        return;
    CONTROL(m, WAITS, waits, rank);
    session_send_control(s, &m);
}

static void on_stage(void *ctx, Hvd__EngineRank *rank)
{
    struct session *s = ctx;
    if (!workers_by_rank(&s->workers, rank->rank))
        return;
    session_rank_stage(s, rank);
    CONTROL(m, STAGE, stage, rank);
    session_send_control(s, &m);
}

static void on_unreachable(void *ctx, Hvd__Unreachable *host)
{
    log_debug("not reached: %s", host->text);
    CONTROL(m, UNREACHABLE, unreachable, host);
    session_send_control(ctx, &m);
}

static void on_shut_down(void *ctx, uint32_t rank)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (!w)
        return;
    w->shut_down = true;
    log_debug("rank %u has called hvd_shutdown", rank);
}

/* A worker that has called hvd_shutdown, or has ended, does not miss the engine. */
static bool engine_is_needed(const struct session *s)
{
    for (size_t i = 0; i < s->workers.count; i++)
        if (s->workers.item[i].alive && !s->workers.item[i].shut_down)
            return true;
    return false;
}

static void on_engine_failed(void *ctx, const char *text)
{
    struct session *s = ctx;
    if (s->fsm.state >= SESSION_ENDING || !engine_is_needed(s))
        session_send_notice(s, LOG_WARNING, "%s", text);
    else
        session_send_fault(s, "%s", text);
}

static void on_poisoned(void *ctx, uint32_t rank, const char *why)
{
    struct session *s = ctx;
    s->engine->poisoned = true;
    s->engine->poisoned_by = rank;
    if (!*why)
        return;
    Hvd__GaveUp gave_up = HVD__GAVE_UP__INIT;
    gave_up.rank = rank;
    gave_up.text = (char *)why;
    CONTROL(m, GAVE_UP, gave_up, &gave_up);
    session_send_control(s, &m);
}

static void on_engine_notice(void *ctx, uint32_t level, const char *text, bool stall)
{
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.level = level;
    notice.text = (char *)(uintptr_t)text;
    notice.stall = stall;
    CONTROL(m, NOTICE, notice, &notice);
    session_send_control(ctx, &m);
}

static void on_engine_fault(void *ctx, Hvd__Fault *fault)
{
    struct session *s = ctx;
    if (!s->spawn->elastic || fault->n_stalled == 0) {
        session_send_fault(s, "%s", fault->text);
        return;
    }
    CONTROL(m, FAULT, fault, fault);
    session_send_control(s, &m);
}

static void keep_counters(Hvd__Counters **kept, uint64_t *at, const Hvd__Counters *counters)
{
    size_t room = COUNTERS_MAX;
    Hvd__Counters *copy = message_copy(&counters->base, &room);
    if (!copy)
        return;
    message_free(*kept);
    *kept = copy;
    *at = clock_now();
}

static void on_counters(void *ctx, const Hvd__Counters *counters)
{
    struct session *s = ctx;
    struct session_engine *engine = s->engine;
    keep_counters(&engine->counters, &engine->counters_at, counters);
    if (counters->looked)
        keep_counters(&engine->looked, &engine->looked_at, counters);
    EACH_PART(s, p, counted)
        p->counted(s);
}

static const struct engine_host_events engine_events = {
    on_link,          on_initialized, on_shut_down, on_poisoned, on_engine_notice, on_engine_fault,
    on_engine_failed, on_counters,    on_waits,     on_stage,    on_unreachable};

/* ---- before the workers -------------------------------------------------------------------------------- */

static int name_socket(struct session *s, struct worker_env_job *env, struct err *e)
{
    snprintf(s->engine->socket, sizeof s->engine->socket, "%s/%s", s->dir.path, ENGINE_SOCKET_NAME);
    env->socket = s->engine->socket;
    return 0;
}

/* A job runs without a recorder, too. An engine says, too, that memory cannot be made. */
static int make_recorder(struct session *s)
{
    struct err e = ERR_INIT;
    int fd = flight_create(&s->engine->flight, &e);
    if (fd < 0)
        log_info("operations are not recorded: %s", e.text);
    return fd;
}

/* Makes the worker socket, and the configuration for the engine that the first connection starts. */
static int listen_for_workers(struct session *s, struct worker_env_job *env, struct err *e)
{
    const struct session_job *job = &s->job;
    Hvd__EngineConfig c = HVD__ENGINE_CONFIG__INIT;
    struct engine_place place = {s->dir.path, session_programs_base(s), s->containment.fd, make_recorder(s),
                                 job->heartbeat_ms};
    c.job = s->job.name;
    c.epoch = s->spawn->elastic ? !s->spawn->newcomer : s->spawn->epoch;
    c.elastic = s->spawn->elastic;
    c.newcomer = s->spawn->newcomer;
    c.key.data = job->secrets->key;
    c.key.len = sizeof job->secrets->key;
    c.size = s->spawn->size;
    c.host_index = s->spawn->host_index;
    c.host = s->spawn->host;
    c.n_host = s->spawn->n_host;
    c.address = job->address;
    c.n_address = job->addresses;
    c.port_low = job->ports.range.low;
    c.port_high = job->ports.range.high;
    c.port_promised = job->ports.range.promised;
    c.heartbeat_ms = job->heartbeat_ms;
    c.encrypt = job->encrypt;
    c.log_level = (uint32_t)log_level();
    c.token.data = job->secrets->token;
    c.token.len = sizeof job->secrets->token;
    c.tuning = s->spawn->tuning;
    return engine_host_listen(&s->engine->host, &s->loop, &engine_events, s, &place, &c, e);
}

/* ---- for other parts ----------------------------------------------------------------------------------- */

void session_engine_links(struct session *s, Hvd__Links *links)
{
    engine_host_links(&s->engine->host, links);
}

void session_engine_membership(struct session *s, Hvd__Membership *m)
{
    engine_host_membership(&s->engine->host, m);
    engine_host_flush(&s->engine->host);
}

bool session_engine_count(struct session *s, bool pending)
{
    return engine_host_count(&s->engine->host, pending);
}

Hvd__Counters *session_engine_counters(const struct session *s, uint64_t *at)
{
    *at = s->engine->counters_at;
    return s->engine->counters;
}

Hvd__Counters *session_engine_looked(const struct session *s, uint64_t *at)
{
    *at = s->engine->looked_at;
    return s->engine->looked;
}

pid_t session_engine_pid(const struct session *s)
{
    return s->engine->host.child.pid;
}

/* ---- the flight recorder ------------------------------------------------------------------------------- */

const struct flight *session_flight(const struct session *s)
{
    return &s->engine->flight;
}

const char *session_tell_flight(struct session *s, const Hvd__Control *m)
{
    struct flight_messages all;
    flight_messages_make(&all, &s->engine->flight, m->flight_wanted->most);
    for (size_t i = 0; i < all.count; i++) {
        CONTROL(answer, FLIGHT, flight, all.list[i]);
        session_send_control(s, &answer);
    }
    flight_messages_free(&all);
    session_tell_events(s);
    return NULL;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

/* Messages from another host that come together are flushed together, before the loop sleeps. */
static void tell_rank_ended(struct session *s, Hvd__RankEnded *ended)
{
    engine_host_rank_ended(&s->engine->host, ended);
    if (workers_by_rank(&s->workers, ended->rank))
        engine_host_flush(&s->engine->host);
}

static void flush_messages(struct session *s)
{
    engine_host_flush(&s->engine->host);
}

static void drain_engine(struct session *s)
{
    engine_host_drain(&s->engine->host);
}

static void end_engine(struct session *s)
{
    engine_host_end(&s->engine->host);
}

static bool has_told_worker(const struct session *s, const struct worker *w)
{
    const struct session_engine *engine = s->engine;
    return (engine->poisoned && w->rank != engine->poisoned_by) || engine_host_is_failing(&engine->host);
}

static bool reap_engine(struct session *s, const struct reaped *child)
{
    return engine_host_reaped(&s->engine->host, child->pid, child->status, child->signal);
}

static void close_engine(struct session *s)
{
    engine_host_close(&s->engine->host);
}

static void free_engine(struct session *s)
{
    message_free(s->engine->counters);
    message_free(s->engine->looked);
    flight_unmap(&s->engine->flight);
}

static const struct session_server server = {
    .pid = session_engine_pid, .end = end_engine, .drain = drain_engine, .has_told = has_told_worker};

const struct session_part session_part_engine = {
    .name = "engine",
    .state = SESSION_STATE(engine),
    .prepare = name_socket,
    .start = listen_for_workers,
    .rank_ended = tell_rank_ended,
    .reaped = reap_engine,
    .written = flush_messages,
    .server = &server,
    .close = close_engine,
    .free = free_engine,
};
