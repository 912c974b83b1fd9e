#include "agent/daemon/core.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/daemon/admission/client.h"
#include "common/base/clock.h"
#include "common/base/log.h"

/* ---- the log ------------------------------------------------------------------------------------------- */

bool daemon_may_log(struct log_limit *limit, unsigned lines_a_second)
{
    uint64_t now = clock_now();
    if (!limit->since || now - limit->since >= NSEC_PER_SEC) {
        limit->since = now;
        limit->said = 0;
    }
    if (limit->said >= lines_a_second) {
        limit->unsaid++;
        return false;
    }
    limit->said++;
    return true;
}

void daemon_complain(struct daemon *d, const struct client *c, const char *what)
{
    if (!daemon_may_log(&d->complaints, 1))
        return;
    if (c)
        log_warning("pid %d of uid %u %s (%u more such lines were left out)", (int)c->pid, (unsigned)c->uid,
                    what, d->complaints.unsaid);
    else
        log_warning("cannot accept connections: %s (%u more such lines were left out)", what,
                    d->complaints.unsaid);
    d->complaints.unsaid = 0;
}

void daemon_log_job(struct daemon *d, const struct lease *lease, const char *what)
{
    char text[512], name[HOST_NAME_MAX + 1] = "";
    char job[128], user[128], host[HOST_NAME_MAX + 8], unit[160], slots[32];
    const char *fields[] = {job, user, host, unit, slots, NULL};
    if (!log_enabled(LOG_INFO))
        return;
    (void)gethostname(name, sizeof name - 1);
    snprintf(text, sizeof text, "%s: job %s of %s %s", lease->unit, lease->job, lease->user, what);
    snprintf(job, sizeof job, "JOB=%s", lease->job);
    snprintf(user, sizeof user, "JOB_USER=%s", lease->user);
    snprintf(host, sizeof host, "HOST=%s", name);
    snprintf(unit, sizeof unit, "HVD_UNIT=%s", lease->unit);
    snprintf(slots, sizeof slots, "SLOTS=%u", lease->slots);
    if (!journal_line(&d->journal, JOURNAL_INFO, text, fields))
        log_info("%s", text);
}

/* ---- the queue ----------------------------------------------------------------------------------------- */

static void on_queue_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    d->events->serve_queue(d);
}

void daemon_serve_queue_in(struct daemon *d, uint64_t ms)
{
    uv_timer_start(&d->queue_timer, on_queue_timer, ms, 0);
}

void daemon_queue_changed(struct daemon *d)
{
    daemon_serve_queue_in(d, 0);
}

void daemon_core_init(struct daemon *d, const struct daemon_events *events)
{
    d->events = events;
    d->journal = (struct journal)JOURNAL_INIT;
    uv_timer_init(&d->loop, &d->queue_timer);
    d->queue_timer.data = d;
}

/* ---- root's word --------------------------------------------------------------------------------------- */

const char *daemon_drained(const struct daemon *d)
{
    return d->drained[0] ? d->drained : d->config.drain ? d->config.drain : "";
}

void daemon_drain(struct daemon *d, const char *reason, struct err *e)
{
    if (drain_write(d->config.directory, reason, e) < 0)
        return;
    drain_read(d->config.directory, d->drained);
    daemon_queue_changed(d);
    log_info("%s%s", d->drained[0] ? "drained: " : "new jobs are taken again", d->drained);
}
