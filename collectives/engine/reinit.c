/* The next epoch of a job: its ranks have called hvd_shutdown, and now hvd_init again.
 *
 * The ranks count the epochs; each engine goes on to the next one when it first hears of it, from a rank's
 * HELLO or from another engine's message, but not before its own part of the shutdown is settled (what came
 * too early is kept till then). Everything that belongs to an epoch is made anew: region, names, sets,
 * backend. Links, connections and processes stay. The old region lives on in the
 * ranks that have not left it yet. A rank that has ended cannot come again, so the new epoch fails at once.
 */
#include "collectives/engine/reinit.h"

#include <stdio.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/names.h"
#include "collectives/engine/peers.h"

bool reinit_is_over(struct engine *engine)
{
    const struct tensor_view *v = names_view(engine, SHM_SLOT_SHUTDOWN);
    if (region_poisoned(&engine->region))
        return false;
    if (engine->hosts > 1)
        return engine->finished;
    for (uint32_t i = 0; v && i < engine->workers.members; i++)
        if (tensor_latest(v, i) == 0 || tensor_latest(v, i) != tensor_latest(v, 0) ||
            tensor_asked(v, i).kind != SHM_SHUTDOWN)
            return false;
    return v != NULL;
}

static int renew_epoch(struct engine *engine, struct err *e)
{
    engine_parts_end(engine);
    region_unmap(&engine->region);
    close(engine->region_fd);
    engine->started = engine->finished = false;
    engine->epoch++;
    return engine_make_region(engine, e) != 0 ? -1 : engine_parts_begin(engine, e);
}

int reinit_begin(struct engine *engine, struct err *e)
{
    if (!reinit_is_over(engine))
        return err_set(e, ERR_PROTOCOL, "the job is at epoch %u, and not all ranks have left it",
                       engine->epoch);
    if (renew_epoch(engine, e) != 0) {
        engine->loop.ended = true; /* without a region no rank can be told anything */
        return -1;
    }
    char text[SHM_TEXT_MAX];
    if (engine->workers.gone_rank != UINT32_MAX) {
        snprintf(text, sizeof text, "rank %u on %.100s has ended and cannot call hvd_init again",
                 engine->workers.gone_rank, engine_host_of(engine, engine->workers.gone_rank));
        engine_poison(engine, HVD_ERR_PEER, text);
    }
    peers_take_early(engine);
    if (engine->peers.lost_host != UINT32_MAX) {
        snprintf(text, sizeof text, "host %.100s is lost: it was gone before hvd_init was called again",
                 engine->host[engine->peers.lost_host].name);
        engine_poison(engine, HVD_ERR_PEER, text);
    }
    return 0;
}

static void begin_if_heard(struct engine *engine, struct turn *turn)
{
    struct err e = ERR_INIT;
    (void)turn;
    if (__builtin_expect(engine->peers.early != NULL, 0) && !engine->membership && reinit_is_over(engine) &&
        reinit_begin(engine, &e) != 0)
        engine_poison(engine, HVD_ERR_ENGINE, e.text);
}

const struct engine_part reinit_part = {.progress = begin_if_heard};
