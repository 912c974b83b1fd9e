/* The rings of this host's ranks: operations whose last member has arrived.
 *
 * On one host these are large asynchronous ones; the engine takes chunks of them, one a turn, until none is
 * left. It takes part only while the claim word carries the operation, which a member has set before. With
 * several hosts every operation comes, in the order of its slot, and goes on to the other hosts. */
#include "collectives/engine/local.h"

#include <stdio.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/joins.h"
#include "collectives/engine/names.h"
#include "collectives/engine/remote.h"
#include "collectives/shm/ring.h"
#include "common/base/log.h"

/* One host: the members have offered an operation; its number stands in the claim word. */
static void take_offer(struct engine *engine, uint32_t slot)
{
    struct tensor_view *v = names_view(engine, slot);
    struct tensor_resolver resolver = {segments_resolve, engine};
    uint32_t sequence = v ? (uint32_t)(atomic_load(&v->slot->claim) >> 32) : 0;
    if (!v || engine->help.count == SHM_SLOTS || v->sequence == sequence)
        return; /* the waiting members do it themselves, or two came last at once and both said so */
    tensor_begin(v, sequence);
    char text[SHM_TEXT_MAX];
    if (!tensor_arrived(v) ||
        tensor_open(v, engine->names.name[slot].text, &resolver, text, sizeof text) != HVD_SUCCESS ||
        v->place != SHM_SEGMENT || op_is_adasum(&v->op) || tensor_is_over(v)) {
        tensor_begin(v, sequence); /* no chunks */
        return; /* finished meanwhile, or the members will find the same error; Adasum's one is too long here
                 */
    }
    engine->names.name[slot].helped = true;
    engine->help.slot[(engine->help.first + engine->help.count++) % SHM_SLOTS] = slot;
}

/* Takes what lies in the rings. true: something did. */
static bool collect_rings(struct engine *engine)
{
    bool took = false;
    for (uint32_t i = 0; i < engine->workers.members; i++) {
        uint32_t slot;
        int rc;
        while ((rc = ring_take(&region_mailbox(&engine->region, i)->ready, &slot)) == 1) {
            took = true;
            joins_arrived(engine, slot);
            if (engine->names.name[slot].set && engine->names.name[slot].set->readiness)
                remote_complete(engine, slot);
            else
                take_offer(engine, slot);
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

/* Takes one chunk. true: there may be more. */
static bool help_once(struct engine *engine)
{
    struct name *n;

    if (engine->help.count == 0)
        return false;
    n = &engine->names.name[engine->help.slot[engine->help.first]];
    if (region_poisoned(&engine->region) || !tensor_work(&n->view)) {
        n->helped = false;
        engine->help.first = (engine->help.first + 1) % SHM_SLOTS;
        engine->help.count--;
    }
    return engine->help.count > 0;
}

static void progress_local(struct engine *engine, struct turn *turn)
{
    turn->active = collect_rings(engine) || turn->active;
    turn->helped = engine->help.count > 0;
    turn->more = help_once(engine) || turn->more;
}

static void forget_chunks(struct engine *engine)
{
    engine->help.count = 0;
}

const struct engine_part local_part = {.progress = progress_local, .epoch_end = forget_chunks};
