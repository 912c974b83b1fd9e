#include "launcher/parts/dns_wait.h"

#include <stdio.h>

#include "common/base/log.h"
#include "launcher/job/job_internal.h"

#define GATHER_MS 100
#define NAMED     8

static bool waits(const struct host *h)
{
    return h->unresolved && host_state(h) == HOST_CONNECTING;
}

/* One line for all that were not told yet. */
static void tell(uv_timer_t *timer)
{
    struct job *j = timer->data;
    char names[600] = "";
    const char *why = NULL;
    size_t used = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        if (!waits(h) || h->unresolved_told)
            continue;
        h->unresolved_told = true;
        why = why ? why : h->unresolved;
        if (count++ >= NAMED)
            continue;
        int n = snprintf(names + used, sizeof names - used, "%s%.60s", used ? ", " : "", h->label);
        used += n > 0 && (size_t)n < sizeof names - used ? (size_t)n : 0;
    }
    if (count == 0)
        return;
    char others[40] = "";
    if (count > NAMED)
        snprintf(others, sizeof others, " and %u others", count - NAMED);
    log_say("hvdrun: %s%s %s not resolve yet (%s); trying until %.10g s after the start (--start-timeout)\n",
            names, others, count == 1 ? "does" : "do", why, (double)j->config->start_timeout_ms / 1e3);
}

/* A host that gets no rank may have faults as it likes, but which those are is not known before all are
 * there. */
static bool is_lost_anyway(const struct job *j)
{
    bool faulty = j->outcome.failed;
    for (uint32_t i = 0; i < j->host_count && !faulty; i++)
        faulty = j->host[i].told && j->host[i].told->n_problem > 0;
    return faulty;
}

void unresolved_settle(struct job *j)
{
    if (j->fsm.state != JOB_CONNECTING || !is_lost_anyway(j))
        return;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        struct err e = ERR_INIT;
        if (!waits(h))
            continue;
        err_set(&e, ERR_HOST, "cannot resolve host %s: %s", h->label, h->unresolved);
        err_hint(&e, UNRESOLVED_HINT);
        host_give_up(h, &e);
    }
}

void unresolved_add(struct job *j, struct host *h)
{
    log_debug("%s: cannot be resolved: %s", h->label, h->unresolved);
    unresolved_settle(j);
    if (waits(h) && !h->err.code && !uv_is_active((uv_handle_t *)&j->gathering))
        uv_timer_start(&j->gathering, tell, GATHER_MS, 0);
}
