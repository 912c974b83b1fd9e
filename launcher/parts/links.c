/* Addresses of the data links of a job's hosts: collected from the hosts, told to all hosts when the last one
 * listens. There are two sets: the links of the engines (collectives) and of the sessions (rendezvous). */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define LINK_MAX (64u << 10) /* bytes of one host's addresses, decoded */

struct link_set {
    Hvd__Link **link; /* by index in the plan; NULL until that host listens */
    uint32_t count;
    uint32_t due; /* of the hosts with which the job begins: then all are told */
};

struct links_state {
    struct link_set engines, sessions;
    bool ordered; /* all sessions were told to listen */
    bool lost;    /* links of sessions broke, and the user knows why */
};

static struct links_state *state_of(const struct job *j)
{
    return job_state(j, &part_links);
}

static int open_sets(struct job *j, struct err *e)
{
    struct links_state *s = state_of(j);
    s->engines.link = calloc(j->room.hosts, sizeof(Hvd__Link *));
    s->sessions.link = calloc(j->room.hosts, sizeof(Hvd__Link *));
    s->engines.due = s->sessions.due = j->plan.host_count;
    if (s->engines.link && s->sessions.link)
        return 0;
    return err_set(e, ERR_MEMORY, "no memory for the links of %u hosts", j->plan.host_count);
}

static void free_set(const struct job *j, struct link_set *set)
{
    for (uint32_t i = 0; i < j->plan.host_count && set->link; i++)
        message_free(set->link[i]);
    free(set->link);
}

static void free_sets(struct job *j)
{
    free_set(j, &state_of(j)->engines);
    free_set(j, &state_of(j)->sessions);
}

/* Keeps the addresses of a host; true with the last host. */
static bool add_link(struct job *j, struct link_set *set, struct host *h, const Hvd__Link *m)
{
    if (set->link[h->plan_index])
        return false;
    size_t room = LINK_MAX;
    Hvd__Link *copy = message_copy(&m->base, &room);
    if (!copy) { /* the other hosts would wait for this one */
        struct err e = ERR_INIT;
        err_set(&e, ERR_MEMORY, "no memory for the %zu addresses of its data links (%u KiB at most)",
                m->n_address, LINK_MAX >> 10);
        host_give_up(h, &e);
        return false;
    }
    copy->host = h->plan_index;
    set->link[h->plan_index] = copy;
    return h->plan_index < set->due && ++set->count == set->due;
}

static Hvd__Links list_links(const struct link_set *set)
{
    Hvd__Links all = HVD__LINKS__INIT;
    all.link = set->link;
    all.n_link = set->due;
    return all;
}

const Hvd__Link *links_of_engine(const struct job *j, uint32_t plan_host)
{
    return state_of(j)->engines.link[plan_host];
}

static const char *on_engine_link(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct link_set *set = &state_of(j)->engines;
    bool complete = add_link(j, set, h, m->link);
    j->has_engines = set->count > 0;
    JOB_PARTS_CALL(j, engine_listens, j, h);
    if (!complete)
        return NULL;
    Hvd__Links all = list_links(set);
    CONTROL(told, LINKS, links, &all);
    job_send_all(j, &told);
    return NULL;
}

void links_order(struct job *j)
{
    state_of(j)->ordered = true;
    Hvd__LinkOrder order = HVD__LINK_ORDER__INIT;
    CONTROL(told, LINK_ORDER, link_order, &order);
    job_send_all(j, &told);
}

bool links_are_ordered(const struct job *j)
{
    return state_of(j)->ordered;
}

static const char *on_session_link(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct links_state *s = state_of(j);
    if (!s->ordered)
        return "nobody has asked for links";
    if (!add_link(j, &s->sessions, h, m->session_link))
        return NULL;
    Hvd__Links all = list_links(&s->sessions);
    CONTROL(told, SESSION_LINKS, session_links, &all);
    job_send_all(j, &told);
    return NULL;
}

/* The links of a session broke while its ranks needed them. The user is told the first reason. The other
 * hosts follow from the first, because a host without links also breaks the links of its neighbours. */
static const char *on_links_lost(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct links_state *s = state_of(j);
    if (!s->ordered)
        return "it had no links";
    bool first = !s->lost;
    s->lost = true;
    log_at(first ? LOG_WARNING : LOG_DEBUG,
           "%s: its ranks cannot wait for those of other hosts any more: %.700s", h->label,
           m->links_lost->text);
    return NULL;
}

static const struct job_message messages[] = {
    {HVD__CONTROL__BODY_LINK, true, on_engine_link},
    {HVD__CONTROL__BODY_SESSION_LINK, true, on_session_link},
    {HVD__CONTROL__BODY_LINKS_LOST, true, on_links_lost},
    {0, false, NULL},
};

const struct job_part part_links = {
    .state_size = sizeof(struct links_state),
    .message = messages,
    .placed = open_sets,
    .free = free_sets,
};
