/* An operation as NCCL has it: what a request becomes, the sizes that only the agreement knows, and its place
 * in the team's stream. A group is run as one; what of it is packed before is decided further down
 * (device/fuse.h). */
#include "collectives/client/gpu/gpu_engine.h"
#include "collectives/client/gpu/gpu_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/client/group.h"
#include "collectives/kernels/dtype.h"

/* Makes room for n of them. */
static int reserve_pieces(struct gpu_op *op, size_t n)
{
    op->pieces.number = n;
    if (n <= op->pieces.capacity)
        return HVD_SUCCESS;
    struct gpu_operation *larger = realloc(op->pieces.piece, 2 * n * sizeof *larger);
    if (!larger)
        return fail(HVD_ERR_MEMORY, "no memory for a group of %zu tensors", n);
    op->pieces.piece = larger;
    op->pieces.capacity = n;
    return HVD_SUCCESS;
}

static int keep_table(struct gpu_op *op, const struct request *r)
{
    size_t bytes = r->team->size * sizeof *op->pieces.table;
    free(op->pieces.table);
    op->pieces.table = NULL;
    if (!r->table)
        return HVD_SUCCESS;
    op->pieces.table = malloc(bytes);
    if (!op->pieces.table)
        return fail(HVD_ERR_MEMORY, "no memory for the splits of an alltoall");
    memcpy(op->pieces.table, r->table, bytes);
    return HVD_SUCCESS;
}

/* Room for both lists of a ragged one. The team's size never changes. */
static int make_counts(struct gpu_op *op, const struct request *r)
{
    if (!op_is_ragged(r->op.kind) || op->pieces.counts)
        return HVD_SUCCESS;
    op->pieces.counts = calloc(2 * (size_t)r->team->size, sizeof *op->pieces.counts);
    if (!op->pieces.counts)
        return fail(HVD_ERR_MEMORY, "no memory for the sizes of %u ranks", r->team->size);
    op->pieces.sent = op->pieces.counts + r->team->size;
    return HVD_SUCCESS;
}

/* The tensors of a group. A reducescatter's tensors are packed by rank: each tensor begins where its piece
 * for the first rank begins. */
static void describe_group(struct gpu_op *op, const struct request *r, const struct gpu_operation *one)
{
    const struct group *g = r->group;
    size_t size = dtype_size(r->op.dtype);
    for (size_t i = 0; i < g->outs; i++) {
        struct gpu_operation *o = &op->pieces.piece[i];
        *o = *one;
        o->in = g->in[i].at;
        o->out = g->out[i].at;
        o->count = 0;
        for (size_t k = i; k < g->ins; k += g->outs)
            o->count += g->in[k].bytes / size;
        o->row_count = g->row ? g->row[i] : 0;
    }
}

int gpu_describe(struct gpu_op *op, const struct request *r)
{
    static const enum gpu_kind kinds[SHM_KINDS] = {
        [SHM_ALLREDUCE] = GPU_ALLREDUCE,         [SHM_BROADCAST] = GPU_BROADCAST,
        [SHM_ALLGATHER] = GPU_ALLGATHER,         [SHM_ALLTOALL] = GPU_ALLTOALL,
        [SHM_REDUCESCATTER] = GPU_REDUCESCATTER,
    };
    struct gpu_operation one = {.kind = kinds[r->op.kind],
                                .dtype = r->op.dtype,
                                .op = r->op.op,
                                .prescale = r->op.prescale,
                                .postscale = r->op.postscale,
                                .root = r->op.kind == SHM_BROADCAST ? (int)r->op.root : 0,
                                .in = r->in,
                                .out = r->out,
                                .count = r->op.count,
                                .row_count = r->op.row};
    int status = reserve_pieces(op, r->group ? r->group->outs : 1);
    if (status == HVD_SUCCESS)
        status = keep_table(op, r);
    if (status == HVD_SUCCESS)
        status = make_counts(op, r);
    if (status != HVD_SUCCESS)
        return status;
    one.counts = op->pieces.counts;
    one.sent = op->pieces.sent;
    if (r->group)
        describe_group(op, r, &one);
    else
        op->pieces.piece[0] = one;
    return HVD_SUCCESS;
}

void gpu_describe_free(struct gpu_op *op)
{
    free(op->pieces.piece);
    free(op->pieces.table);
    free(op->pieces.counts);
}

/* An alltoall without a table in the call gives each rank the same number. */
bool gpu_count_elements(struct gpu_op *op)
{
    const struct tensor *t = op->tensor;
    const struct tensor_view *v = &t->view;
    bool gathers = t->op.what.kind == SHM_ALLGATHER;
    uint32_t n = v->team->size;
    uint64_t left = t->op.where.capacity;
    for (uint32_t i = 0; op_is_ragged(t->op.what.kind) && i < n; i++) {
        if (t->op.recv_counts)
            op->pieces.counts[i] = t->op.recv_counts[i];
        else
            op->pieces.counts[i] = gathers ? v->count[i] : v->split[(size_t)i * n + t->index];
        op->pieces.sent[i] = op->pieces.table ? op->pieces.table[i] : t->op.what.count / n;
        if (op->pieces.counts[i] > left ||
            (i == t->index && op->pieces.counts[i] != (gathers ? t->op.what.count : op->pieces.sent[i])))
            return false;
        left -= op->pieces.counts[i];
    }
    return true;
}

/* Between hosts a compressed operation is to be what the engines make of it. */
bool gpu_nccl_can(const struct gpu_op *op, struct gpu_why *why)
{
    const struct gpu_team *team = op->team;
    const struct tensor_op *what = &op->tensor->op.what;
    if (what->compression != HVD_COMPRESSION_NONE && !team_is_here(team->team) && !op_is_adasum(what)) {
        *why = (struct gpu_why){"NCCL compresses nothing"};
        return false;
    }
    return communicator_can(&op->pieces.piece[0], (int)team->team->size, team->all, why);
}

int gpu_record_result(struct gpu_op *op, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    int rc = gpu_enter(op->context, e);
    if (rc == 0) {
        rc = driver_check(d, d->cuEventRecord(op->result_ready, op->team->stream), e, "recording an event");
        gpu_leave();
    }
    return rc;
}

static int wait_for_input(struct gpu_op *op, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    int rc = gpu_enter(op->context, e);
    if (rc == 0) {
        rc = driver_check(d, d->cuStreamWaitEvent(op->team->stream, op->input_ready, 0), e,
                          "letting a stream wait for an event");
        gpu_leave();
    }
    return rc;
}

static int break_by(struct gpu_op *op, const struct err *e)
{
    char what[SHM_TEXT_MAX];
    snprintf(what, sizeof what, "tensor \"%s\": ", op->tensor->name);
    gpu_fail_by_nccl(what, e);
    return -1;
}

/* false: not yet; else it is in the stream, or the job ends with *e. */
static bool has_ended(const struct gpu_op *op, bool *well, struct err *e)
{
    *well = true;
    if (op->by_engine)
        return gpu_engine_launched(op);
    enum communicator_state state = communicator_poll(op->team->communicator, e);
    *well = state == COMMUNICATOR_READY;
    return state != COMMUNICATOR_LAUNCHING;
}

bool gpu_launched(struct gpu_op *op)
{
    struct err e = ERR_INIT;
    bool well;
    if (!has_ended(op, &well, &e))
        return false;
    if (!well || (op->by_engine ? gpu_engine_record(op, &e) : gpu_record_result(op, &e)) != 0) {
        break_by(op, &e);
        return false;
    }
    gpu_op_end(op, GPU_ENQUEUED);
    return true;
}

int gpu_launch(struct gpu_op *op)
{
    struct gpu_team *team = op->team;
    struct err e = ERR_INIT;
    if (team->by_engine)
        return gpu_engine_launch(op, &e) == 0 ? 0 : break_by(op, &e);
    if (wait_for_input(op, &e) != 0 ||
        communicator_run(team->communicator, op->registered ? gpu_memory_registered(op) : op->pieces.piece,
                         op->pieces.number, team->stream, &e) != 0)
        return break_by(op, &e);
    op->phase = GPU_LAUNCHING;
    gpu_launched(op);
    return 0;
}
