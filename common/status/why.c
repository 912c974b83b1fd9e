#include "common/status/why.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/protocol/message.h"
#include "common/status/where_text.h"

/* Of a tensor's operations, one in 64 is timed, and stands for all: too few of them tell nothing. */
#define TIMED_LEAST 2000
#define RANKS_MAX   65536u /* of a job: a host that says more is not believed */

/* ---- ranks --------------------------------------------------------------------------------------------- */

static uint32_t number_of(const Hvd__JobStatus *s, const Hvd__RankStatus *r)
{
    return s->elastic ? r->member : r->rank;
}

static const Hvd__Where *where_of(const Hvd__JobStatus *s, uint32_t worker)
{
    for (size_t i = 0; i < s->n_where; i++)
        if (s->where[i]->rank == worker)
            return s->where[i];
    return NULL;
}

static const Hvd__JobStatus *host_before(const struct why_look *l, const Hvd__JobStatus *s)
{
    for (size_t i = 0; i < l->before.count; i++)
        if (l->before.host[i]->host_index == s->host_index)
            return l->before.host[i];
    return NULL;
}

static const Hvd__RankStatus *rank_before(const struct why_look *l, const Hvd__JobStatus *s,
                                          const Hvd__RankStatus *r)
{
    const Hvd__JobStatus *then = host_before(l, s);
    for (size_t i = 0; then && i < then->n_rank; i++)
        if (then->rank[i]->rank == r->rank)
            return then->rank[i];
    return NULL;
}

/* At the first look; without one, before a tool has come to the process and traces it. */
static const char *state_of(const Hvd__RankStatus *r, const Hvd__RankStatus *before, const Hvd__Where *where)
{
    if (r->ended)
        return r->state;
    if (before)
        return before->state;
    bool same = where && where->n_process > 0 && where->process[0]->pid == r->pid;
    return same ? where->process[0]->state : r->state;
}

static const Hvd__RankTime *time_of(const Hvd__JobStatus *s, uint32_t rank)
{
    for (size_t i = 0; s && s->counters && i < s->counters->n_rank; i++)
        if (s->counters->rank[i]->rank == rank)
            return s->counters->rank[i];
    return NULL;
}

static uint64_t ns_in_operations(const Hvd__JobStatus *s, uint32_t rank)
{
    const Hvd__RankTime *time = time_of(s, rank);
    return time ? time->ns : 0;
}

static uint64_t count_operations(const Hvd__JobStatus *s, uint32_t rank)
{
    const Hvd__RankTime *time = time_of(s, rank);
    return time ? time->operations : 0;
}

static double share_of(uint64_t now, uint64_t before, uint64_t ms)
{
    return now > before && ms > 0 ? (double)(now - before) / (double)ms : 0;
}

/* Between the two answers of a host's engine; 0: it has not answered twice. Tools take their time after the
 * engine has answered, and on a busy host an answer may be late, and an older one stand for it. */
static uint64_t ms_between_counts(const struct why_look *l, const Hvd__JobStatus *s,
                                  const Hvd__JobStatus *then)
{
    if (!s->counters || !then || !then->counters || l->now.at < l->before.at)
        return 0;
    uint64_t last = l->now.at / NSEC_PER_MSEC - s->counters_ms;
    uint64_t first = l->before.at / NSEC_PER_MSEC - then->counters_ms;
    return last > first ? last - first : 0;
}

/* Of a host; NULL: it was never too hot. */
static void add_heat(struct why_use *use, const Hvd__Heat *now, const Hvd__Heat *before, uint64_t ms)
{
    if (!now)
        return;
    use->hot = share_of(now->ms, before ? before->ms : 0, ms);
    use->heats = 1000 * share_of(now->events, before ? before->events : 0, ms);
}

/* The tools take their time between the two looks, so a rank's own time counts. */
static void add_shares(const struct why_look *l, const Hvd__JobStatus *s, struct why_rank *out,
                       const Hvd__RankStatus *r, const Hvd__RankStatus *before)
{
    uint64_t ms = r->run_ms - before->run_ms;
    const Hvd__JobStatus *then = host_before(l, s);
    out->use.computes = share_of(r->cpu_ms, before->cpu_ms, ms);
    out->use.delayed = share_of(r->delay_ms, before->delay_ms, ms);
    out->use.throttled = share_of(r->throttled_ms, before->throttled_ms, ms);
    why_add_handicap(&out->use, r->handicap);
    add_heat(&out->use, s->heat, then ? then->heat : NULL, ms);
    uint64_t between = ms_between_counts(l, s, then);
    if (between > 0)
        out->use.resent = 1000 * share_of(s->counters->resent, then->counters->resent, between);
    if (between > 0 && count_operations(s, out->rank) >= count_operations(then, out->rank) + TIMED_LEAST)
        out->in_operations = share_of(ns_in_operations(s, out->rank) / 1000,
                                      ns_in_operations(then, out->rank) / 1000, between * 1000);
}

static void add_ranks(struct why_look *l, const Hvd__JobStatus *s)
{
    for (size_t i = 0; i < s->n_rank; i++) {
        const Hvd__RankStatus *r = s->rank[i], *before = rank_before(l, s, r);
        uint32_t number = number_of(s, r);
        if (number >= l->job.size)
            continue;
        l->job.rank[number] = (struct why_rank){.rank = number,
                                                .host = s->host,
                                                .pid = r->pid,
                                                .state = state_of(r, before, where_of(s, r->rank)),
                                                .ended = r->ended,
                                                .initialized = r->initialized,
                                                .shut_down = r->shut_down,
                                                .lateness = r->lateness,
                                                .in_operations = -1,
                                                .is_unknown = !s->looked,
                                                .where = where_of(s, r->rank)};
        if (before && r->run_ms > before->run_ms)
            add_shares(l, s, &l->job.rank[number], r, before);
    }
}

static bool is_of(const struct why_rank *r, const char *host)
{
    return r->host && host && strcmp(r->host, host) == 0;
}

/* The rank whose host, which is not that one, sends most again; NULL: no rank of another host has told. */
static const struct why_rank *find_resender(const struct why_job *job, const char *but)
{
    const struct why_rank *most = NULL;
    for (uint32_t i = 0; i < job->size; i++)
        if (job->rank[i].host && !is_of(&job->rank[i], but) &&
            (!most || job->rank[i].use.resent > most->use.resent))
            most = &job->rank[i];
    return most;
}

/* A packet that is lost on its way to a host is sent again by another one. */
static void add_losses(struct why_job *job)
{
    const struct why_rank *most = find_resender(job, NULL);
    const struct why_rank *second = most ? find_resender(job, most->host) : NULL;
    for (uint32_t i = 0; most && i < job->size; i++) {
        const struct why_rank *other = is_of(&job->rank[i], most->host) ? second : most;
        job->rank[i].use.lost_to = other ? other->use.resent : 0;
    }
}

static void add_counts(const Hvd__JobStatus *s, uint64_t *operations, uint64_t *bytes)
{
    for (size_t i = 0; s->counters && i < s->counters->n_collective; i++)
        *operations += s->counters->collective[i]->operations;
    *bytes += s->counters ? s->counters->sent : 0;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

/* Of all hosts that tell of it. NULL: there are too many, or no memory. */
static struct why_operation *find_operation(struct why_look *l, const Hvd__Pending *p)
{
    struct why_job *j = &l->job;
    for (size_t i = 0; i < j->operations; i++)
        if (l->operation[i].set == p->set && strcmp(l->operation[i].tensor, p->tensor) == 0)
            return &l->operation[i];
    if (j->operations == WHY_OPERATIONS)
        return NULL;
    struct why_operation o = {.tensor = p->tensor,
                              .kind = p->kind,
                              .set = p->set,
                              .arrived = calloc(j->size, 1),
                              .missing = calloc(j->size, 1)};
    if (!o.arrived || !o.missing) {
        free(o.arrived);
        free(o.missing);
        return NULL;
    }
    if (p->set == 0)
        memset(o.missing, 1, j->size); /* of hosts, too, on which no rank knows the name */
    l->operation[j->operations] = o;
    return &l->operation[j->operations++];
}

static void mark_ranks(uint8_t *ranks, uint32_t size, const uint32_t *list, size_t count, uint8_t value)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] < size)
            ranks[list[i]] = value;
}

static void add_operations(struct why_look *l, const Hvd__JobStatus *s)
{
    for (size_t i = 0; s->counters && i < s->counters->n_pending; i++) {
        const Hvd__Pending *p = s->counters->pending[i];
        struct why_operation *o = find_operation(l, p);
        if (!o)
            continue;
        o->ms = p->ms > o->ms ? p->ms : o->ms;
        if (o->here == 0)
            mark_ranks(o->missing, l->job.size, p->member, p->n_member, 1);
        mark_ranks(o->arrived, l->job.size, p->arrived, p->n_arrived, 1);
        o->here += (uint32_t)p->n_arrived;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct why_operation *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void settle_operations(struct why_look *l)
{
    for (size_t i = 0; i < l->job.operations; i++) {
        struct why_operation *o = &l->operation[i];
        o->here = o->expected = 0;
        for (uint32_t r = 0; r < l->job.size; r++) {
            o->missing[r] = o->missing[r] && !o->arrived[r] && !l->job.rank[r].is_unknown;
            o->here += o->arrived[r];
            o->expected += o->arrived[r] || o->missing[r];
        }
    }
    qsort(l->operation, l->job.operations, sizeof *l->operation, by_time);
    l->job.operation = l->operation;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static bool is_silent(const Hvd__JobStatus *s)
{
    return strcmp(s->phase, "no answer") == 0;
}

static int fill_job(struct why_look *l, struct err *e)
{
    struct why_job *j = &l->job;
    uint64_t operations = 0, bytes = 0;
    for (size_t i = 0; i < l->now.count; i++)
        j->size = l->now.host[i]->size > j->size ? l->now.host[i]->size : j->size;
    if (j->size > RANKS_MAX)
        return err_set(e, ERR_PROTOCOL, "the job says that it has %u ranks", j->size);
    j->rank = calloc(j->size ? j->size : 1, sizeof *j->rank);
    j->silent = calloc(l->now.count ? l->now.count : 1, sizeof *j->silent);
    l->why.culprit = calloc(j->size ? j->size : 1, 1);
    if (!j->rank || !j->silent || !l->why.culprit)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", j->size);
    for (uint32_t i = 0; i < j->size; i++)
        j->rank[i] = (struct why_rank){.rank = i, .state = "unknown", .in_operations = -1};
    for (size_t i = 0; i < l->now.count; i++) {
        const Hvd__JobStatus *s = l->now.host[i];
        add_ranks(l, s);
        add_operations(l, s);
        add_counts(s, &j->ended, &j->bytes);
        uint64_t interval = ms_between_counts(l, s, host_before(l, s));
        j->interval_ms = interval > j->interval_ms ? interval : j->interval_ms;
        j->counted = j->counted || s->counters;
        j->deaf = s->looked || s->n_rank == 0 ? j->deaf : s->host;
        j->has_stacks = j->has_stacks || s->tool[0];
        if (is_silent(s))
            j->silent[j->silents++] = s->host;
    }
    add_losses(j);
    for (size_t i = 0; i < l->before.count; i++)
        add_counts(l->before.host[i], &operations, &bytes);
    bool compared = l->before.count > 0;
    j->ended = compared && j->ended > operations ? j->ended - operations : 0;
    j->bytes = compared && j->bytes > bytes ? j->bytes - bytes : 0;
    settle_operations(l);
    return 0;
}

void why_printable(Hvd__JobStatus *status)
{
    size_t n = status->n_where;
    for (size_t i = 0; i < n; i++)
        where_printable(status->where[i]);
    status->n_where = 0; /* a stack has lines, which message_printable would join */
    message_printable(&status->base);
    status->n_where = n;
}

int why_find(struct why_look *l, struct err *e)
{
    if (fill_job(l, e) != 0)
        return -1;
    why_judge(&l->job, &l->why);
    return 0;
}

void why_free(struct why_look *l)
{
    for (size_t i = 0; i < l->job.operations; i++) {
        free(l->operation[i].arrived);
        free(l->operation[i].missing);
    }
    free(l->job.rank);
    free(l->job.silent);
    free(l->why.culprit);
}
