/* The sizes of a ragged operation between hosts: each host tells all what its ranks give and what fits, so
 * all of them know the whole table (route.h) and say the same of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/run/run.h"

#define ELEMENTS_MAX (1ull << SHM_OFFSET_BITS) /* of one output: no memory is larger */

/* Tells the members what they got of whom. The tables are theirs; the slot's view has checked where they lie.
 */
static void tell_members(struct run *run)
{
    struct tensor_view *v = run->view;
    uint32_t size = v->team->size;

    for (uint32_t i = 0; i < v->team->members; i++)
        for (uint32_t from = 0; v->receipt[i] && from < size; from++)
            v->receipt[i][from] = route_between(v->op.kind, size, run->table, from, v->team->member[i]);
}

/* The rows came by host; they are to stand in the order of ranks. false: there is no memory. */
static bool order_table(struct run *run)
{
    const uint32_t *order = run->set->order;
    uint32_t size = run->set->team->size;
    size_t width = route_width(run->view->op.kind, size);
    uint64_t *table = order ? calloc(size * width, sizeof *table) : run->table;

    if (!order || !table)
        return table != NULL;
    for (uint32_t i = 0; i < size; i++)
        memcpy(table + order[i] * width, run->table + i * width, width * sizeof *table);
    free(run->table);
    run->table = table;
    return true;
}

static void sizes_done(void *ctx, const struct err *error)
{
    struct run *run = ctx;
    char wrong[SHM_TEXT_MAX / 4], text[SHM_TEXT_MAX];
    const struct tensor_op *op = &run->view->op;

    if (error) {
        run_fail_by(run, error);
    } else if (!order_table(run)) {
        run_out_of_memory(run, "no memory for the sizes of an operation between hosts");
    } else if (route_wrong(op->kind, run->set->team->size, run->set->team->rank, run->table, op->row,
                           ELEMENTS_MAX, wrong, sizeof wrong)) {
        snprintf(text, sizeof text, "tensor \"%s\": %s", run->entry.desc.name, wrong);
        run_settle(run, HVD_ERR_MISMATCH, text);
    } else {
        tell_members(run);
        if (op->device)
            run_on_devices(run);
        else
            run_plan(run);
    }
}

static void fill_table(struct run *run)
{
    struct tensor_view *v = run->view;
    uint32_t size = v->team->size, first = run->set->first[run->set->self];
    size_t width = route_width(v->op.kind, size);

    for (uint32_t i = 0; i < v->team->members; i++) {
        uint64_t *row = run->table + (first + i) * width;
        *row++ = v->room[i];
        if (v->op.kind == SHM_ALLGATHER)
            *row = v->count[i];
        else
            memcpy(row, v->split + (size_t)i * size, size * sizeof *row);
    }
}

void run_sizes(struct run *run)
{
    const struct set *set = run->set;
    size_t width = route_width(run->view->op.kind, set->team->size);
    uint64_t *part = calloc(set->hosts, sizeof *part);

    run->table = calloc(set->team->size * width, sizeof *run->table);
    if (!part || !run->table) {
        free(part);
        run_out_of_memory(run, "no memory for the sizes of an operation between hosts");
        return;
    }
    fill_table(run);
    for (uint32_t i = 0; i < set->hosts; i++)
        part[i] = set->ranks[i] * width;
    struct backend_request request = {
        .kind = BACKEND_ALLGATHER, .data = run->table, .part = part, .dtype = HVD_UINT64, .done = sizes_done};
    run->phase = RUN_SIZES; /* done may come before start returns */
    run_start(run, &request);
    free(part);
}
