/* An operation by way of host memory: NCCL is missing or does not implement the operation.
 *
 * A team has some staging slots, and its operations take them in turn, by the team's order. So all ranks
 * take the same slot. A slot is a name ("hvd.device.2") for the operation on the host, and a block of
 * shared memory that is registered with the driver. The elements are copied to the block in the team's
 * stream. Then the host operation begins, in place. When it has ended, the copy of the result is put into
 * the stream, and the next operation of the slot follows behind it. No thread waits for any of these steps.
 * A block that is too small is kept until the team goes: freeing it would wait for the stream, which a lost
 * rank may have blocked. */
#include "collectives/client/gpu/gpu_staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/arena.h"
#include "collectives/client/gpu/gpu_team.h"
#include "collectives/client/group.h"
#include "collectives/client/names.h"
#include "collectives/kernels/dtype.h"
#include "collectives/shm/doorbell.h"

#define SLOT_STATES(X) X(SLOT_FREE, "free") X(SLOT_COPYING, "copying") X(SLOT_RUNNING, "running")
#define SLOT_EVENTS(X) X(EV_TAKEN, "taken") X(EV_COPIED, "copied") X(EV_ENDED, "ended") X(EV_LOST, "lost")
enum { SLOT_STATES(AS_CONSTANT) };
enum { SLOT_EVENTS(AS_CONSTANT) };

static const char *const state_names[] = {SLOT_STATES(AS_NAME)};
static const char *const event_names[] = {SLOT_EVENTS(AS_NAME)};

static fsm_action copy_in, begin_host, copy_out;

static const struct fsm_row rows[] = {
    {SLOT_FREE, EV_TAKEN, SLOT_COPYING, copy_in},  {SLOT_COPYING, EV_COPIED, SLOT_RUNNING, begin_host},
    {SLOT_RUNNING, EV_ENDED, SLOT_FREE, copy_out}, {SLOT_COPYING, EV_LOST, SLOT_FREE, NULL},
    {SLOT_RUNNING, EV_LOST, SLOT_FREE, NULL},
};
static const struct fsm_table table = {"slot", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- operations of our own on the host ----------------------------------------------------------------- */

int gpu_host_begin(struct tensor *t, const struct request *r)
{
    pthread_mutex_lock(&t->lock);
    int status = operation_submit(t, r, false);
    pthread_mutex_unlock(&t->lock);
    return status;
}

bool gpu_host_ended(struct tensor *t, int *status)
{
    pthread_mutex_lock(&t->lock);
    bool ended = t->phase == PHASE_ENDED || operation_progress(t);
    if (ended) {
        *status = t->op.status;
        t->phase = PHASE_IDLE;
    }
    pthread_mutex_unlock(&t->lock);
    return ended;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* The driver knows whole pages, and each only once: a block has its pages for itself, so what is of the arena
 * begins somewhere before it. */
static size_t page_up(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page;
}

static char *block_in(char *memory)
{
    return (char *)page_up((uintptr_t)memory);
}

static void drop_block(char *memory)
{
    if (!memory)
        return;
    gpu_state.driver->cuMemHostUnregister(block_in(memory));
    arena_free(memory);
}

static int make_block(struct gpu_staging_slot *slot, size_t bytes, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    if (bytes <= slot->block_bytes)
        return 0;
    bytes = page_up(bytes < 2 * slot->block_bytes ? 2 * slot->block_bytes : bytes);
    char *larger = arena_alloc(bytes + page_up(1), false);
    if (!larger)
        return err_set(e, ERR_MEMORY, "%s", hvd_last_error());
    if (slot->memory)
        slot->older[slot->olders++] = slot->memory;
    slot->memory = larger;
    slot->block = block_in(larger);
    slot->block_bytes = bytes;
    return driver_check(d, d->cuMemHostRegister(slot->block, bytes, CU_HOST_PORTABLE), e,
                        "making %zu bytes of memory known to the driver", bytes);
}

static size_t in_bytes(const struct gpu_op *op)
{
    return tensor_all_bytes(&op->tensor->op.what);
}

/* Of what this rank gets. */
static size_t out_bytes(const struct gpu_op *op)
{
    const struct tensor *t = op->tensor;
    size_t size = dtype_size(t->op.what.dtype), n = 0;
    if (op_is_ragged(t->op.what.kind))
        for (uint32_t i = 0; i < t->view.team->size; i++)
            n += op->pieces.counts[i];
    else if (t->op.what.kind != SHM_REDUCESCATTER)
        n = t->op.what.count;
    else if (op->pieces.table)
        n = op->pieces.table[t->index];
    else
        n = team_rows_of(t->op.what.count / t->op.what.row, t->view.team, t->index) * t->op.what.row;
    return n * size;
}

static size_t round_to_lines(size_t bytes)
{
    return (bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

/* The argument of the driver's call. The driver may call after the slot is gone, if the team's stream could
 * not be drained. */
struct gpu_copy {
    struct gpu_staging_slot *slot; /* NULL: that was the last use of this */
    bool under_way;
};
static pthread_mutex_t copies = PTHREAD_MUTEX_INITIALIZER;

/* The device is done with it; called by the driver's thread. */
static void hear_copied(void *data)
{
    struct gpu_copy *copy = data;
    pthread_mutex_lock(&copies);
    copy->under_way = false;
    bool last = !copy->slot;
    if (!last) {
        atomic_store(&copy->slot->copied, true);
        doorbell_ring(client.mailbox);
    }
    pthread_mutex_unlock(&copies);
    if (last)
        free(copy);
}

static void set_under_way(struct gpu_copy *copy, bool is)
{
    pthread_mutex_lock(&copies);
    copy->under_way = is;
    pthread_mutex_unlock(&copies);
}

static void free_copy(struct gpu_copy *copy)
{
    pthread_mutex_lock(&copies);
    copy->slot = NULL;
    bool unused = !copy->under_way;
    pthread_mutex_unlock(&copies);
    if (unused)
        free(copy);
}

static bool gives_elements(const struct tensor *t)
{
    return t->op.what.kind != SHM_BROADCAST || t->op.what.root == t->index;
}

static int copy_pieces_in(struct gpu_staging_slot *slot, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    const struct tensor *t = slot->op->tensor;
    const struct group *g = t->op.group;
    struct piece whole = {(void *)(uintptr_t)t->op.in, in_bytes(slot->op)};
    const struct piece *p = g ? g->in : &whole;
    char *to = slot->block;
    for (size_t i = 0; i < (g ? g->ins : 1); to += p[i++].bytes)
        if (p[i].bytes > 0 &&
            driver_check(
                d, d->cuMemcpyDtoHAsync(to, (cu_pointer)(uintptr_t)p[i].at, p[i].bytes, slot->team->stream),
                e, "copying from GPU %d", slot->op->context->gpu) != 0)
            return -1;
    return 0;
}

static int copy_pieces_out(struct gpu_staging_slot *slot, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    const struct tensor *t = slot->op->tensor;
    const struct group *g = t->op.group;
    struct piece whole = {t->op.out, out_bytes(slot->op)};
    const struct piece *p = g ? g->out : &whole;
    const char *from = slot->out;
    for (size_t i = 0; i < (g ? g->outs : 1); from += p[i++].bytes)
        if (p[i].bytes > 0 && p[i].at &&
            driver_check(
                d, d->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)p[i].at, from, p[i].bytes, slot->team->stream),
                e, "copying to GPU %d", slot->op->context->gpu) != 0)
            return -1;
    return 0;
}

static void lose_slot(struct gpu_staging_slot *slot, const char *why)
{
    gpu_fail_job("rank %d: tensor \"%s\": %s", client.rank, slot->op->tensor->name, why);
    fsm_post(&slot->fsm, EV_LOST);
}

static int enqueue_in(struct gpu_staging_slot *slot, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    struct gpu_op *op = slot->op;
    bool apart = op_scatters(op->tensor->op.what.kind);
    size_t in = round_to_lines(in_bytes(op));
    if (make_block(slot, apart ? in + round_to_lines(out_bytes(op)) : in, e) != 0)
        return -1;
    slot->out = apart ? slot->block + in : slot->block;
    if (driver_check(d, d->cuStreamWaitEvent(slot->team->stream, op->input_ready, 0), e,
                     "waiting for an event") != 0)
        return -1;
    if (gives_elements(op->tensor) && copy_pieces_in(slot, e) != 0)
        return -1;
    set_under_way(slot->copy, true);
    if (driver_check(d, d->cuLaunchHostFunc(slot->team->stream, hear_copied, slot->copy), e,
                     "asking for the end of a copy") == 0)
        return 0;
    set_under_way(slot->copy, false);
    return -1;
}

static void copy_in(void *owner)
{
    struct gpu_staging_slot *slot = owner;
    struct err e = ERR_INIT;
    if (!slot->op->context) { /* nor any elements */
        atomic_store(&slot->copied, true);
        return;
    }
    int rc = gpu_enter(slot->op->context, &e);
    atomic_store(&slot->copied, false);
    if (rc == 0) {
        rc = enqueue_in(slot, &e);
        gpu_leave();
    }
    if (rc != 0)
        lose_slot(slot, e.text);
}

static void begin_host(void *owner)
{
    struct gpu_staging_slot *slot = owner;
    struct gpu_op *op = slot->op;
    const struct tensor *t = op->tensor;
    struct request r = {.team = t->view.team,
                        .op = t->op.what,
                        .in = slot->block,
                        .out = slot->out,
                        .capacity = out_bytes(op),
                        .table = op->pieces.table};
    r.op.device = 0;
    if (gpu_host_begin(slot->host, &r) != HVD_SUCCESS)
        lose_slot(slot, hvd_last_error());
}

static void copy_out(void *owner)
{
    struct gpu_staging_slot *slot = owner;
    struct gpu_op *op = slot->op;
    const struct driver *d = gpu_state.driver;
    struct err e = ERR_INIT;
    int rc = op->context ? gpu_enter(op->context, &e) : 0;
    if (rc == 0 && op->context) {
        rc = copy_pieces_out(slot, &e);
        if (rc == 0)
            rc = driver_check(d, d->cuEventRecord(op->result_ready, slot->team->stream), &e,
                              "recording an event");
        gpu_leave();
    }
    slot->op = NULL;
    if (rc == 0)
        gpu_op_end(op, GPU_ENQUEUED);
    else
        gpu_fail_job("rank %d: tensor \"%s\": %s", client.rank, op->tensor->name, e.text);
}

/* ---- slots --------------------------------------------------------------------------------------------- */

static bool make_slot(struct gpu_staging_slot *slot, struct gpu_team *team, uint32_t number)
{
    if (slot->host)
        return true;
    char name[sizeof SHM_DEVICE_NAME + 12];
    snprintf(name, sizeof name, SHM_DEVICE_NAME ".%u", number);
    if (tensor_keep(team->team, name, &slot->host) != HVD_SUCCESS) {
        slot->host = NULL;
        gpu_fail_job("rank %d: %s", client.rank, hvd_last_error());
        return false;
    }
    slot->copy = malloc(sizeof *slot->copy);
    if (!slot->copy) {
        slot->host = NULL;
        gpu_fail_job("rank %d: no memory", client.rank);
        return false;
    }
    *slot->copy = (struct gpu_copy){.slot = slot};
    slot->team = team;
    fsm_init(&slot->fsm, &table, slot, team->label, SLOT_FREE);
    return true;
}

bool gpu_stage(struct gpu_op *op)
{
    struct gpu_team *team = op->team;
    struct gpu_staging_slot *slot = &team->slot[team->staged % GPU_STAGING_SLOTS];
    if (slot->op || !make_slot(slot, team, team->staged % GPU_STAGING_SLOTS))
        return false;
    team->staged++;
    op->phase = GPU_STAGED;
    slot->op = op;
    fsm_post(&slot->fsm, EV_TAKEN);
    return true;
}

static void advance_slot(struct gpu_staging_slot *slot)
{
    if (slot->fsm.state == SLOT_COPYING && atomic_load(&slot->copied))
        fsm_post(&slot->fsm, EV_COPIED);
    int status;
    if (slot->fsm.state != SLOT_RUNNING || !gpu_host_ended(slot->host, &status))
        return;
    if (status == HVD_SUCCESS) {
        fsm_post(&slot->fsm, EV_ENDED);
        return;
    }
    if (!region_poisoned(&client.region))
        lose_slot(slot, slot->host->text);
}

void gpu_staging_progress(struct gpu_team *team)
{
    for (uint32_t i = 0; i < GPU_STAGING_SLOTS && !gpu_state.failed; i++)
        if (team->slot[i].op)
            advance_slot(&team->slot[i]);
}

enum gpu_need gpu_staging_need(const struct gpu_team *team)
{
    for (uint32_t i = 0; i < GPU_STAGING_SLOTS; i++)
        if (team->slot[i].op)
            return GPU_BELL;
    return GPU_NOTHING;
}

void gpu_staging_free(struct gpu_team *team, bool settled)
{
    for (struct gpu_staging_slot *slot = team->slot; slot < team->slot + GPU_STAGING_SLOTS; slot++) {
        if (slot->copy)
            free_copy(slot->copy);
        if (!settled)
            continue;
        drop_block(slot->memory);
        while (slot->olders > 0)
            drop_block(slot->older[--slot->olders]);
    }
}
