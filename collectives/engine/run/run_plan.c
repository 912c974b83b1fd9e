/* Plans of a run: the sizes of a ragged operation, then the buffers and the copies, or the order on the GPUs.
 *
 * A ragged operation begins with its sizes: each host tells all others the counts of its ranks and the
 * capacities of their outputs. So all hosts know the whole table (route.h) and judge it alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/names.h"
#include "collectives/engine/run/results.h"
#include "collectives/engine/run/run.h"
#include "collectives/engine/timeline.h"
#include "collectives/kernels/dtype.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/order.h"

#define ELEMENTS_MAX (1ull << SHM_OFFSET_BITS) /* of one output: no memory is larger */

/* ---- on GPUs ------------------------------------------------------------------------------------------- */

/* An entry of the list whose elements are on the ranks' devices: they do all of the work themselves, and the
 * engine says that all hosts agree and which operation comes next, in the order of the list. So the devices
 * of all hosts begin the same, one after the other; runs keep the order until here, since none of them may
 * overtake one that exchanges sizes. */
void run_on_devices(struct run *run)
{
    struct engine *engine = run->engine;
    uint32_t head = names_find(engine, run->set, SHM_DEVICE_NAME);
    /* Ranks ask for that name before they begin anything on a device. */
    if (head == UINT32_MAX || !order_append(&engine->region, head, run->view->number)) {
        char text[SHM_TEXT_MAX];
        snprintf(text, sizeof text, "a rank on %.100s has overwritten its shared memory: tensor \"%.255s\"",
                 engine->host[engine->self].name, run->entry.desc.name);
        run_fail(run, HVD_ERR_PEER, text);
        return;
    }
    run_settle(run, HVD_SUCCESS, NULL);
    region_ring_alarms(&engine->region);
}

/* ---- buffers and copies -------------------------------------------------------------------------------- */

/* The member of this host that is the broadcast's root; UINT32_MAX: it is elsewhere. */
static uint32_t root_member(const struct run *run)
{
    return run->view->op.kind == SHM_BROADCAST ? team_member(run->view->team, run->view->op.root)
                                               : UINT32_MAX;
}

/* Chooses the buffers. false: there is no memory. */
static bool choose_buffers(struct run *run)
{
    struct tensor_view *v = run->view;
    size_t size = dtype_size(v->op.dtype);
    uint32_t root = root_member(run);
    if (!run_choose_wire(run, v->op.count))
        return false;
    switch (v->op.kind) {
    case SHM_ALLGATHER:
        run->data = run->route->in_order ? v->out[0] : run_borrow(run, 0, run->route->data * size);
        return run->data || run->route->data == 0;
    case SHM_ALLTOALL:
        run->got = run_borrow(run, 1, run->route->got * size);
        run->data = run_borrow(run, 0, run->route->data * size);
        return run->got && run->data;
    case SHM_REDUCESCATTER:
        run->data = run_borrow(run, 0, run->route->data * size);
        return run->data;
    default:
        break;
    }
    if (v->place == SHM_INLINE)
        run->data = (char *)v->slot->result;
    else if (v->streamed)
        run->data = v->stream.host;
    else
        run->data = root == UINT32_MAX ? v->out[0] : (char *)(uintptr_t)v->in[root];
    if (v->place == SHM_INLINE && root != UINT32_MAX)
        memcpy(run->data, v->in[root], v->bytes);
    return true;
}

static bool make_route(struct run *run)
{
    const struct set *set = run->set;
    struct tensor_view *v = run->view;
    struct route_host *host = calloc(set->hosts, sizeof *host);
    struct route_shape shape = {host, set->order, set->hosts, set->self, set->team->size};
    const uint64_t *numbers = run->table;
    if (v->op.kind == SHM_REDUCESCATTER)
        numbers = v->split;
    else if (!numbers)
        numbers = &v->op.count;
    for (uint32_t i = 0; host && i < set->hosts; i++)
        host[i] = (struct route_host){set->first[i], set->ranks[i]};
    if (host)
        run->route = route_new(v->op.kind, &shape, numbers, NULL);
    bool ok = run->route && choose_buffers(run) && (!unreduced_needed(run) || unreduced_plan(run, &shape));
    free(host);
    return ok;
}

void run_plan(struct run *run)
{
    if (!make_route(run)) {
        run_out_of_memory(run, "no memory for an operation between hosts");
        return;
    }
    run->phase = RUN_PACK;
    timeline_mark(run->engine, run->view, TIMELINE_REDUCE, 0);
}

/* ---- sizes --------------------------------------------------------------------------------------------- */

/* Tells the members what they got of whom. The tables are theirs; the slot's view has checked where they lie.
 */
static void tell_members(struct run *run)
{
    struct tensor_view *v = run->view;
    uint32_t size = v->team->size;
    for (uint32_t i = 0; i < v->team->members; i++)
        for (uint32_t from = 0; v->recv_counts[i] && from < size; from++)
            v->recv_counts[i][from] = route_between(v->op.kind, size, run->table, from, v->team->member[i]);
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
    char wrong[SHM_TEXT_MAX / 4];
    const struct tensor_op *op = &run->view->op;
    if (error) {
        run_fail_by(run, error);
    } else if (!order_table(run)) {
        run_out_of_memory(run, "no memory for the sizes of an operation between hosts");
    } else if (route_wrong(op->kind, run->set->team->size, run->set->team->rank, run->table, op->row,
                           ELEMENTS_MAX, wrong, sizeof wrong)) {
        char text[SHM_TEXT_MAX];
        snprintf(text, sizeof text, "tensor \"%s\": %s", run->entry.desc.name, wrong);
        run_settle(run, HVD_ERR_MISMATCH, text);
    } else if (op_is_sized(op) && !results_place(run)) {
        run_out_of_memory(run, "no memory for the result of an operation between hosts");
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
        *row++ = v->capacity[i];
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
