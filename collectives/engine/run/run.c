#include "collectives/engine/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/engine/sets.h"
#include "collectives/local/pipeline.h"

/* ---- due ----------------------------------------------------------------------------------------------- */

/* A result that came with its entry. */
static void take_result(struct run *run)
{
    struct tensor_view *v = run->view;
    if (v->place == SHM_INLINE)
        memcpy(v->slot->result, run->entry.data, v->bytes);
    for (uint32_t i = 0; v->place != SHM_INLINE && i < v->team->members; i++)
        if (v->out[i])
            memcpy(v->out[i], run->entry.data, v->bytes);
    run_settle(run, HVD_SUCCESS, NULL);
}

void run_begin(struct run *run)
{
    if (!run_find(run))
        return;
    if (run->batch)
        batch_begin(run);
    else if (run->entry.error[0])
        run_settle(run, HVD_ERR_MISMATCH, run->entry.error);
    else if (run->entry.data)
        take_result(run);
    else if (op_is_ragged(run->view->op.kind))
        run_sizes(run);
    else if (run->view->op.device)
        run_on_devices(run);
    else if (run->view->op.count == 0 || !op_moves(run->view->op.kind))
        run_settle(run, HVD_SUCCESS, NULL);
    else
        run_plan(run);
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

/* One piece of the reduction over this host's members. If its parts lie in the order of hosts, each copy
 * of the list is one part of it. true: all of it is done. */
static bool reduce_piece(struct run *run)
{
    struct tensor_view *v = run->view;
    const struct route_copy whole = {.count = v->op.count};
    const struct route_copy *c = run->route->packs ? &run->route->pack[run->copy] : &whole;
    uint64_t left = c->count - run->progress, most = run_piece_elements(run);
    uint64_t count = left < most ? left : most;
    bool is_there = !run->wire && v->team->members == 1 && v->in[0] == (void *)run->data &&
                    v->op.prescale == 1 && run->partial.scale == 1;
    if (!is_there)
        run_reduce(run, v, c->to_at + run->progress, c->from_at + run->progress, count);
    run->progress += count;
    if (run->progress < c->count)
        return false;
    run->progress = 0;
    return ++run->copy >= run->route->packs;
}

void run_pack(struct run *run)
{
    if (run->batch) {
        batch_pack(run);
        return;
    }
    if (run->unreduced) {
        unreduced_pack(run);
        return;
    }
    if (run->view->streamed) {
        run_start_network(run, run->view->op.count);
        return;
    }
    bool all = op_reduces(run->view->op.kind) ? reduce_piece(run)
                                              : run_copy_piece(run, run->route->pack, run->route->packs);

    if (all)
        run_start_network(run, run->view->op.count);
}

void run_look_for_pieces(struct run *run)
{
    struct backend *backend = run->engine->peers.backend;
    if (!run->view->streamed || run->packed == run->view->bytes)
        return;
    uint64_t packed = stream_packed(run->view);
    if (packed == run->packed)
        return;
    run->packed = packed;
    backend->ops->more(backend, set_number(run->set), run->number);
}

void run_spread(struct run *run)
{
    if (run->batch) {
        batch_spread(run);
        return;
    }
    if (run->view->streamed || run_copy_piece(run, run->route->spread, run->route->spreads))
        run_settle(run, HVD_SUCCESS, NULL);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

void run_free(struct run *run)
{
    for (size_t i = 0; i < sizeof run->borrowed / sizeof *run->borrowed; i++)
        if (run->borrowed[i].memory)
            scratch_give_back(&run->engine->runs.scratch, run->borrowed[i].memory, run->borrowed[i].size);
    if (run->batch)
        run_free(run->batch);
    route_free(run->route);
    unreduced_free(run->unreduced);
    free(run->table);
    free(run->entry.data);
    if (run->engine->runs.spare)
        free(run);
    else
        run->engine->runs.spare = run;
}
