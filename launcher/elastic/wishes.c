/* Wishes of users for an elastic job that runs: another number of ranks (hvdctl resize), or that the ranks
 * of a host leave (hvdctl leave and drain, a signal to the session). Ranks leave at their next commit. */
#include "common/base/log.h"
#include "common/status/status_server.h"
#include "launcher/elastic/elastic.h"
#include "launcher/elastic/state.h"

/* Ranks beyond the new number leave, the highest first; workers that are no ranks yet go before those. */
static void mark_surplus(struct job *j)
{
    const struct roster *r = &elastic_of(j)->roster;
    uint32_t living = roster_living(r), most = elastic_most(j);
    for (uint32_t i = r->count; i-- > 0 && living > most;)
        if (roster_rank_of(r, i) == UINT32_MAX && r->worker[i].phase != ROSTER_GONE && !r->worker[i].leaves) {
            growth_let_go(j, i);
            living--;
        }
    for (uint32_t i = r->size; i-- > 0 && living > most;) {
        const struct roster_worker *w = &r->worker[r->rank[i]];
        if (w->phase == ROSTER_MEMBER && !w->leaves) {
            growth_let_go(j, r->rank[i]);
            living--;
        }
    }
}

const char *elastic_ask_resize(struct job *j, uint32_t ranks, const char *by, char *why, size_t size)
{
    struct elastic *s = elastic_of(j);
    if (!j->config->elastic)
        return STATUS_NOT_ELASTIC;
    if (status_refuse_ranks(ranks, (uint32_t)j->config->min_np, (uint32_t)j->config->max_np, why, size))
        return why;
    if (!elastic_goes_on(j))
        return "the job ends";
    log_say("hvdrun: %.60s asks for %u rank%s (hvdctl resize)\n", by, ranks, ranks == 1 ? "" : "s");
    s->wanted = ranks;
    mark_surplus(j);
    elastic_note(j);
    return NULL;
}

const char *wish_resize(struct job *j, struct host *h, const Hvd__Control *m)
{
    static char why[120];
    (void)h;
    log_printable(m->resize->by);
    bool ends = j->config->elastic && !elastic_goes_on(j);
    return ends ? NULL : elastic_ask_resize(j, m->resize->ranks, m->resize->by, why, sizeof why);
}

const char *wish_leave(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct elastic *s = elastic_of(j);
    struct elastic_host *own = elastic_host_of(j, h);
    if (!j->config->elastic)
        return STATUS_NOT_ELASTIC;
    if (!elastic_goes_on(j) || own->leaves)
        return NULL;
    log_printable(m->leave->reason);
    log_say("hvdrun: the ranks on %s leave at their next commit: %.300s\n", h->label, m->leave->reason);
    own->leaves = true;
    growth_blame(j, h); /* it gets no new workers */
    for (uint32_t i = 0; h->planned && i < s->roster.count; i++)
        if (s->roster.worker[i].host == h->plan_index)
            growth_let_go(j, i);
    elastic_note(j);
    return NULL;
}
