/* The session between its workers' rendezvous, the links to other sessions and the launcher. */
#include <signal.h>
#include <string.h>

#include "agent/session/host_facts.h"
#include "agent/session/session.h"
#include "agent/worker/processors.h"
#include "common/base/log.h"

#define ABORT_MS       500 /* then a rank that has asked for the end is killed */
#define SILENCE_MIN_MS 5000
#define SAID_LINES     100

static void on_links_needed(void *ctx)
{
    Hvd__LinkOrder order = HVD__LINK_ORDER__INIT;
    CONTROL(m, LINK_ORDER, link_order, &order);
    session_send(ctx, &m);
}

static void on_links_listening(void *ctx, Hvd__Link *link)
{
    CONTROL(m, SESSION_LINK, session_link, link);
    session_send(ctx, &m);
}

static void on_links_failed(void *ctx, const struct err *why)
{
    session_fault(ctx, "%s", why->text);
}

/* Workers that are being ended may wait for each other, and nobody wants to hear of that. */
static void on_links_lost(void *ctx, const struct err *why)
{
    struct session *s = ctx;
    if (s->fsm.state >= SESSION_ENDING)
        return;
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.text = (char *)(uintptr_t)why->text;
    CONTROL(m, LINKS_LOST, links_lost, &notice);
    session_send(s, &m);
}

static void on_notice(void *ctx, uint32_t level, const char *text)
{
    session_notice(ctx, level, "%s", text);
}

static void on_abort_late(uv_timer_t *timer)
{
    struct session *s = timer->data;
    for (size_t i = 0; i < s->workers.count; i++)
        if (s->workers.item[i].aborted && s->workers.item[i].alive)
            (void)kill(-s->workers.item[i].pid, SIGKILL);
}

/* The rank ends with the status that it asked for, whatever it does now; and soon. One that has ended as if
 * all were well is a failure too when its library says so. */
static void on_abort(void *ctx, uint32_t rank, uint32_t status, const char *text)
{
    struct session *s = ctx;
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
        session_notice(s, LOG_WARNING, "rank %u: %s", rank, text);
        return;
    }
    (void)kill(-w->pid, SIGTERM);
    if (!uv_is_active((uv_handle_t *)&s->abort_timer))
        uv_timer_start(&s->abort_timer, on_abort_late, ABORT_MS, 0);
}

static void on_signal(void *ctx, uint32_t rank, int number)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    log_info("signal %d for rank %u, in the name of another rank", number, rank);
    if (w && w->alive)
        (void)kill(-w->pid, number);
}

/* One line of what there was no room for; what ranks say in this way is bounded for all of them together. */
static void say_line(struct session *s, uint32_t rank, const char *line, size_t len)
{
    if (s->said >= SAID_LINES || len == 0)
        return;
    s->said++;
    session_notice(s, LOG_WARNING, "rank %u: %.*s%s", rank, (int)len, line,
                   s->said == SAID_LINES ? " [more of this is not shown]" : "");
}

/* It becomes output of the rank, between what the rank writes itself. Each line is a warning instead where
 * that cannot be: the rank has closed its output, does not get rid of it, or has a terminal. */
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
        say_line(s, rank, text + at, line);
        at += line + 1;
    }
}

static void on_failed(void *ctx, const char *text)
{
    struct session *s = ctx;
    if (s->fsm.state >= SESSION_ENDING || s->workers.alive == 0)
        session_notice(s, LOG_WARNING, "%s", text);
    else
        session_fault(s, "%s", text);
}

static const struct session_links_events links_events = {on_links_needed, on_links_listening, on_links_failed,
                                                         on_links_lost};
static const struct rendezvous_events rendezvous_events = {on_notice, on_abort, on_signal, on_said,
                                                           on_failed};

int session_rendezvous_open(struct session *s, struct err *e)
{
    struct session_links_job job = {.job = s->job,
                                    .epoch = s->spawn->epoch,
                                    .key = s->secrets->key,
                                    .self = s->spawn->host_index,
                                    .hosts = (uint32_t)s->spawn->n_host,
                                    .host = s->spawn->host,
                                    .address = s->address,
                                    .addresses = s->address_count,
                                    .ports = s->ports.range,
                                    .heartbeat_ms = s->heartbeat_ms,
                                    .encrypt = s->encrypt};
    if (session_links_init(&s->links, &s->loop, &job, &links_events, s, e) < 0)
        return -1;
    s->rendezvous =
        (struct rendezvous){.loop = &s->loop,
                            .spawn = s->spawn,
                            .job = s->job,
                            .host = s->host,
                            .wdir = s->wdir,
                            .directory = s->dir.path,
                            .exchange = s->links.exchange,
                            .pmix = &s->pmix,
                            .cgroup_fd = s->containment.fd,
                            .silence_ms = s->heartbeat_ms > SILENCE_MIN_MS ? s->heartbeat_ms : SILENCE_MIN_MS,
                            .events = &rendezvous_events,
                            .ctx = s};
    struct rendezvous_values *v = &s->rendezvous.values;
    v->crowded = processors_are_short(s->cpus, s->spawn->n_worker);
    if (!s->chosen && s->reached_at && s->address_count > 0) /* a way that leads there, at least */
        host_interfaces(&s->reached_at, 1, v->interface, sizeof v->interface);
    if (!*v->interface)
        host_interfaces(s->address, s->address_count ? 1 : 0, v->interface, sizeof v->interface);
    if (s->chosen)
        host_interfaces(s->address, s->address_count, v->chosen_interfaces, sizeof v->chosen_interfaces);
    return rendezvous_open(&s->rendezvous, e);
}

void session_rendezvous_close(struct session *s)
{
    rendezvous_close(&s->rendezvous);
    session_links_close(&s->links);
    pmix_host_close(&s->pmix);
}
