/* How long a job waits to start: --start-timeout, and before it --wait for managed agents that have no room.
 *
 * A job that waits on several hosts has them asked one after the other, in the order of their names: whoever
 * holds leases while he waits then waits for hosts behind all of those that he holds, so that no circle of
 * jobs can wait for each other. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "launcher/job_state.h"
#include "launcher/unresolved.h"

/* ---- --start-timeout ------------------------------------------------------------------------------------
 */

static bool is_late(const struct job *j, const struct host_run *h)
{
    if (!j->planned)
        return host_state(h) < HOST_READY && !*h->waiting && (!j->order || host_state(h) != HOST_QUEUED);
    if (j->fsm.state == JOB_PRELOADING)
        return h->planned && !h->preload.done;
    return h->planned && !j->rank[j->plan.host[h->plan_index].rank[0]].started;
}

/* Names the hosts that are late, and where they are. */
static void on_start_limit(uv_timer_t *timer)
{
    struct job *j = timer->data;
    char late[400] = "";
    size_t used = 0;
    uint32_t count = 0, nameless = 0;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host_run *h = &j->host[i];
        h->late = is_late(j, h);
        nameless += h->late && h->unresolved;
        if (!h->late || count++ >= 4)
            continue;
        int n = snprintf(late + used, sizeof late - used, "%s%s (%s%s%s)", used ? ", " : "", h->label,
                         host_phase(h), h->unresolved ? ": " : "", h->unresolved ? h->unresolved : "");
        used += n > 0 && (size_t)n < sizeof late - used ? (size_t)n : 0;
    }
    if (count == 0) { /* the others wait for leases, which has a limit of its own */
        job_start_limit(j);
        return;
    }
    job_fault(j, clock_now(), 125,
              nameless == count ? UNRESOLVED_HINT : "a longer --start-timeout gives slow hosts more time",
              "%s: the workers did not start within %.10g s (--start-timeout)%s", late,
              (double)j->config->start_timeout_ms / 1e3, count > 4 ? "; and others" : "");
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

/* ---- --wait ---------------------------------------------------------------------------------------------
 */

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
    log_say("hvdrun: %s: %s\n", h->label, h->waiting);
    if (j->config->wait_ms > 0 && !uv_is_active((uv_handle_t *)&j->wait_limit))
        uv_timer_start(&j->wait_limit, on_wait_limit, (uint64_t)j->config->wait_ms, 0);
}

/* The first label of a host's name; an address is one. Whatever people call this host, it has one name. */
static void short_name(const struct job *j, uint32_t i, char name[64])
{
    const char *text = j->list->host[i].name;
    if (hosts_is_local(&j->list->host[i], j->common.hostname))
        text = j->common.hostname;
    bool address = strchr(text, ':') || text[strspn(text, "0123456789.")] == '\0';
    size_t len = address ? strlen(text) : strcspn(text, ".");
    snprintf(name, 64, "%.*s", (int)len, text);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
}

static int compare(const void *a, const void *b, void *ctx)
{
    char left[64], right[64];
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    short_name(ctx, i, left);
    short_name(ctx, k, right);
    int rc = strcmp(left, right);
    return rc ? rc : i < k ? -1 : i > k;
}

int job_waiting_order(struct job *j, struct err *e)
{
    if (j->config->wait_ms == JOB_WAIT_NO || j->config->agent == AGENT_JOB || j->host_count < 2)
        return 0;
    j->order = malloc(j->host_count * sizeof *j->order);
    if (!j->order)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", j->host_count);
    for (uint32_t i = 0; i < j->host_count; i++)
        j->order[i] = i;
    qsort_r(j->order, j->host_count, sizeof *j->order, compare, j);
    return 0;
}
