/* The operations that ranks of this host are in at this moment. Every tensor is looked at: in most jobs all
 * ranks are on their way to the same few of them. Those that have waited longest are told, and of the others
 * the number. */
#include <stdlib.h>

#include "collectives/engine/counters.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/names.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/stalls/stalls.h"
#include "common/base/clock.h"

#define TOLD        8
#define MEMBERS_MAX 1024u /* of a set that are told */

struct waiting {
    uint64_t since; /* UINT64_MAX: not known */
    uint32_t slot, operation;
    uint8_t kind;
};

struct pending {
    struct waiting waiting[TOLD];
    Hvd__Pending item[TOLD], *list[TOLD];
    uint32_t *next; /* the free part of `ranks` */
    uint32_t ranks[];
};

struct pending *pending_make(const struct engine *engine)
{
    size_t each = engine->workers.members + (engine->size < MEMBERS_MAX ? engine->size : MEMBERS_MAX);
    struct pending *p = calloc(1, sizeof *p + TOLD * each * sizeof *p->ranks);
    if (p)
        p->next = p->ranks;
    return p;
}

/* The longest first. Returns how many there are. */
static uint32_t find_waiting(const struct engine *engine, struct waiting *waiting)
{
    uint32_t all = 0;
    for (uint32_t slot = 0; slot < engine->names.count; slot++) {
        struct waiting w = {.slot = slot};
        if (!stalls_is_under_way(engine, slot, &w.operation, &w.kind))
            continue;
        bool known = engine->stall.slot[slot].operation == w.operation && engine->stall.slot[slot].since;
        w.since = known ? engine->stall.slot[slot].since : UINT64_MAX;
        uint32_t at = all++;
        for (at = at < TOLD ? at : TOLD; at > 0 && waiting[at - 1].since > w.since; at--)
            if (at < TOLD)
                waiting[at] = waiting[at - 1];
        if (at < TOLD)
            waiting[at] = w;
    }
    return all;
}

static void list_ranks(const struct engine *engine, struct pending *p, const struct waiting *w,
                       Hvd__Pending *out)
{
    const struct team *team = engine->names.name[w->slot].set->team;
    for (int missing = 0; missing <= 1; missing++) {
        uint32_t *first = p->next;
        for (uint32_t i = 0; i < team->members; i++)
            if (stalls_is_missing(engine, w->slot, i, w->operation) == (missing == 1))
                *p->next++ = team_rank(team, i);
        *(missing ? &out->missing : &out->arrived) = first;
        *(missing ? &out->n_missing : &out->n_arrived) = (size_t)(p->next - first);
    }
    out->member = p->next;
    for (uint32_t i = 0; team->id != 0 && i < team->size && i < MEMBERS_MAX; i++)
        *p->next++ = team->rank[i];
    out->n_member = (size_t)(p->next - out->member);
}

void pending_fill(const struct engine *engine, struct pending *p, Hvd__Counters *out)
{
    uint64_t now = clock_now();
    out->looked = true;
    out->pendings = region_poisoned(&engine->region) ? 0 : find_waiting(engine, p->waiting);
    out->pending = p->list;
    for (; out->n_pending < TOLD && out->n_pending < out->pendings; out->n_pending++) {
        const struct waiting *w = &p->waiting[out->n_pending];
        Hvd__Pending *t = p->list[out->n_pending] = &p->item[out->n_pending];
        hvd__pending__init(t);
        t->tensor = engine->names.name[w->slot].text;
        t->set = engine->names.name[w->slot].set->team->id;
        t->kind = (char *)(uintptr_t)(t->set < 0 ? "hvd_send or hvd_recv" : op_kind_name(w->kind));
        t->operation = w->operation;
        t->ms = w->since == UINT64_MAX ? 0 : (now - w->since) / NSEC_PER_MSEC;
        list_ranks(engine, p, w, t);
    }
}
