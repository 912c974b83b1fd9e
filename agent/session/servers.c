/* Processes of ours that workers may need: the collectives engine, the PMIx server and CUDA's multi-process
 * service. They are the last to be ended, and MPS after the engine, which may use GPUs through it. */
#include "agent/session/session.h"
#include "agent/worker/descendants.h"
#include "common/base/log.h"

static void on_link(void *ctx, Hvd__Link *link)
{
    struct session *s = ctx;
    CONTROL(m, LINK, link, link);
    session_send(s, &m);
}

static void on_initialized(void *ctx, uint32_t rank)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (w) {
        w->initialized = true;
        w->shut_down = false;
    }
}

static void on_shut_down(void *ctx, uint32_t rank)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (w)
        w->shut_down = true;
}

/* Nobody who has called hvd_shutdown, or has ended, misses it. */
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
    if (s->fsm.state >= SESSION_ENDING || !engine_is_needed(s)) {
        session_notice(s, LOG_WARNING, "%s", text);
        return;
    }
    session_fault(s, "%s", text);
}

static void on_poisoned(void *ctx, uint32_t rank)
{
    struct session *s = ctx;
    s->poisoned = true;
    s->poisoned_by = rank;
}

static void on_engine_notice(void *ctx, uint32_t level, const char *text)
{
    session_notice(ctx, level, "%s", text);
}

static void on_engine_fault(void *ctx, const char *text)
{
    session_fault(ctx, "%s", text);
}

static const struct engine_host_events engine_events = {on_link,          on_initialized,   on_shut_down,
                                                        on_poisoned,      on_engine_notice, on_engine_fault,
                                                        on_engine_failed, session_counted};

int session_engine_listen(struct session *s, struct err *e)
{
    Hvd__EngineConfig c = HVD__ENGINE_CONFIG__INIT;
    struct engine_place place = {s->dir.path, session_programs_base(s), s->containment.fd, s->heartbeat_ms};
    c.job = s->job;
    c.epoch = s->spawn->epoch;
    c.key.data = s->secrets->key;
    c.key.len = sizeof s->secrets->key;
    c.size = s->spawn->size;
    c.host_index = s->spawn->host_index;
    c.host = s->spawn->host;
    c.n_host = s->spawn->n_host;
    c.address = s->address;
    c.n_address = s->address_count;
    c.port_low = s->ports.range.low;
    c.port_high = s->ports.range.high;
    c.port_promised = s->ports.range.promised;
    c.heartbeat_ms = s->heartbeat_ms;
    c.encrypt = s->encrypt;
    c.log_level = (uint32_t)log_level();
    c.token.data = s->secrets->token;
    c.token.len = sizeof s->secrets->token;
    c.tuning = s->spawn->tuning;
    return engine_host_listen(&s->engine, &s->loop, &engine_events, s, &place, &c, e);
}

struct session_servers session_servers(const struct session *s)
{
    struct session_servers of = {{0}};
    size_t n = 0;
    if (s->engine.child.pid > 0)
        of.pid[n++] = s->engine.child.pid;
    if (s->pmix.child.pid > 0)
        of.pid[n++] = s->pmix.child.pid;
    if (mps_host_pid(&s->mps.host) > 0)
        of.pid[n++] = mps_host_pid(&s->mps.host);
    return of;
}

void session_servers_end(struct session *s)
{
    engine_host_end(&s->engine);
    pmix_host_end(&s->pmix);
    if (s->engine.child.pid == 0)
        mps_host_end(&s->mps.host);
}

bool session_servers_reaped(struct session *s, const struct reaped *child)
{
    return engine_host_reaped(&s->engine, child->pid, child->status, child->signal) ||
           pmix_host_reaped(&s->pmix, child->pid, child->status, child->signal) ||
           session_mps_reaped(s, child);
}
