#include "agent/daemon/admission/admission.h"

#include <stdio.h>

#include "agent/daemon/core.h"
#include "agent/daemon/sessions.h"
#include "agent/gpu/gpu.h"
#include "agent/guard/job_dir.h"

const char *admission_closed(struct daemon *d)
{
    static char text[2 * GPU_FAULT_TEXT + 64];
    char why[2 * GPU_FAULT_TEXT];
    if (daemon_drained(d)[0])
        snprintf(text, sizeof text, "it is drained: %s", daemon_drained(d));
    else if (gpu_watch_refuses(&d->gpus, why, sizeof why)[0])
        snprintf(text, sizeof text, "it is not healthy: %s", why);
    else
        return NULL;
    return text;
}

/* ---- a lease ------------------------------------------------------------------------------------------- */

static int check_request(const struct client *c, const Hvd__LeaseRequest *request, struct err *e)
{
    struct daemon *d = c->daemon;
    if (c->fds != 1 + DAEMON_DESCRIPTORS)
        return err_set(e, ERR_PROTOCOL, "a request without its descriptors");
    if (request->protocol != DAEMON_PROTOCOL)
        return err_set(e, ERR_VERSION, "hvdagent attach speaks version %u, the managed agent version %u",
                       request->protocol, DAEMON_PROTOCOL);
    if (!daemon_config_allows(&d->config, c->uid, c->groups, c->group_count))
        return err_set(e, ERR_HOST, "%s may not run jobs there", c->user);
    const char *why = admission_closed(d);
    if (why)
        return err_set(e, ERR_HOST, "%s", why);
    if (c->uid != 0 && request->priority > d->config.max_priority)
        return err_set(e, ERR_HOST, "%s may not ask for priority %u, the highest is %d (max_priority)",
                       c->user, request->priority, (int)d->config.max_priority);
    return job_dir_check_name(request->job, e);
}

enum client_event admission_grant(struct client *c, const struct lease *lease)
{
    char gpus[GPU_SET_TEXT], got[GPU_SET_TEXT + 48];
    if (leases_add(&c->daemon->leases, lease, &c->refusal) < 0)
        return EV_REFUSED;
    snprintf(c->unit, sizeof c->unit, "%s", lease->unit);
    c->daemon->metrics.given++;
    snprintf(got, sizeof got, "gets %u slot%s%s%s", lease->slots, lease->slots == 1 ? "" : "s",
             lease->gpus ? ", GPUs " : "", gpu_set_text(lease->gpus, gpus));
    daemon_log_job(c->daemon, lease, got);
    return EV_ADMITTED;
}

/* Requests in the queue come first. A client that would not wait does so for a moment: systemd may still be
 * clearing away a job whose hvdrun has returned. */
static enum client_event decide_turn(struct client *c)
{
    struct daemon *d = c->daemon;
    struct lease lease;
    enum lease_verdict verdict;
    queue_add(&d->queue, &c->entry);
    if (queue_next(&d->queue, &d->leases, &d->rules, &lease, &verdict, &c->refusal) == &c->entry) {
        queue_remove(&d->queue, &c->entry);
        return verdict == LEASE_GIVEN ? admission_grant(c, &lease) : EV_REFUSED;
    }
    err_clear(&c->refusal);
    if (leases_admit(&d->leases, &d->rules, &c->entry.want, &lease, &c->refusal) != LEASE_NEVER) {
        err_clear(&c->refusal);
        size_t most = c->entry.patient ? (size_t)d->config.max_waiting : SIZE_MAX / 2;
        if (queue_may_wait(&d->queue, &c->entry, most, &c->refusal) == 0)
            return EV_QUEUED;
    }
    queue_remove(&d->queue, &c->entry);
    return EV_REFUSED;
}

static enum client_event decide_lease(struct client *c, const Hvd__LeaseRequest *request)
{
    if (check_request(c, request, &c->refusal) < 0)
        return EV_REFUSED;
    snprintf(c->job, sizeof c->job, "%s", request->job);
    c->entry.want = (struct lease_want){
        .job = c->job, .user = c->user, .uid = c->uid, .slots = request->slots, .fewer = request->fewer};
    c->entry.priority = request->priority;
    c->entry.patient = request->wait;
    return decide_turn(c);
}

/* ---- other wishes -------------------------------------------------------------------------------------- */

static enum client_event decide_drain(struct client *c, const Hvd__AgentDrain *drain)
{
    if (c->uid != 0)
        err_set(&c->refusal, ERR_HOST, "only root may drain a node");
    else
        daemon_drain(c->daemon, !drain->on ? "" : drain->reason[0] ? drain->reason : "by root", &c->refusal);
    return c->refusal.code ? EV_REFUSED : EV_ASKED;
}

/* A report has no reply. */
static enum client_event take_report(struct client *c, const Hvd__SessionReport *report)
{
    struct err e = ERR_INIT;
    if (sessions_report(c->daemon, c->uid, report, &e) < 0)
        daemon_complain(c->daemon, c, e.text);
    return EV_BROKEN;
}

/* For what is so now. */
static enum client_event decide_gpus(struct client *c, bool accepts)
{
    if (accepts && c->uid != 0) {
        err_set(&c->refusal, ERR_HOST, "only root may accept GPUs");
        return EV_REFUSED;
    }
    c->about = accepts ? CLIENT_ACCEPTS_GPUS : CLIENT_ASKS_GPUS;
    return gpu_watch_fresh(&c->daemon->gpus) ? EV_ASKED : EV_CHECK;
}

enum client_event admission_decide(struct client *c, const Hvd__Daemon *m)
{
    switch (m->body_case) {
    case HVD__DAEMON__BODY_REQUEST:
        return decide_lease(c, m->request);
    case HVD__DAEMON__BODY_QUERY:
        return m->query->gpus ? decide_gpus(c, false) : EV_ASKED;
    case HVD__DAEMON__BODY_ACCEPT:
        return decide_gpus(c, true);
    case HVD__DAEMON__BODY_DRAIN:
        return decide_drain(c, m->drain);
    case HVD__DAEMON__BODY_REPORT:
        return take_report(c, m->report);
    default:
        err_set(&c->refusal, ERR_PROTOCOL, "that is no request");
        return EV_REFUSED;
    }
}
