/* What this host's ranks have put into their rings: operations whose last member has arrived.
 *
 * On one host these are large asynchronous ones; the engine takes chunks of them, one a turn, until none is
 * left. It takes part only while the claim word carries the operation, which a member has set before. With
 * several hosts every operation comes, in the order of its slot, and goes on to the other hosts. */
#include <stdio.h>

#include "collectives/engine/engine.h"
#include "collectives/shm/ring.h"
#include "common/base/log.h"

struct tensor_view *local_view(struct engine *engine, uint32_t slot)
{
    struct name *n = &engine->name[slot];

    if (!n->text)
        return NULL;
    if (!n->has_view &&
        tensor_view_init(&n->view, &engine->region, n->set->team, slot, n->set->team->members) == 0)
        n->has_view = true;
    return n->has_view ? &n->view : NULL;
}

/* One host: the members have offered an operation; its number stands in the claim word. */
static void offered(struct engine *engine, uint32_t slot)
{
    struct tensor_view *v = local_view(engine, slot);
    struct tensor_resolver resolver = {segments_resolve, engine};
    char text[SHM_TEXT_MAX];
    uint32_t sequence = v ? (uint32_t)(atomic_load(&v->slot->claim) >> 32) : 0;

    if (!v || engine->help_count == SHM_SLOTS || v->sequence == sequence)
        return; /* the waiting members do it themselves, or two came last at once and both said so */
    tensor_begin(v, sequence);
    if (!tensor_arrived(v) ||
        tensor_open(v, engine->name[slot].text, &resolver, text, sizeof text) != HVD_SUCCESS ||
        v->place != SHM_SEGMENT || op_is_adasum(&v->op) || tensor_is_over(v)) {
        tensor_begin(v, sequence); /* no chunks */
        return; /* finished meanwhile, or the members will find the same error; Adasum's one is too long here
                 */
    }
    engine->help[(engine->help_first + engine->help_count++) % SHM_SLOTS] = slot;
}

bool local_collect(struct engine *engine)
{
    bool took = false;

    for (uint32_t i = 0; i < engine->members; i++) {
        uint32_t slot;
        int rc;
        while ((rc = ring_take(&region_mailbox(&engine->region, i)->ready, &slot)) == 1) {
            took = true;
            joins_arrived(engine, slot);
            if (engine->name[slot].set && engine->name[slot].set->readiness)
                remote_complete(engine, slot);
            else
                offered(engine, slot);
        }
        if (rc < 0 && !region_poisoned(&engine->region)) {
            char text[SHM_TEXT_MAX];
            snprintf(text, sizeof text, "rank %u on %.100s has overwritten its shared memory",
                     engine->region.rank[i], engine->host[engine->self].name);
            engine_poison(engine, HVD_ERR_PEER, text);
        }
    }
    return took;
}

bool local_help(struct engine *engine)
{
    struct tensor_view *v;

    if (engine->help_count == 0)
        return false;
    v = &engine->name[engine->help[engine->help_first]].view;
    if (region_poisoned(&engine->region) || !tensor_work(v)) {
        engine->help_first = (engine->help_first + 1) % SHM_SLOTS;
        engine->help_count--;
    }
    return engine->help_count > 0;
}
