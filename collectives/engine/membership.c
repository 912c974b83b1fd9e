#include "collectives/engine/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/hosts.h"
#include "collectives/engine/peers.h"
#include "collectives/engine/reinit.h"
#include "common/base/log.h"
#include "common/protocol/host_ranks.h"

#define NO_HOST UINT32_MAX

int membership_open(struct engine *engine, bool newcomer)
{
    engine->membership = calloc(1, sizeof *engine->membership);
    if (!engine->membership)
        return -1;
    engine->membership->alone = newcomer;
    engine->membership->first = engine->membership->newest = engine->epoch;
    return 0;
}

/* ---- from the session ---------------------------------------------------------------------------------- */

static bool has_workers(const Hvd__Membership *m)
{
    for (size_t i = 0; i < m->n_host; i++)
        if (m->host[i]->n_worker != m->host[i]->ranks || m->host[i]->ranks > SHM_MEMBERS_MAX)
            return false;
    return true;
}

static int check_membership(const struct engine *engine, const Hvd__Membership *m, struct err *e)
{
    if (!engine->membership || m->number <= engine->membership->newest)
        return err_set(e, ERR_PROTOCOL, "the session names membership %u behind %u", m->number,
                       engine->membership ? engine->membership->newest : 0);
    if (m->n_host == 0 || m->n_link != m->n_host || !has_workers(m) ||
        (m->host_index != NO_HOST && m->host_index >= m->n_host))
        return err_set(e, ERR_PROTOCOL, "membership %u is not complete", m->number);
    return hosts_check_ranks(m->host, m->n_host, m->size, e);
}

int membership_take(struct engine *engine, const Hvd__Membership *m, struct err *e)
{
    struct memberships *s = engine->membership;
    size_t room = 16u << 20;
    if (check_membership(engine, m, e) != 0)
        return -1;
    Hvd__Membership *copy = message_copy(&m->base, &room);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for membership %u", m->number);
    message_free(s->waiting);
    s->waiting = copy;
    s->newest = m->number;
    atomic_store(&engine->region.header->next_membership, m->number);
    log_info("membership %u: %u ranks on %zu hosts%s", m->number, m->size, m->n_host,
             m->at_once ? ", at once" : "");
    if (m->at_once && !s->alone && !engine->finished)
        engine_poison(engine, HVD_ERR_PEER, *m->reason ? m->reason : "the job has other ranks from now on");
    return 0;
}

/* ---- the next epoch ------------------------------------------------------------------------------------ */

static int make_table(const struct engine *engine, const Hvd__Membership *m, struct host_table *t,
                      struct err *e)
{
    const struct host *here = &engine->host[engine->self];
    return m->host_index == NO_HOST
               ? host_table_alone(t, here->name, here->id, e)
               : host_table_make(t, m->host, (uint32_t)m->n_host, m->host_index, m->size, e);
}

/* Places of the former epoch, for all parts. `old`: the table of that epoch. */
static int find_places(const struct engine *engine, const struct host_table *old, uint32_t *host_was,
                       uint32_t *member_was)
{
    const struct host *here = &engine->host[engine->self], *before = &old->host[old->self];
    if (!host_was || !member_was)
        return -1;
    for (uint32_t i = 0; i < engine->hosts; i++) {
        host_was[i] = NO_HOST;
        for (uint32_t k = 0; k < old->hosts; k++)
            if (old->host[k].id == engine->host[i].id)
                host_was[i] = k;
        if (host_was[i] != NO_HOST)
            engine->host[i].sends = old->host[host_was[i]].sends;
    }
    for (uint32_t i = 0; i < here->ranks; i++) {
        member_was[i] = UINT32_MAX;
        for (uint32_t k = 0; before->worker && k < before->ranks; k++)
            if (before->worker[k] == here->worker[i] && here->worker[i] != UINT32_MAX)
                member_was[i] = k;
    }
    return 0;
}

static int regroup_parts(struct engine *engine, const struct host_table *old, struct err *e)
{
    uint32_t *host_was = calloc(engine->hosts, sizeof *host_was);
    uint32_t *member_was = calloc(engine->host[engine->self].ranks, sizeof *member_was);
    struct engine_regroup g = {host_was, member_was, old->host[old->self].ranks, engine->membership->alone};
    int rc = find_places(engine, old, host_was, member_was);
    rc = rc == 0 ? engine_parts_regroup(engine, &g, e)
                 : err_set(e, ERR_MEMORY, "no memory for the next ranks");
    free(host_was);
    free(member_was);
    return rc;
}

static int begin_membership(struct engine *engine, const Hvd__Membership *m, struct err *e)
{
    struct host_table table;
    if (make_table(engine, m, &table, e) < 0)
        return -1;
    engine_parts_end(engine);
    region_unmap(&engine->region);
    close(engine->region_fd);
    engine->region_fd = -1;
    engine->started = engine->finished = false;
    engine->epoch = m->number;
    host_table_swap(engine, &table);
    int rc = regroup_parts(engine, &table, e);
    if (rc == 0)
        rc = engine_make_region(engine, e);
    if (rc == 0)
        rc = engine_parts_begin(engine, e);
    host_table_free(&table);
    engine->membership->alone = m->host_index == NO_HOST;
    return rc;
}

static bool may_begin(struct engine *engine)
{
    const struct memberships *s = engine->membership;
    if (!s->waiting || engine->loop.failed)
        return false;
    return s->alone || region_poisoned(&engine->region) || reinit_is_over(engine);
}

static void begin_if_due(struct engine *engine, struct turn *turn)
{
    struct memberships *s = engine->membership;
    struct err e = ERR_INIT;
    if (__builtin_expect(!s, 1) || !may_begin(engine))
        return;
    Hvd__Membership *m = s->waiting;
    s->waiting = NULL;
    log_debug("membership %u begins", m->number);
    if (begin_membership(engine, m, &e) == 0) {
        if (m->host_index != NO_HOST)
            peers_meet(engine, m->link, m->n_link);
        s->seats = true;
        peers_take_early(engine);
    } else { /* no rank here can be told anything: they see that the engine has gone */
        engine_fault(engine, e.text);
        engine->loop.ended = true;
    }
    message_free(m);
    turn->more = true;
}

static void free_memberships(struct engine *engine)
{
    if (engine->membership)
        message_free(engine->membership->waiting);
    free(engine->membership);
    engine->membership = NULL;
}

const struct engine_part membership_part = {.progress = begin_if_due, .free = free_memberships};
