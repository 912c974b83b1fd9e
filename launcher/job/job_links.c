#include "launcher/job/job_links.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/job/job_internal.h"

#define LINK_MAX (64u << 10) /* of a host, decoded: its addresses */

int job_links_init(struct job *j, struct job_links *links, struct err *e)
{
    links->link = calloc(j->plan.host_count, sizeof *links->link);
    return links->link ? 0
                       : err_set(e, ERR_MEMORY, "no memory for the links of %u hosts", j->plan.host_count);
}

void job_links_free(struct job *j, struct job_links *links)
{
    for (uint32_t i = 0; i < j->plan.host_count && links->link; i++)
        message_free(links->link[i]);
    free(links->link);
    *links = (struct job_links){0};
}

static void tell_all(struct job *j, const Hvd__Control *m)
{
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        host_send(job_host_of_plan(j, i), m);
}

/* True with the last one. */
static bool add(struct job *j, struct job_links *links, struct host *h, const Hvd__Link *m)
{
    if (links->link[h->plan_index])
        return false;
    size_t room = LINK_MAX;
    Hvd__Link *copy = message_copy(&m->base, &room);
    if (!copy) { /* the others would wait for it */
        struct err e = ERR_INIT;
        err_set(&e, ERR_MEMORY, "no memory for the %zu addresses of its data links (%u KiB at most)",
                m->n_address, LINK_MAX >> 10);
        host_give_up(h, &e);
        return false;
    }
    copy->host = h->plan_index;
    links->link[h->plan_index] = copy;
    return ++links->count == j->plan.host_count;
}

static Hvd__Links all_of(const struct job *j, const struct job_links *links)
{
    Hvd__Links all = HVD__LINKS__INIT;
    all.link = links->link;
    all.n_link = j->plan.host_count;
    return all;
}

void job_links_engine(struct job *j, struct host *h, const Hvd__Link *m)
{
    if (!add(j, &j->engine_links, h, m))
        return;
    Hvd__Links all = all_of(j, &j->engine_links);
    CONTROL(told, LINKS, links, &all);
    tell_all(j, &told);
}

void job_links_order(struct job *j)
{
    j->session_links.ordered = true;
    Hvd__LinkOrder order = HVD__LINK_ORDER__INIT;
    CONTROL(told, LINK_ORDER, link_order, &order);
    tell_all(j, &told);
}

const char *job_links_session(struct job *j, struct host *h, const Hvd__Link *m)
{
    if (!j->session_links.ordered)
        return "nobody has asked for links";
    if (!add(j, &j->session_links, h, m))
        return NULL;
    Hvd__Links all = all_of(j, &j->session_links);
    CONTROL(told, SESSION_LINKS, session_links, &all);
    tell_all(j, &told);
    return NULL;
}

const char *job_links_lost(struct job *j, struct host *h, const Hvd__Notice *m)
{
    if (!j->session_links.ordered)
        return "it had no links";
    bool first = !j->session_links.lost;
    j->session_links.lost = true;
    log_at(first ? LOG_WARNING : LOG_DEBUG,
           "%s: its ranks cannot wait for those of other hosts any more: %.700s", h->label, m->text);
    return NULL;
}
