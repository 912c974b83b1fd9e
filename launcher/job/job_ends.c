/* Each host hears of each rank of the others: many ranks that end together are told together, or the messages
 * alone would keep hundreds of hosts busy for seconds. The first bad end leaves at once, with all that waited
 * before it; what follows within WINDOW_MS waits for the end of that time. */
#include "launcher/job/job_ends.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "launcher/job/job_internal.h"

#define WINDOW_MS 20

int job_ends_init(struct job *j, struct err *e)
{
    j->ends.rank = calloc(j->plan.size, sizeof *j->ends.rank);
    return j->ends.rank ? 0 : err_set(e, ERR_MEMORY, "no memory for the ends of %u ranks", j->plan.size);
}

void job_ends_free(struct job *j)
{
    free(j->ends.rank);
}

static bool is_bad(const struct rank_end *end)
{
    return rank_end_failed(end) || end->by_us;
}

static void queue_end(struct job *j, uint32_t rank)
{
    const struct rank_end *end = &j->rank[rank].end;
    const struct host *origin = job_host_of_plan(j, j->plan.rank[rank].host);
    char cause[200];
    rank_end_describe(end, cause, sizeof cause);
    Hvd__RankEnded told = HVD__RANK_ENDED__INIT;
    told.rank = rank;
    told.host = (char *)(uintptr_t)origin->label;
    told.pid = end->pid;
    told.failed = is_bad(end);
    told.cause = cause;
    CONTROL(m, RANK_ENDED, rank_ended, &told);
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        if (job_host_of_plan(j, i) != origin)
            host_queue(job_host_of_plan(j, i), &m);
}

static void tell_all(struct job *j)
{
    if (j->ends.count == 0)
        return;
    log_debug("%u hosts are told of %u ranks that ended", j->plan.host_count, j->ends.count);
    for (uint32_t i = 0; i < j->ends.count; i++)
        queue_end(j, j->ends.rank[i]);
    j->ends.count = 0;
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        host_flush(job_host_of_plan(j, i));
}

static void on_window_end(uv_timer_t *timer)
{
    struct job *j = timer->data;
    j->ends.urgent = false;
    tell_all(j);
}

void job_ends_tell(struct job *j, uint32_t rank)
{
    struct job_ends *n = &j->ends;
    bool bad = is_bad(&j->rank[rank].end);
    if (j->plan.host_count < 2 || (!bad && j->engine_links.count == 0 && !j->session_links.ordered))
        return;
    n->rank[n->count++] = rank;
    if (bad && !n->urgent) {
        n->urgent = true;
        tell_all(j);
    }
    if (!uv_is_active((uv_handle_t *)&n->timer))
        uv_timer_start(&n->timer, on_window_end, WINDOW_MS, 0);
}

/* Of ends that were no fault the sessions have not heard before. */
void job_ends_order(struct job *j)
{
    if (!j->planned || j->session_links.ordered)
        return;
    tell_all(j);
    job_links_order(j);
    for (uint32_t i = 0; i < j->plan.size; i++)
        if (j->rank[i].ended && !is_bad(&j->rank[i].end))
            job_ends_tell(j, i);
}
