/* Tells the hosts of a job which ranks have ended on other hosts. Engines and rendezvous servers then know
 * why a rank will not take part any more.
 *
 * Each host hears of each rank of the other hosts. Many ranks that end together are told together, because
 * one message for each would keep hundreds of hosts busy for seconds. The first bad end leaves at once,
 * with all ends that waited before it. Later ends wait until WINDOW_MS are over. So does the end of a rank
 * that had been told of a failure: the rank that failed is the cause, and is told first. */
#include <stdlib.h>

#include "common/base/log.h"
#include "launcher/job/core.h"
#include "launcher/job/outcome.h"
#include "launcher/parts/parts.h"

#define WINDOW_MS 20

struct rank_ends_state {
    uint32_t *rank; /* ranks that have ended and were not told yet */
    uint32_t count;
    bool urgent; /* a bad end was told within the last WINDOW_MS */
};

static struct rank_ends_state *state_of(const struct job *j)
{
    return job_state(j, &part_rank_ends);
}

static int open_ends(struct job *j, struct err *e)
{
    struct rank_ends_state *s = state_of(j);
    s->rank = calloc(j->room.ranks, sizeof *s->rank);
    return s->rank ? 0 : err_set(e, ERR_MEMORY, "no memory for the ends of %u ranks", j->plan.size);
}

static void free_ends(struct job *j)
{
    free(state_of(j)->rank);
}

static bool is_bad(const struct rank_end *end)
{
    return rank_end_failed(end) || end->by_us;
}

static bool is_cause(const struct rank_end *end)
{
    return is_bad(end) && !end->told_peer;
}

static void queue_end(struct job *j, uint32_t rank)
{
    const struct rank_end *end = &j->rank[rank].end;
    const struct host *origin = job_host_of_rank(j, rank);
    char cause[RANK_END_TEXT];
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

static void tell_ends(struct job *j)
{
    struct rank_ends_state *s = state_of(j);
    if (s->count == 0)
        return;
    log_debug("%u hosts are told of %u ranks that ended", j->plan.host_count, s->count);
    for (uint32_t i = 0; i < s->count; i++)
        if (is_cause(&j->rank[s->rank[i]].end))
            queue_end(j, s->rank[i]);
    for (uint32_t i = 0; i < s->count; i++)
        if (!is_cause(&j->rank[s->rank[i]].end))
            queue_end(j, s->rank[i]);
    s->count = 0;
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        host_flush(job_host_of_plan(j, i));
}

static void on_window_end(struct job *j)
{
    state_of(j)->urgent = false;
    tell_ends(j);
}

static void on_rank_ended(struct job *j, uint32_t rank)
{
    struct rank_ends_state *s = state_of(j);
    bool bad = is_bad(&j->rank[rank].end);
    if (j->plan.host_count < 2 || (!bad && !j->has_engines && !links_are_ordered(j)))
        return;
    s->rank[s->count++] = rank;
    if (is_cause(&j->rank[rank].end) && !s->urgent) {
        s->urgent = true;
        tell_ends(j);
    }
    if (!job_timer_runs(j, JOB_TIMER_RANK_ENDS))
        job_timer_start(j, JOB_TIMER_RANK_ENDS, WINDOW_MS, on_window_end);
}

/* A session needs links to the others and is told of every end from now on. It was not told before of ends
 * that were no fault. */
static const char *on_link_order(struct job *j, struct host *h, const Hvd__Control *m)
{
    (void)h, (void)m;
    if (!j->planned || links_are_ordered(j))
        return NULL;
    tell_ends(j);
    links_order(j);
    for (uint32_t i = 0; i < j->plan.size; i++)
        if (j->rank[i].ended && !is_bad(&j->rank[i].end))
            on_rank_ended(j, i);
    return NULL;
}

static const struct job_message messages[] = {
    {HVD__CONTROL__BODY_LINK_ORDER, true, on_link_order},
    {0, false, NULL},
};

const struct job_part part_rank_ends = {
    .state_size = sizeof(struct rank_ends_state),
    .message = messages,
    .placed = open_ends,
    .rank_ended = on_rank_ended,
    .free = free_ends,
};
