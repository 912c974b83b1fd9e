/* --start-timeout: how long the start of the workers may take. Each step that shows progress (the
 * next host is asked for its lease, bytes of --preload arrive) begins the time anew. */
#include <stdio.h>

#include "common/base/clock.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

/* Without --wait an agent that has no room says so at once, so its notice of a queue excuses nothing. */
static bool may_wait(const struct job *j, const struct host *h)
{
    return *h->lease.waiting && j->config->wait_ms != JOB_WAIT_NO;
}

static bool is_late(const struct job *j, const struct host *h)
{
    if (!j->planned)
        return host_state(h) < HOST_READY && !may_wait(j, h) && (!*h->lease.node || h->lease.asked);
    if (j->fsm.state == JOB_PREPARING)
        return h->planned && job_is_preparing(j, h);
    return h->planned && !j->rank[j->plan.host[h->plan_index].rank[0]].started;
}

/* Names hosts that are late, four at most, and where they are. */
struct late {
    char text[400];
    size_t used;
    uint32_t count, nameless, silent; /* silent: no address of the host has answered */
};

static void add_late(struct late *late, struct host *h)
{
    late->nameless += h->name.why != NULL;
    late->silent += h->phase == TRANSPORT_CONNECT && host_state(h) == HOST_CONNECTING;
    if (late->count++ >= 4)
        return;
    size_t room = sizeof late->text - late->used;
    int n = snprintf(late->text + late->used, room, "%s%s (%s%s%s)", late->used ? ", " : "", h->label,
                     host_phase(h), h->name.why ? ": " : "", h->name.why ? h->name.why : "");
    late->used += n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static void on_start_limit(struct job *j)
{
    struct late late = {.count = 0};
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        h->late = is_late(j, h);
        if (h->late)
            add_late(&late, h);
    }
    if (late.count == 0) { /* the others wait for leases, which has a limit of its own */
        start_timeout_restart(j);
        return;
    }
    job_fault(j, clock_now(), 125,
              late.nameless == late.count ? UNRESOLVED_HINT
              : late.silent == late.count ? "no answer: is the host down, or a firewall between?"
                                          : "a longer --start-timeout gives slow hosts more time",
              "%s: the workers did not start within %.10g s (--start-timeout)%s", late.text,
              (double)j->config->start_timeout_ms / 1e3, late.count > 4 ? "; and others" : "");
}

void start_timeout_describe(const struct job *j, char *out, size_t size)
{
    struct late late = {.count = 0};
    for (uint32_t i = 0; i < j->host_count && j->fsm.state <= JOB_STARTING; i++) {
        struct host *h = &j->host[i];
        if (is_late(j, h) || (!j->planned && host_state(h) < HOST_READY))
            add_late(&late, h);
    }
    snprintf(out, size, "%s%s%s", late.count ? ", before the workers started: " : "", late.text,
             late.count > 4 ? " and others" : "");
}

void start_timeout_restart(struct job *j)
{
    job_timer_start(j, JOB_TIMER_START_LIMIT, (uint64_t)j->config->start_timeout_ms, on_start_limit);
}

static void end_start(struct job *j)
{
    job_timer_stop(j, JOB_TIMER_START_LIMIT);
}

const struct job_part part_start_timeout = {
    .start = start_timeout_restart,
    .started = end_start,
};
