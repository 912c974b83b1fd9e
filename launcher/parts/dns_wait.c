/* Hosts whose names have no address yet, as those of pods that are being made. A name that does not exist is
 * looked up until --resolve-timeout, since most such names are misspelt. A name for which no server answers
 * is looked up until --start-timeout. The user is told at once; many hosts are told in one line. When
 * something else is wrong with the job, the wait ends and each such host is a fault. */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define GATHER_MS 100
#define NAMED     8

/* The state of a host. */
struct name_state {
    bool told;      /* the user was told that the name does not resolve yet */
    uint64_t since; /* the first of the last look-ups that all found no such name; 0: none yet */
};

static bool waits_for_name(const struct host *h)
{
    return h->name.why && host_state(h) == HOST_CONNECTING;
}

/* One line for all hosts that were not told yet. */
static void tell_user(struct job *j)
{
    char names[600] = "";
    const char *why = NULL;
    size_t used = 0;
    uint32_t count = 0, unknown = 0;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        struct name_state *s = job_host_state(j, &part_dns_wait, h);
        if (!waits_for_name(h) || s->told)
            continue;
        s->told = true;
        why = why ? why : h->name.why;
        unknown += h->name.unknown;
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
    if (unknown == count)
        log_say("hvdrun: %s%s %s not resolve (%s); trying for %.10g s (--resolve-timeout)\n", names, others,
                count == 1 ? "does" : "do", why, (double)j->config->resolve_timeout_ms / 1e3);
    else
        log_say("hvdrun: %s%s %s not resolve yet (%s); trying until %.10g s after the start "
                "(--start-timeout)\n",
                names, others, count == 1 ? "does" : "do", why, (double)j->config->start_timeout_ms / 1e3);
}

static void give_up(struct host *h)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_HOST, "%s: %s", h->name.unknown ? "no such host" : "cannot resolve its name",
            h->name.why);
    err_hint(&e, "%s%s", UNRESOLVED_HINT,
             h->name.unknown ? "; --resolve-timeout waits longer for a name that is being made" : "");
    host_give_up(h, &e);
}

static bool is_too_late(const struct job *j, const struct host *h, struct name_state *s)
{
    if (!h->name.unknown || s->since == 0)
        s->since = clock_now();
    return h->name.unknown &&
           clock_now() - s->since >= (uint64_t)j->config->resolve_timeout_ms * NSEC_PER_MSEC;
}

/* When something else is wrong with the job, hosts without an address are given up: each is a fault of its
 * host, to be told with the other faults. A host that gets no rank may have any fault, but before all
 * hosts are ready nobody knows which hosts get none. */
static void settle_names(struct job *j)
{
    if (j->fsm.state != JOB_CONNECTING || (!j->outcome.failed && !preflight_has_problem(j)))
        return;
    for (uint32_t i = 0; i < j->host_count; i++) {
        if (waits_for_name(&j->host[i]))
            give_up(&j->host[i]);
    }
}

void dns_wait_add(struct job *j, struct host *h)
{
    struct name_state *s = job_host_state(j, &part_dns_wait, h);
    log_debug("%s: cannot be resolved: %s", h->label, h->name.why);
    settle_names(j);
    if (waits_for_name(h) && !h->err.code && is_too_late(j, h, s))
        give_up(h);
    else if (waits_for_name(h) && !h->err.code && !s->told && !job_timer_runs(j, JOB_TIMER_DNS))
        job_timer_start(j, JOB_TIMER_DNS, GATHER_MS, tell_user);
}

static void on_host_ready(struct job *j, struct host *h, const Hvd__Welcome *w)
{
    (void)h, (void)w;
    settle_names(j);
}

static void on_host_closed(struct job *j, struct host *h)
{
    (void)h;
    settle_names(j);
}

const struct job_part part_dns_wait = {
    .host_state_size = sizeof(struct name_state),
    .host_ready = on_host_ready,
    .host_closed = on_host_closed,
};
