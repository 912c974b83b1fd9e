/* The workers' rendezvous, with the links to other sessions and the launcher. */
#include "agent/rendezvous/rendezvous.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_client/pmix_host.h"
#include "agent/session/core.h"
#include "agent/session/host_facts.h"
#include "agent/tree/session_links.h"
#include "agent/session/parts.h"
#include "agent/worker/processors.h"
#include "common/base/log.h"
#include "common/base/clock.h"

#define ABORT_MS       500 /* then a rank that has asked for the end is killed */
#define SILENCE_MIN_MS 5000
#define SAID_LINES     100

struct session_rendezvous {
    struct rendezvous methods;
    struct session_links links;
    struct pmix_host pmix;
    uv_timer_t abort_timer; /* kills ranks that have asked for the end of the job and do not end */
    uint32_t said;          /* lines of ranks' libraries that were shown as warnings */
};

/* ---- links to other sessions --------------------------------------------------------------------------- */

static void on_links_needed(void *ctx)
{
    Hvd__LinkOrder order = HVD__LINK_ORDER__INIT;
    CONTROL(m, LINK_ORDER, link_order, &order);
    session_send_control(ctx, &m);
}

static void on_links_listening(void *ctx, Hvd__Link *link)
{
    CONTROL(m, SESSION_LINK, session_link, link);
    session_send_control(ctx, &m);
}

static void on_links_failed(void *ctx, const struct err *why)
{
    session_send_fault(ctx, "%s", why->text);
}

/* Workers that are being ended may wait for each other: that is worth no message. */
static void on_links_lost(void *ctx, const struct err *why)
{
    struct session *s = ctx;
    if (s->fsm.state >= SESSION_ENDING)
        return;
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.text = (char *)(uintptr_t)why->text;
    CONTROL(m, LINKS_LOST, links_lost, &notice);
    session_send_control(s, &m);
}

static void on_notice(void *ctx, uint32_t level, const char *text)
{
    session_send_notice(ctx, level, "%s", text);
}

/* ---- the workers' libraries ---------------------------------------------------------------------------- */

static void on_abort_late(uv_timer_t *timer)
{
    struct session *s = timer->data;
    for (size_t i = 0; i < s->workers.count; i++)
        if (s->workers.item[i].aborted && s->workers.item[i].alive)
            (void)kill(-s->workers.item[i].pid, SIGKILL);
}

/* The rank ends soon, and with the status that it asked for; its fault is as old as the call. The others may
 * hear of the closed connections of that rank before its process is reaped, and ask for the end too. A rank
 * that has ended with status 0 has failed as well when its library says so. */
static void on_abort(void *ctx, uint32_t rank, uint32_t status, const char *text, uint64_t time)
{
    struct session *s = ctx;
    uint64_t now = clock_now();
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (!w || w->aborted || w->reported)
        return;
    if (!w->alive && (w->status || w->signal || w->ended_by_us))
        return;
    log_info("rank %u asks for the end of the job with status %u: %s", rank, status, text);
    w->aborted = true;
    w->abort_code = status;
    w->abort_status = status & 0xff ? status & 0xff : 1;
    w->called_abort = w->alive;
    if (!w->alive) {
        w->status = w->abort_status;
        session_send_notice(s, LOG_WARNING, "rank %u: %s", rank, text);
        return;
    }
    w->time = time > now ? now : time < w->began ? w->began : time;
    (void)kill(-w->pid, SIGTERM);
    if (!uv_is_active((uv_handle_t *)&s->rendezvous->abort_timer))
        uv_timer_start(&s->rendezvous->abort_timer, on_abort_late, ABORT_MS, 0);
}

static void on_signal(void *ctx, uint32_t rank, int number)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    log_info("signal %d for rank %u, in the name of another rank", number, rank);
    if (w && w->alive)
        (void)kill(-w->pid, number);
}

/* Shows one line as a warning. SAID_LINES bounds the lines of all ranks together. */
static void show_line(struct session *s, uint32_t rank, const char *line, size_t len)
{
    uint32_t *said = &s->rendezvous->said;
    if (*said >= SAID_LINES || len == 0)
        return;
    ++*said;
    session_send_notice(s, LOG_WARNING, "rank %u: %.*s%s", rank, (int)len, line,
                        *said == SAID_LINES ? " [more of this is not shown]" : "");
}

/* The text becomes output of the rank, between the lines that the rank writes itself. Each line becomes a
 * warning instead when the rank has closed its output, has too much output waiting, or has a terminal. */
static void on_said(void *ctx, uint32_t rank, bool to_stdout, const char *text, size_t len)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (!w)
        return;
    size_t at = outlet_say(to_stdout ? &w->out : &w->err, text, len);
    while (at < len) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end ? (size_t)(end - text) - at : len - at;
        show_line(s, rank, text + at, line);
        at += line + 1;
    }
}

static void on_failed(void *ctx, const char *text)
{
    struct session *s = ctx;
    if (s->fsm.state >= SESSION_ENDING || s->workers.alive == 0)
        session_send_notice(s, LOG_WARNING, "%s", text);
    else
        session_send_fault(s, "%s", text);
}

static const struct session_links_events links_events = {on_links_needed, on_links_listening, on_links_failed,
                                                         on_links_lost};
static const struct rendezvous_events rendezvous_events = {on_notice, on_abort, on_signal, on_said,
                                                           on_failed};

/* ---- open and close ------------------------------------------------------------------------------------ */

static int open_timer(struct session *s, struct err *e)
{
    uv_timer_init(&s->loop, &s->rendezvous->abort_timer);
    s->rendezvous->abort_timer.data = s;
    return 0;
}

static void find_interfaces(const struct session_job *job, struct rendezvous_values *v)
{
    /* The interface that leads to the launcher, at least. */
    if (!job->interfaces_chosen && job->reached_at && job->addresses > 0)
        host_interfaces((char *const *)&job->reached_at, 1, v->interface, sizeof v->interface);
    if (!*v->interface)
        host_interfaces(job->address, job->addresses ? 1 : 0, v->interface, sizeof v->interface);
    if (job->interfaces_chosen)
        host_interfaces(job->address, job->addresses, v->chosen_interfaces, sizeof v->chosen_interfaces);
}

/* The processors of each bound worker, for its libraries. */
static int name_processors(struct session *s, struct rendezvous_values *v, struct err *e)
{
    char text[CPUS_MAX];
    if (!session_cpus(s))
        return 0;
    v->bound = calloc(s->spawn->n_worker, sizeof *v->bound);
    for (size_t i = 0; v->bound && i < s->spawn->n_worker; i++) {
        const struct cpus *cpus = session_cpus_of(s, i);
        v->bound[i] = strdup(cpus ? cpus_text(cpus, text, sizeof text) : "");
        if (!v->bound[i])
            return err_set(e, ERR_MEMORY, "no memory for the processors of workers");
    }
    return v->bound ? 0 : err_set(e, ERR_MEMORY, "no memory for the processors of workers");
}

static int open_rendezvous(struct session *s, struct worker_env_job *env, struct err *e)
{
    const struct session_job *job = &s->job;
    struct session_rendezvous *own = s->rendezvous;
    struct session_links_job links = {.job = job->name,
                                      .epoch = s->spawn->epoch,
                                      .key = job->secrets->key,
                                      .self = s->spawn->host_index,
                                      .hosts = (uint32_t)s->spawn->n_host,
                                      .host = s->spawn->host,
                                      .address = job->address,
                                      .addresses = job->addresses,
                                      .ports = job->ports.range,
                                      .heartbeat_ms = job->heartbeat_ms,
                                      .encrypt = job->encrypt};
    if (session_links_init(&own->links, &s->loop, &links, &links_events, s, e) < 0)
        return -1;
    own->methods = (struct rendezvous){.loop = &s->loop,
                                       .spawn = s->spawn,
                                       .job = job->name,
                                       .host = job->host,
                                       .wdir = session_programs_wdir(s),
                                       .directory = s->dir.path,
                                       .tree = own->links.tree,
                                       .pmix = &own->pmix,
                                       .cgroup_fd = s->containment.fd,
                                       .silence_ms = job->heartbeat_ms > SILENCE_MIN_MS ? job->heartbeat_ms
                                                                                        : SILENCE_MIN_MS,
                                       .events = &rendezvous_events,
                                       .ctx = s};
    if (name_processors(s, &own->methods.values, e) < 0)
        return -1;
    own->methods.values.crowded = processors_are_short(session_cpus(s), s->spawn->n_worker);
    find_interfaces(job, &own->methods.values);
    env->rendezvous = &own->methods.values;
    return rendezvous_open(&own->methods, e);
}

static void close_rendezvous(struct session *s)
{
    struct session_rendezvous *own = s->rendezvous;
    rendezvous_close(&own->methods);
    session_links_close(&own->links);
    pmix_host_close(&own->pmix);
    uv_close((uv_handle_t *)&own->abort_timer, NULL);
    for (size_t i = 0; own->methods.values.bound && i < s->spawn->n_worker; i++)
        free(own->methods.values.bound[i]);
    free(own->methods.values.bound);
}

/* ---- for other files ----------------------------------------------------------------------------------- */

bool session_workers_are_crowded(const struct session *s)
{
    return s->rendezvous->methods.values.crowded;
}

const char *session_links_order(struct session *s, const Hvd__Control *m)
{
    session_links_listen(&s->rendezvous->links);
    return NULL;
}

const char *session_links_told(struct session *s, const Hvd__Control *m)
{
    session_links_connect(&s->rendezvous->links, m->session_links);
    return NULL;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static void tell_rank_ended(struct session *s, Hvd__RankEnded *ended)
{
    rendezvous_rank_ended(&s->rendezvous->methods, ended->rank, ended->cause);
}

static bool reap_pmix(struct session *s, const struct reaped *child)
{
    return pmix_host_reaped(&s->rendezvous->pmix, child->pid, child->status, child->signal);
}

static pid_t pmix_pid(const struct session *s)
{
    return s->rendezvous->pmix.child.pid;
}

static void end_pmix(struct session *s)
{
    pmix_host_end(&s->rendezvous->pmix);
}

static void drain_pmix(struct session *s)
{
    pmix_host_drain(&s->rendezvous->pmix);
}

static bool has_told_worker(const struct session *s, const struct worker *w)
{
    (void)w;
    return pmix_host_is_failing(&s->rendezvous->pmix);
}

static const struct session_server pmix_server = {
    .pid = pmix_pid, .end = end_pmix, .drain = drain_pmix, .has_told = has_told_worker};

const struct session_part session_part_rendezvous = {
    .name = "rendezvous",
    .state = SESSION_STATE(rendezvous),
    .open = open_timer,
    .prepare = open_rendezvous,
    .rank_ended = tell_rank_ended,
    .reaped = reap_pmix,
    .server = &pmix_server,
    .close = close_rendezvous,
};
