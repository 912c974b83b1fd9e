#include "collectives/engine/forget.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/timeline.h"
#include "collectives/shm/worker_socket.h"
#include "common/base/clock.h"

#define PATIENCE_NS (10 * NSEC_PER_SEC) /* without a free slot, for members that have yet to wait */
#define FEW         (SHM_SLOTS / 4)     /* slots: the members are asked when no more than these are free */

bool forget_begin(struct engine *engine)
{
    struct holding *h = &engine->names.holding;

    *h = (struct holding){.words = (engine->host[engine->self].ranks + 63) / 64, .ask_at = FEW};
    h->member = calloc((size_t)SHM_SLOTS * h->words, sizeof *h->member);
    return h->member != NULL;
}

void forget_end(struct engine *engine)
{
    free(engine->names.holding.member);
    engine->names.holding.member = NULL;
}

static uint64_t *word_of(struct engine *engine, uint32_t slot, uint32_t member)
{
    struct holding *h = &engine->names.holding;

    return &h->member[(size_t)slot * h->words + member / 64];
}

static uint64_t bit_of(uint32_t member)
{
    return 1ull << (member % 64);
}

/* ---- forgetting ---------------------------------------------------------------------------------------- */

/* All members of this host have ended the same operation, and the ranks in hvd_join take part in none. */
static bool is_together(const struct engine *engine, const struct name *n)
{
    const struct tensor_view *v = &n->view;
    uint32_t latest = v->team->members > 0 ? tensor_latest(v, 0) : 0;

    for (uint32_t i = 1; i < v->team->members; i++)
        if (tensor_latest(v, i) != latest)
            return false;
    if (engine->hosts > 1 && n->set->readiness && atomic_load(&v->slot->settled) != latest)
        return false;
    return (int32_t)(n->wanted - latest) <= 0;
}

static bool may_go(struct engine *engine, uint32_t slot)
{
    const struct name *n = &engine->names.name[slot];

    if (slot < SHM_SLOT_FIRST || !n->text || n->held > 0 || slot == engine->names.join_slot)
        return false;
    if (n->announced || n->running || n->helped || n->watched)
        return false;
    return names_view(engine, slot) && is_together(engine, n);
}

static bool forget_name(struct engine *engine, uint32_t slot)
{
    const struct team *team = engine->names.name[slot].text ? engine->names.name[slot].set->team : NULL;

    if (!may_go(engine, slot))
        return false;
    region_clear_slot(&engine->region, slot, team->local, team->members);
    memset(&engine->stall.slot[slot], 0, sizeof engine->stall.slot[slot]);
    engine_timeline_forget(engine, slot);
    names_drop(engine, slot);
    engine->names.holding.freed++;
    return true;
}

/* true: slots are free now. */
static bool forget_unheld(struct engine *engine)
{
    for (uint32_t slot = SHM_SLOT_FIRST; slot < engine->names.count; slot++)
        forget_name(engine, slot);
    return engine->names.free > 0;
}

/* ---- asking -------------------------------------------------------------------------------------------- */

static bool have_answered(const struct engine *engine, uint32_t wanting)
{
    for (uint32_t i = 0; i < engine->workers.members; i++) {
        const struct member *m = &engine->workers.member[i];
        if (m->joined && !m->shut_down && m->epoch == engine->epoch && (int32_t)(m->forgot - wanting) < 0)
            return false;
    }
    return true;
}

static uint32_t wanting_now(const struct engine *engine)
{
    return atomic_load(&engine->region.header->wanting);
}

static void ask_members(struct engine *engine)
{
    engine->names.holding.freed = 0;
    engine->names.holding.ask_at = engine->names.free / 2;
    atomic_fetch_add(&engine->region.header->wanting, 1);
    region_ring_sleepers(&engine->region, UINT32_MAX);
}

int forget_for(struct engine *engine, struct set *set, const char *text, uint32_t *slot, struct err *e)
{
    uint32_t before = engine->names.free;
    int status = names_make(engine, set, text, slot, e);

    if (status == HVD_ERR_MEMORY && *slot == SHM_SLOTS && forget_unheld(engine))
        status = names_make(engine, set, text, slot, e);
    if (engine->names.free < before && engine->names.free <= engine->names.holding.ask_at &&
        have_answered(engine, wanting_now(engine)))
        ask_members(engine);
    return status;
}

/* Members other than this one have yet to wait for operations that have ended: then slots become free. */
static bool others_have_ended(struct engine *engine, uint32_t member)
{
    for (uint32_t slot = SHM_SLOT_FIRST; slot < engine->names.count; slot++) {
        const struct name *n = &engine->names.name[slot];
        if (n->held > 0 && (member == FORGET_FOR_ALL || !(*word_of(engine, slot, member) & bit_of(member))) &&
            names_view(engine, slot) && is_together(engine, n))
            return true;
    }
    return false;
}

bool forget_more(struct engine *engine, uint32_t member, uint32_t asked, uint32_t *wanting)
{
    struct holding *h = &engine->names.holding;
    uint64_t now = clock_now();
    bool answered = asked != 0 && have_answered(engine, asked);

    if (asked == 0)
        h->since = now;
    if (answered && h->freed == 0 && (now - h->since > PATIENCE_NS || !others_have_ended(engine, member)))
        return false;
    h->awaited = true;
    h->answer_awaited = h->answer_awaited || !answered || h->freed > 0;
    if (asked == 0 || answered)
        ask_members(engine);
    *wanting = asked == 0 || answered ? wanting_now(engine) : asked;
    return true;
}

/* ---- holding ------------------------------------------------------------------------------------------- */

void forget_hold(struct engine *engine, uint32_t slot, uint32_t member)
{
    uint64_t *word = word_of(engine, slot, member);

    engine->names.name[slot].held += (*word & bit_of(member)) == 0;
    *word |= bit_of(member);
}

static void give_back(struct engine *engine, uint32_t slot, uint32_t member)
{
    uint64_t *word = slot < SHM_SLOTS ? word_of(engine, slot, member) : NULL;

    if (!word || (*word & bit_of(member)) == 0)
        return; /* the member holds no such slot: only the member loses by that */
    *word &= ~bit_of(member);
    engine->names.name[slot].held--;
    forget_name(engine, slot);
}

void forget_given(struct engine *engine, uint32_t member, const struct worker_message *m)
{
    struct holding *h = &engine->names.holding;
    uint32_t slot[WORKER_NUMBERS_MAX];

    memcpy(slot, m->text, m->id * sizeof *slot);
    for (uint32_t i = 0; i < m->id; i++)
        give_back(engine, slot[i], member);
    if (m->epoch == 0)
        return;
    engine->workers.member[member].forgot = m->epoch;
    bool answered = have_answered(engine, wanting_now(engine));
    if (answered && forget_unheld(engine))
        h->ask_at = engine->names.free / 2 < FEW ? engine->names.free / 2 : FEW;
    if (engine->names.free > 0)
        h->since = clock_now();
    if ((h->awaited && engine->names.free > 0) || (h->answer_awaited && answered)) {
        h->awaited = h->answer_awaited = false;
        region_ring_sleepers(&engine->region, UINT32_MAX);
    }
}
