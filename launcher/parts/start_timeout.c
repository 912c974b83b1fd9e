/* How long a job waits to start: --start-timeout, and before it --wait for managed agents that have no room.
 *
 * A job that waits on several hosts first hears from each which node it is (LeaseHeld), and then has them
 * asked one after the other, in the order of that: whoever holds leases while he waits then waits for nodes
 * behind all of those that he holds, so that no circle of jobs can wait for each other, whatever they call
 * the nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/job_internal.h"
#include "launcher/parts/dns_wait.h"

/* ---- --start-timeout ----------------------------------------------------------------------------------- */

/* Without --wait an agent that has no room says so at once: its word that we are to wait is no reason to. */
static bool may_wait(const struct job *j, const struct host_run *h)
{
    return *h->waiting && j->config->wait_ms != JOB_WAIT_NO;
}

static bool is_late(const struct job *j, const struct host_run *h)
{
    if (!j->planned)
        return host_state(h) < HOST_READY && !may_wait(j, h) && (!*h->node || h->asked);
    if (j->fsm.state == JOB_PRELOADING)
        return h->planned && !h->preload.done;
    return h->planned && !j->rank[j->plan.host[h->plan_index].rank[0]].started;
}

/* Names hosts that are late, four at most, and where they are. */
struct late {
    char text[400];
    size_t used;
    uint32_t count, nameless;
};

static void add_late(struct late *late, struct host_run *h)
{
    late->nameless += h->unresolved != NULL;
    if (late->count++ >= 4)
        return;
    size_t room = sizeof late->text - late->used;
    int n = snprintf(late->text + late->used, room, "%s%s (%s%s%s)", late->used ? ", " : "", h->label,
                     host_phase(h), h->unresolved ? ": " : "", h->unresolved ? h->unresolved : "");
    late->used += n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static void on_start_limit(uv_timer_t *timer)
{
    struct job *j = timer->data;
    struct late late = {.count = 0};
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host_run *h = &j->host[i];
        h->late = is_late(j, h);
        if (h->late)
            add_late(&late, h);
    }
    if (late.count == 0) { /* the others wait for leases, which has a limit of its own */
        job_start_limit(j);
        return;
    }
    job_fault(j, clock_now(), 125,
              late.nameless == late.count ? UNRESOLVED_HINT
                                          : "a longer --start-timeout gives slow hosts more time",
              "%s: the workers did not start within %.10g s (--start-timeout)%s", late.text,
              (double)j->config->start_timeout_ms / 1e3, late.count > 4 ? "; and others" : "");
}

void job_waiting_tell(const struct job *j, char *out, size_t size)
{
    struct late late = {.count = 0};
    for (uint32_t i = 0; i < j->host_count && j->fsm.state <= JOB_STARTING; i++) {
        struct host_run *h = &j->host[i];
        if (is_late(j, h) || (!j->planned && host_state(h) < HOST_READY))
            add_late(&late, h);
    }
    snprintf(out, size, "%s%s%s", late.count ? ", before the workers started: " : "", late.text,
             late.count > 4 ? " and others" : "");
}

void job_start_limit(struct job *j)
{
    j->start_limit.data = j;
    uv_timer_start(&j->start_limit, on_start_limit, (uint64_t)j->config->start_timeout_ms, 0);
}

void job_preload_moved(struct job *j)
{
    if (j->preload.count > 0)
        job_start_limit(j);
}

/* ---- --wait -------------------------------------------------------------------------------------------- */

static void on_wait_limit(uv_timer_t *timer)
{
    struct job *j = timer->data;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host_run *h = &j->host[i];
        if (host_state(h) != HOST_GREETING || !*h->waiting)
            continue;
        job_fault(j, clock_now(), 125, NULL, "%s: %.10g s are over (--wait): still %s", h->label,
                  (double)j->config->wait_ms / 1e3, h->waiting);
        return;
    }
}

void job_waiting(struct job *j, struct host_run *h)
{
    if (!*h->waiting) { /* its session starts */
        job_start_limit(j);
        return;
    }
    if (host_words_take(&h->words, h->label, clock_now()))
        log_say("hvdrun: %s: %s\n", h->label, h->waiting);
    if (j->config->wait_ms > 0 && !uv_is_active((uv_handle_t *)&j->wait_limit))
        uv_timer_start(&j->wait_limit, on_wait_limit, (uint64_t)j->config->wait_ms, 0);
}

/* By node; where two names are one node, by the names' places. */
static int compare(const void *a, const void *b)
{
    const struct host_run *left = *(struct host_run *const *)a, *right = *(struct host_run *const *)b;
    int rc = strcmp(left->node, right->node);
    return rc ? rc : left->index < right->index ? -1 : left->index > right->index;
}

int job_waiting_order(struct job *j, struct err *e)
{
    if (j->config->wait_ms == JOB_WAIT_NO || j->config->agent == AGENT_JOB || j->host_count < 2)
        return 0;
    j->held_host = malloc(j->host_count * sizeof(struct host_run *));
    if (!j->held_host)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", j->host_count);
    j->common.hold = true;
    return 0;
}

/* Those without a managed agent have no leases, and are ready by themselves. */
static bool all_are_held(const struct job *j)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < j->host_count; i++)
        ready += !*j->host[i].node && host_state(&j->host[i]) >= HOST_READY;
    return j->held_count + ready == j->host_count;
}

static void ask_next(struct job *j)
{
    if (j->fsm.state != JOB_CONNECTING || j->outcome.failed || j->next_to_ask == j->held_count ||
        (j->next_to_ask == 0 && !all_are_held(j)))
        return;
    if (j->next_to_ask == 0)
        qsort(j->held_host, j->held_count, sizeof *j->held_host, compare);
    else if (host_state(j->held_host[j->next_to_ask - 1]) < HOST_READY)
        return;
    struct host_run *h = j->held_host[j->next_to_ask++];
    log_debug("%s is asked for a lease", h->label);
    job_start_limit(j); /* for each of them */
    host_go(h);
}

void job_held(struct job *j, struct host_run *h)
{
    j->held_host[j->held_count++] = h;
    h->held = true;
    j->held++;
    job_start_hosts(j);
    ask_next(j);
}

void job_held_no_more(struct job *j, struct host_run *h)
{
    if (!j->held_host)
        return;
    j->held -= h->held;
    h->held = false;
    ask_next(j);
}
