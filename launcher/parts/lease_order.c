/* --wait: hosts of a daemon that has no room wait for a lease.
 *
 * A job that waits on several hosts first learns which node each host is. Then it asks the hosts for their
 * leases one after the other, in the order of the nodes. A job that holds leases while it waits then waits
 * only for nodes behind those that it holds. So jobs never wait for each other in a circle, whatever names
 * they use for the nodes. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/host/host_words.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

struct lease_order_state {
    struct host **host;   /* the held hosts, in the order of their nodes once all are held; NULL: no order */
    uint32_t count, next; /* `next` is asked next */
};

static struct lease_order_state *state_of(const struct job *j)
{
    return job_state(j, &part_lease_order);
}

static void on_wait_limit(struct job *j)
{
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        if (host_state(h) != HOST_GREETING || !*h->lease.waiting)
            continue;
        job_fault(j, clock_now(), 125, NULL, "%s: %.10g s are over (--wait): still %s", h->label,
                  (double)j->config->wait_ms / 1e3, h->lease.waiting);
        return;
    }
}

void lease_order_waiting(struct job *j, struct host *h)
{
    if (!*h->lease.waiting) { /* its session starts */
        start_timeout_restart(j);
        return;
    }
    if (host_words_take(&h->words, h->label, clock_now()))
        log_say("hvdrun: %s: %s\n", h->label, h->lease.waiting);
    if (j->config->wait_ms > 0 && !job_timer_runs(j, JOB_TIMER_WAIT_LIMIT))
        job_timer_start(j, JOB_TIMER_WAIT_LIMIT, (uint64_t)j->config->wait_ms, on_wait_limit);
}

/* By node; where two names are one node, by the names' places. */
static int compare_nodes(const void *a, const void *b)
{
    const struct host *left = *(struct host *const *)a, *right = *(struct host *const *)b;
    int rc = strcmp(left->lease.node, right->lease.node);
    return rc ? rc : left->index < right->index ? -1 : left->index > right->index;
}

static int open_order(struct job *j, struct err *e)
{
    struct lease_order_state *s = state_of(j);
    if (j->config->wait_ms == JOB_WAIT_NO || j->config->agent == AGENT_JOB || j->host_count < 2)
        return 0;
    s->host = malloc(j->room.hosts * sizeof(struct host *));
    if (!s->host)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", j->host_count);
    j->common.hold = true;
    return 0;
}

/* Those without a managed agent have no leases, and are ready by themselves. */
static bool all_are_held(const struct job *j)
{
    const struct lease_order_state *s = state_of(j);
    uint32_t ready = 0;
    for (uint32_t i = 0; i < j->host_count; i++)
        ready += !*j->host[i].lease.node && host_state(&j->host[i]) >= HOST_READY;
    return s->count + ready == j->host_count;
}

static void ask_next(struct job *j)
{
    struct lease_order_state *s = state_of(j);
    if (j->fsm.state != JOB_CONNECTING || j->outcome.failed || s->next == s->count ||
        (s->next == 0 && !all_are_held(j)))
        return;
    if (s->next == 0)
        qsort(s->host, s->count, sizeof *s->host, compare_nodes);
    else if (host_state(s->host[s->next - 1]) < HOST_READY)
        return;
    struct host *h = s->host[s->next++];
    log_debug("%s is asked for a lease", h->label);
    start_timeout_restart(j); /* for each of them */
    host_go(h);
}

void lease_order_held(struct job *j, struct host *h)
{
    struct lease_order_state *s = state_of(j);
    s->host[s->count++] = h;
    h->lease.held = true;
    job_start_hosts(j);
    ask_next(j);
}

/* The host is ready or closed: the next one may be asked. */
static void release_host(struct job *j, struct host *h)
{
    if (!state_of(j)->host)
        return;
    h->lease.held = false;
    ask_next(j);
}

static void on_host_ready(struct job *j, struct host *h, const Hvd__Welcome *w)
{
    (void)w;
    release_host(j, h);
}

static void free_order(struct job *j)
{
    free(state_of(j)->host);
}

const struct job_part part_lease_order = {
    .state_size = sizeof(struct lease_order_state),
    .open = open_order,
    .host_ready = on_host_ready,
    .host_closed = release_host,
    .free = free_order,
};
