/* The lowest services of a run, which all its variants use: memory, its end, copies, the backend. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/names.h"
#include "collectives/engine/partial.h"
#include "collectives/engine/run/run.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/timeline.h"
#include "collectives/engine/tuning.h"
#include "collectives/kernels/convert.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/dtype.h"
#include "collectives/local/pipeline.h"
#include "collectives/shm/doorbell.h"
#include "common/base/clock.h"

/* ---- the end ------------------------------------------------------------------------------------------- */

void run_settle(struct run *run, int status, const char *text)
{
    struct engine *engine = run->engine;
    struct shm_slot *slot = run->view->slot;
    slot->status = status;
    slot->device = run->view->op.device;
    slot->known = run->entry.desc.known != 0;
    if (text)
        snprintf((char *)slot->result, SHM_TEXT_MAX, "%s", text);
    run->phase = RUN_SETTLED;
    run->name->running = false;
    timeline_mark(engine, run->view, TIMELINE_SETTLED, 0);
    flight_run_ends(run, status);
    if (run->entry.desc.what.kind == SHM_BARRIER && run->set == engine->sets.world && status == HVD_SUCCESS)
        engine->started = true;
    if (run->entry.desc.what.kind == SHM_SHUTDOWN && status == HVD_SUCCESS)
        engine->finished = true;
    atomic_store(&slot->settled, run->view->sequence);
    region_ring_sleepers(&engine->region, UINT32_MAX);
    if (__builtin_expect(engine->tuning != NULL, 0) && status == HVD_SUCCESS)
        tuning_settled(engine, run, clock_now());
}

void run_fail(struct run *run, int status, const char *text)
{
    run->phase = RUN_SETTLED;
    engine_poison(run->engine, status, text);
}

void run_out_of_memory(struct run *run, const char *why)
{
    run->phase = RUN_SETTLED;
    engine_out_of_memory(run->engine, why);
}

void run_fail_by(struct run *run, const struct err *error)
{
    if (error->code == ERR_MEMORY)
        run_out_of_memory(run, error->text);
    else
        run_fail(run, HVD_ERR_PEER, error->text);
}

/* ---- the tensor, and memory ---------------------------------------------------------------------------- */

struct run *run_new(struct engine *engine)
{
    struct run *run = engine->runs.spare;
    if (!run)
        run = malloc(sizeof *run);
    if (!run)
        return NULL;
    engine->runs.spare = NULL;
    memset(run, 0, offsetof(struct run, entry));
    run->engine = engine;
    return run;
}

bool run_find(struct run *run)
{
    struct engine *engine = run->engine;
    uint32_t slot = names_find(engine, run->set, run->entry.desc.name);
    bool complete = slot != UINT32_MAX && engine->names.name[slot].announced;
    char text[SHM_TEXT_MAX];
    /* A tensor that this host could not open has no elements here, whatever the list says. */
    if (!complete || (!run->entry.error[0] && engine->names.name[slot].status != HVD_SUCCESS)) {
        snprintf(text, sizeof text, "the execution list names tensor \"%.255s\", which is not %s on %.100s",
                 run->entry.desc.name, complete ? "valid" : "complete", engine->host[engine->self].name);
        run_fail(run, HVD_ERR_ENGINE, text);
        return false;
    }
    engine->names.name[slot].announced = false;
    engine->names.name[slot].running = true;
    if (run->entry.number != 0)
        engine->names.name[slot].listed = run->entry.number;
    run->name = &engine->names.name[slot];
    run->view = &run->name->view;
    op_goes_along(&run->view->op, &run->entry.desc.what);
    /* Buffers are as large as the list says, the work as large as the ranks say. */
    if (!run->entry.error[0] &&
        (op_difference(&run->view->op, &run->entry.desc.what) >= 0 ||
         (run->entry.desc.known && run->entry.desc.known != run->view->device_memory))) {
        snprintf(text, sizeof text, "the execution list has another tensor \"%.255s\" than was announced",
                 run->entry.desc.name);
        run_fail(run, HVD_ERR_ENGINE, text);
        return false;
    }
    run->view->slot->due = run->listed;
    timeline_mark(engine, run->view, TIMELINE_DUE, run->listed);
    flight_run_begins(run);
    return true;
}

bool unreduced_needed(const struct run *run)
{
    const struct tensor_op *op = &run->view->op;
    return op_is_adasum(op) ||
           (run->engine->options.flat && op_reduces(op->kind) && op->compression == HVD_COMPRESSION_NONE);
}

void *run_borrow(struct run *run, int i, uint64_t bytes)
{
    size_t size = bytes ? bytes : 1;
    run->borrowed[i] = (struct run_memory){scratch_borrow(&run->engine->runs.scratch, size), size};
    return run->borrowed[i].memory;
}

bool run_choose_wire(struct run *run, uint64_t count)
{
    const struct tensor_op *op = &run->view->op;
    run->partial = partial_of(op, &run->set->shape);
    if (run->partial.dtype == (hvd_dtype)op->dtype || unreduced_needed(run))
        return true;
    return (run->wire = run_borrow(run, 1, count * dtype_size(run->partial.dtype))) != NULL;
}

/* ---- elements that travel ------------------------------------------------------------------------------ */

void run_reduce(const struct run *run, const struct tensor_view *v, uint64_t at, uint64_t first,
                uint64_t count)
{
    /* tensor_reduce_local counts from where the tensor would begin. */
    uintptr_t to =
        (uintptr_t)(run->wire ? run->wire : run->data) + (at - first) * dtype_size(run->partial.dtype);
    tensor_reduce_local(v, (void *)to, run->partial.dtype, run->partial.scale, first, count);
}

void run_expand(const struct run *run, uint64_t at, uint64_t count)
{
    hvd_compression compression = (hvd_compression)run->view->op.compression;
    if (compression != HVD_COMPRESSION_NONE && run->wire)
        expand((float *)(void *)run->data + at, (const uint16_t *)(void *)run->wire + at, count, compression);
}

/* ---- copies -------------------------------------------------------------------------------------------- */

static char *address_of(const struct run *run, enum route_buffer buffer, uint32_t member, uint64_t offset)
{
    const struct tensor_view *v = run->view;
    char *base = buffer == ROUTE_IN       ? (char *)(uintptr_t)v->in[member]
                 : buffer == ROUTE_DATA   ? run->data
                 : buffer == ROUTE_GOT    ? run->got
                 : buffer == ROUTE_LEAVES ? run->leaves
                                          : v->out[member];
    return base ? base + offset * dtype_size(v->op.dtype) : NULL;
}

/* Elements [run->progress, + count) of one copy. A member without an output reads the slot's result. */
static void copy_part(const struct run *run, const struct route_copy *c, uint64_t count)
{
    uint32_t first = c->to == ROUTE_OUTS ? 0 : c->to_member;
    uint32_t last = c->to == ROUTE_OUTS ? run->set->team->members - 1 : first;
    const char *from = address_of(run, c->from, c->from_member, c->from_at + run->progress);
    for (uint32_t m = first; m <= last; m++) {
        char *to = address_of(run, c->to, m, c->to_at + run->progress);
        if (to && to != from)
            copy_bytes(to, from, count * dtype_size(run->view->op.dtype));
    }
}

uint64_t run_piece_elements(const struct run *run)
{
    return RUN_PIECE_BYTES / dtype_size(run->view->op.dtype);
}

bool run_copy_piece(struct run *run, const struct route_copy *list, uint32_t n)
{
    uint64_t budget = run_piece_elements(run);
    while (run->copy < n && budget > 0) {
        const struct route_copy *c = &list[run->copy];
        uint64_t left = c->count - run->progress, count = left < budget ? left : budget;
        if (c->from == ROUTE_DATA)
            run_expand(run, c->from_at + run->progress, count);
        copy_part(run, c, count);
        run->progress += count;
        budget -= count;
        if (run->progress == c->count) {
            run->progress = 0;
            run->copy++;
        }
    }
    return run->copy == n;
}

/* ---- the network --------------------------------------------------------------------------------------- */

/* Runs start what they start in the order of the list, on every host: so the numbers agree. */
void run_start(struct run *run, struct backend_request *request)
{
    struct backend *backend = run->engine->peers.backend;
    struct err e = ERR_INIT;
    request->set = set_number(run->set);
    request->sequence = run->number = ++run->set->operations;
    request->host = run->set->host;
    request->hosts = run->set->hosts;
    request->ctx = run;
    request->eager_bytes = run->values.of[AUTOTUNE_EAGER_BYTES];
    request->piece_bytes = run->values.of[AUTOTUNE_PIECE_BYTES];
    request->fit_packets = run->engine->peers.fit;
    if (backend->ops->start(backend, request, &e) != 0)
        request->done(run, &e);
}

void run_spread_begin(struct run *run)
{
    run->copy = 0;
    run->progress = 0;
    run->phase = RUN_SPREAD;
    timeline_mark(run->engine, run->view, TIMELINE_SPREAD, 0);
}

static void network_done(void *ctx, const struct err *error)
{
    struct run *run = ctx;
    if (error)
        run_fail_by(run, error);
    else
        run_spread_begin(run);
}

void run_last_network(struct run *run, struct backend_request *request)
{
    timeline_mark(run->engine, run->view, TIMELINE_NETWORK, 0);
    run->phase = RUN_NETWORK; /* done may come before start returns */
    request->done = network_done;
    run_start(run, request);
}

static enum backend_kind kind_between_hosts(uint8_t kind)
{
    switch (kind) {
    case SHM_BROADCAST:
        return BACKEND_BROADCAST;
    case SHM_ALLGATHER:
        return BACKEND_ALLGATHER;
    case SHM_ALLTOALL:
        return BACKEND_ALLTOALL;
    case SHM_REDUCESCATTER:
        return BACKEND_REDUCESCATTER;
    default:
        return BACKEND_ALLREDUCE;
    }
}

static void note_final(void *ctx, uint64_t offset, uint64_t size)
{
    stream_note_final(((const struct run *)ctx)->view, offset, size);
}

static uint64_t packed_so_far(void *ctx)
{
    return ((const struct run *)ctx)->packed;
}

/* An eager allreduce sends all elements at once; those of a streamed one are not there yet. */
_Static_assert(STREAM_LEAST_FAR > BACKEND_EAGER_MAX, "no streamed allreduce is eager");

void run_start_network(struct run *run, uint64_t count)
{
    const struct tensor_op *op = &run->view->op;
    bool rounds = run->wire && run->partial.dtype == HVD_FLOAT32;
    struct backend_request request = {
        .kind = kind_between_hosts(op->kind),
        .packed = run->view->streamed ? packed_so_far : NULL,
        .range = run->view->streamed ? note_final : NULL,
        .data = run->wire ? run->wire : run->data,
        .out = rounds ? run->data : run->got,
        .count = count,
        .part = run->route ? run->route->part : NULL,
        .part_in = run->route ? run->route->part_in : NULL,
        .dtype = run->partial.dtype,
        .rounded = rounds ? (hvd_dtype)op->dtype : 0,
        .op = (hvd_op)op->op,
        .divisor = run->set->team->size,
        .postscale = op->postscale / run->partial.scale,
        .root = set_host_of(run->engine, run->set, op->root),
    };
    run_last_network(run, &request);
}
