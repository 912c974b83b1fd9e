/* An operation as NCCL has it: what a request becomes, the sizes that only the agreement knows, and its place
 * in the team's stream. A group is run as one; what of it is packed before is decided further down
 * (device/fuse.h). */
#include "collectives/client/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for n of them. */
static int make_room(struct device_op *op, size_t n)
{
    struct device_operation *larger;

    op->operations = n;
    if (n <= op->room)
        return HVD_SUCCESS;
    if (!(larger = realloc(op->operation, 2 * n * sizeof *larger)))
        return fail(HVD_ERR_MEMORY, "no memory for a group of %zu tensors", n);
    op->operation = larger;
    op->room = n;
    return HVD_SUCCESS;
}

static int keep_table(struct device_op *op, const struct request *r)
{
    size_t bytes = r->team->size * sizeof *op->table;

    free(op->table);
    op->table = NULL;
    if (!r->table)
        return HVD_SUCCESS;
    if (!(op->table = malloc(bytes)))
        return fail(HVD_ERR_MEMORY, "no memory for the splits");
    memcpy(op->table, r->table, bytes);
    return HVD_SUCCESS;
}

/* Room for both lists of a ragged one. The team's size never changes. */
static int make_counts(struct device_op *op, const struct request *r)
{
    if (!op_is_ragged(r->op.kind) || op->counts)
        return HVD_SUCCESS;
    if (!(op->counts = calloc(2 * (size_t)r->team->size, sizeof *op->counts)))
        return fail(HVD_ERR_MEMORY, "no memory for the sizes of %u ranks", r->team->size);
    op->sent = op->counts + r->team->size;
    return HVD_SUCCESS;
}

/* The tensors of a group. Those of a reducescatter are packed by rank: the first rank's pieces say where
 * each begins. */
static void describe_group(struct device_op *op, const struct request *r, const struct device_operation *one)
{
    const struct group *g = r->group;
    size_t size = dtype_size(r->op.dtype);

    for (size_t i = 0; i < g->outs; i++) {
        struct device_operation *o = &op->operation[i];
        *o = *one;
        o->in = g->in[i].at;
        o->out = g->out[i].at;
        o->count = 0;
        for (size_t k = i; k < g->ins; k += g->outs)
            o->count += g->in[k].bytes / size;
        o->row_count = g->row ? g->row[i] : 0;
    }
}

int device_describe(struct device_op *op, const struct request *r)
{
    static const enum device_kind kinds[SHM_KINDS] = {
        [SHM_ALLREDUCE] = DEVICE_ALLREDUCE,         [SHM_BROADCAST] = DEVICE_BROADCAST,
        [SHM_ALLGATHER] = DEVICE_ALLGATHER,         [SHM_ALLTOALL] = DEVICE_ALLTOALL,
        [SHM_REDUCESCATTER] = DEVICE_REDUCESCATTER,
    };
    struct device_operation one = {.kind = kinds[r->op.kind],
                                   .dtype = r->op.dtype,
                                   .op = r->op.op,
                                   .prescale = r->op.prescale,
                                   .postscale = r->op.postscale,
                                   .root = (int)r->op.root,
                                   .in = r->in,
                                   .out = r->out,
                                   .count = r->op.count,
                                   .row_count = r->op.row};
    int status = make_room(op, r->group ? r->group->outs : 1);

    if (status == HVD_SUCCESS)
        status = keep_table(op, r);
    if (status == HVD_SUCCESS)
        status = make_counts(op, r);
    if (status != HVD_SUCCESS)
        return status;
    one.counts = op->counts;
    one.sent = op->sent;
    if (r->group)
        describe_group(op, r, &one);
    else
        op->operation[0] = one;
    return HVD_SUCCESS;
}

void device_undescribe(struct device_op *op)
{
    free(op->operation);
    free(op->table);
    free(op->counts);
}

/* What this rank gives each other one of an alltoall, as the call said or evenly. */
bool device_count(struct device_op *op)
{
    const struct tensor *t = op->tensor;
    const struct tensor_view *v = &t->view;
    bool gathers = t->op.kind == SHM_ALLGATHER;
    uint32_t n = v->team->size;
    uint64_t left = t->where.room;

    for (uint32_t i = 0; op_is_ragged(t->op.kind) && i < n; i++) {
        if (t->receipt)
            op->counts[i] = t->receipt[i];
        else
            op->counts[i] = gathers ? v->count[i] : v->split[(size_t)i * n + t->index];
        op->sent[i] = op->table ? op->table[i] : t->op.count / n;
        if (op->counts[i] > left || (i == t->index && op->counts[i] != (gathers ? t->op.count : op->sent[i])))
            return false;
        left -= op->counts[i];
    }
    return true;
}

/* Between hosts a compressed operation is to be what the engines make of it. */
bool device_nccl_can(const struct device_op *op, struct device_why *why)
{
    const struct device_team *team = op->team;
    const struct tensor_op *what = &op->tensor->op;

    if (what->compression != HVD_COMPRESSION_NONE && !team_is_here(team->team) && !op_is_adasum(what)) {
        *why = (struct device_why){"NCCL compresses nothing"};
        return false;
    }
    return communicator_can(&op->operation[0], (int)team->team->size, team->all, why);
}

int device_record(struct device_op *op, struct err *e)
{
    const struct driver *d = device.driver;
    int rc = device_enter(op->context, e);

    if (rc == 0) {
        rc = driver_check(d, d->cuEventRecord(op->done, op->team->stream), e, "recording an event");
        device_leave();
    }
    return rc;
}

static int wait_for_input(struct device_op *op, struct err *e)
{
    const struct driver *d = device.driver;
    int rc = device_enter(op->context, e);

    if (rc == 0) {
        rc = driver_check(d, d->cuStreamWaitEvent(op->team->stream, op->given, 0), e,
                          "letting a stream wait for an event");
        device_leave();
    }
    return rc;
}

static int break_by(struct device_op *op, const struct err *e)
{
    device_break("rank %d: tensor \"%s\": %s", client.rank, op->tensor->name, e->text);
    return -1;
}

/* false: not yet; else it is in the stream, or the job ends with *e. */
static bool has_ended(const struct device_op *op, bool *well, struct err *e)
{
    enum communicator_state state;

    *well = true;
    if (op->by_engine)
        return device_engine_launched(op);
    state = communicator_poll(op->team->communicator, e);
    *well = state == COMMUNICATOR_READY;
    return state != COMMUNICATOR_LAUNCHING;
}

bool device_launched(struct device_op *op)
{
    struct err e = ERR_INIT;
    bool well;

    if (!has_ended(op, &well, &e))
        return false;
    if (!well || (op->by_engine ? device_engine_record(op, &e) : device_record(op, &e)) != 0) {
        break_by(op, &e);
        return false;
    }
    device_end(op, DEVICE_ENQUEUED);
    return true;
}

int device_launch(struct device_op *op)
{
    struct device_team *team = op->team;
    struct err e = ERR_INIT;

    if (team->by_engine)
        return device_engine_launch(op, &e) == 0 ? 0 : break_by(op, &e);
    if (wait_for_input(op, &e) != 0 ||
        communicator_run(team->communicator, op->known ? device_memory_known(op) : op->operation,
                         op->operations, team->stream, &e) != 0)
        return break_by(op, &e);
    op->phase = DEVICE_LAUNCHING;
    device_launched(op);
    return 0;
}
