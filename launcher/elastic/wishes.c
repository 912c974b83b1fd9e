/* Wishes of users for an elastic job that runs: another number of ranks (hvdctl resize), or that the ranks
 * of a host leave (hvdctl leave and drain, a signal to the session). Ranks leave at their next commit. */
#include "common/base/log.h"
#include "launcher/elastic/elastic.h"
#include "launcher/elastic/state.h"

static const char NOT_ELASTIC[] = "the job is not elastic";

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

const char *wish_resize(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct elastic *s = elastic_of(j);
    uint32_t ranks = m->resize->ranks;
    if (!j->config->elastic)
        return NOT_ELASTIC;
    if (ranks < (uint64_t)j->config->min_np || (j->config->max_np && ranks > (uint64_t)j->config->max_np))
        return "that many ranks are not allowed";
    if (!elastic_goes_on(j))
        return NULL;
    log_printable(m->resize->by);
    log_say("hvdrun: %.60s asks for %u rank%s (hvdctl resize)\n", m->resize->by, ranks,
            ranks == 1 ? "" : "s");
    s->wanted = ranks;
    mark_surplus(j);
    elastic_note(j);
    return NULL;
}

const char *wish_leave(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct elastic *s = elastic_of(j);
    struct elastic_host *own = elastic_host_of(j, h);
    if (!j->config->elastic)
        return NOT_ELASTIC;
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
