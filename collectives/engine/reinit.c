/* The next epoch of a job: its ranks have called hvd_shutdown, and now hvd_init again.
 *
 * The ranks count the epochs; each engine goes on to the next one when it first hears of it, from a rank's
 * HELLO or from another engine's message, but not before its own part of the shutdown is settled (what came
 * too early is kept till then). Everything that belongs to an epoch is made anew: region, names, sets,
 * backend. What stays is what stays of a job: links, connections, processes. The old region lives on in the
 * ranks that have not left it yet. A rank that has ended cannot come again, so the new epoch fails at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/tuning.h"
#include "common/base/clock.h"

#define EARLY_MAX 4096u /* messages; a host sends one or two before it needs an answer */

struct early {
    struct early *next;
    uint32_t from;
    size_t size;
    uint8_t bytes[];
};

/* All ranks of this host have called hvd_shutdown, and nothing of it is left to do. */
static bool is_over(struct engine *engine)
{
    const struct tensor_view *v = local_view(engine, SHM_SLOT_SHUTDOWN);

    if (region_poisoned(&engine->region))
        return false;
    if (engine->hosts > 1)
        return engine->finished;
    for (uint32_t i = 0; v && i < engine->members; i++)
        if (tensor_latest(v, i) == 0 || tensor_latest(v, i) != tensor_latest(v, 0) ||
            tensor_asked(v, i).kind != SHM_SHUTDOWN)
            return false;
    return v != NULL;
}

static void forget(struct engine *engine)
{
    counters_keep(engine);
    devices_forget(engine);
    stalls_progress(engine, clock_now()); /* what has gone on is told while its names are known */
    remote_free(engine);
    tuning_again(engine);
    stalls_free(engine);
    engine->stalls = NULL;
    names_free(engine);
    joins_again(engine);
    memset(engine->name, 0, sizeof engine->name);
    memset(engine->bucket, 0, sizeof engine->bucket);
    memset(engine->stall.slot, 0, sizeof engine->stall.slot);
    engine->help_count = 0;
    segments_free(engine);
    sets_free(engine);
    region_unmap(&engine->region);
    close(engine->region_fd);
    engine->started = engine->finished = false;
}

static int begin(struct engine *engine, struct err *e)
{
    struct region_shape shape;

    forget(engine);
    engine->epoch++;
    shape = engine_shape(engine);
    engine->region_fd = region_create(&engine->region, &shape, e);
    if (engine->region_fd < 0 || sets_start(engine, e) != 0 || names_fixed(engine, e) != 0)
        return -1;
    devices_again(engine);
    return engine->hosts > 1 ? peers_again(engine, e) : 0;
}

int again_begin(struct engine *engine, struct err *e)
{
    char text[SHM_TEXT_MAX];

    if (!is_over(engine))
        return err_set(e, ERR_PROTOCOL, "the job is at epoch %u, and not all ranks have left it",
                       engine->epoch);
    if (begin(engine, e) != 0) {
        engine->ended = true; /* without a region nobody can be told anything */
        return -1;
    }
    if (engine->gone_rank != UINT32_MAX) {
        snprintf(text, sizeof text, "rank %u on %.100s has ended and cannot call hvd_init again",
                 engine->gone_rank, engine_host_of(engine, engine->gone_rank));
        engine_poison(engine, HVD_ERR_PEER, text);
    }
    while (engine->early) {
        struct early *m = engine->early;
        engine->early = m->next;
        peers_take(engine, m->from, m->bytes, m->size);
        free(m);
    }
    engine->earlies = 0;
    if (engine->lost_host != UINT32_MAX) {
        snprintf(text, sizeof text, "host %.100s is lost: it was gone before hvd_init was called again",
                 engine->host[engine->lost_host].name);
        engine_poison(engine, HVD_ERR_PEER, text);
    }
    return 0;
}

int again_early(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    struct early *m, **end = &engine->early;

    if (engine->earlies >= EARLY_MAX || !(m = malloc(sizeof *m + size)))
        return err_set(e, ERR_MEMORY, "too much of epoch %u while this host is at %u", engine->epoch + 1,
                       engine->epoch);
    *m = (struct early){.from = from, .size = size};
    memcpy(m->bytes, data, size);
    while (*end)
        end = &(*end)->next;
    *end = m;
    engine->earlies++;
    return 0;
}

bool again_is_early(const struct engine *engine, uint32_t host)
{
    for (const struct early *m = engine->early; m; m = m->next)
        if (m->from == host)
            return true;
    return false;
}

void again_progress(struct engine *engine)
{
    struct err e = ERR_INIT;

    if (__builtin_expect(engine->early != NULL, 0) && is_over(engine) && again_begin(engine, &e) != 0)
        engine_poison(engine, HVD_ERR_ENGINE, e.text);
}

void again_free(struct engine *engine)
{
    while (engine->early) {
        struct early *m = engine->early;
        engine->early = m->next;
        free(m);
    }
}
