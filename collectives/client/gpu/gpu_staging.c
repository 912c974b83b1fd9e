/* An operation by way of host memory: where NCCL is not there, or has it not.
 *
 * A team has some lanes, and its operations take them in turn, by the team's order, so all ranks take the
 * same one: a lane is a name of its own ("hvd.device.2") for the operation on the host, and a block of shared
 * memory that the driver knows. The elements are copied to the block in the team's stream; when that has
 * happened the host operation begins, in place; when it has ended the result's copy is put into the stream,
 * behind which the next one of the lane comes. Nobody waits for any of it: a block that is too small is kept
 * until the team goes, since a stream that hangs on a lost rank is only freed by who waits for nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/gpu/gpu.h"
#include "collectives/shm/doorbell.h"

enum { LANE_FREE, LANE_COPYING, LANE_RUNNING };
enum { EV_TAKEN, EV_COPIED, EV_ENDED, EV_LOST };

static const char *const state_names[] = {"free", "copying", "running"};
static const char *const event_names[] = {"taken", "copied", "ended", "lost"};

static fsm_action copy_in, begin_host, copy_out;

static const struct fsm_row rows[] = {
    {LANE_FREE, EV_TAKEN, LANE_COPYING, copy_in},  {LANE_COPYING, EV_COPIED, LANE_RUNNING, begin_host},
    {LANE_RUNNING, EV_ENDED, LANE_FREE, copy_out}, {LANE_COPYING, EV_LOST, LANE_FREE, NULL},
    {LANE_RUNNING, EV_LOST, LANE_FREE, NULL},
};
static const struct fsm_table table = {"lane", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- operations of our own on the host ----------------------------------------------------------------- */

int device_host_begin(struct tensor *t, const struct request *r)
{
    int status;

    pthread_mutex_lock(&t->lock);
    status = submit_locked(t, r, false);
    pthread_mutex_unlock(&t->lock);
    return status;
}

bool device_host_ended(struct tensor *t, int *status)
{
    bool ended;

    pthread_mutex_lock(&t->lock);
    ended = t->phase == PHASE_ENDED || progress_locked(t);
    if (ended) {
        *status = t->status;
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
    device.driver->cuMemHostUnregister(block_in(memory));
    arena_free(memory);
}

static int make_block(struct device_lane *lane, size_t bytes, struct err *e)
{
    const struct driver *d = device.driver;

    if (bytes <= lane->block_bytes)
        return 0;
    bytes = page_up(bytes < 2 * lane->block_bytes ? 2 * lane->block_bytes : bytes);
    char *larger = arena_alloc(bytes + page_up(1), false);
    if (!larger)
        return err_set(e, ERR_MEMORY, "%s", hvd_last_error());
    if (lane->memory)
        lane->older[lane->olders++] = lane->memory;
    lane->memory = larger;
    lane->block = block_in(larger);
    lane->block_bytes = bytes;
    return driver_check(d, d->cuMemHostRegister(lane->block, bytes, CU_HOST_PORTABLE), e,
                        "making %zu bytes of memory known to the driver", bytes);
}

static size_t in_bytes(const struct device_op *op)
{
    return tensor_all_bytes(&op->tensor->op);
}

/* Of what this rank gets. */
static size_t out_bytes(const struct device_op *op)
{
    const struct tensor *t = op->tensor;
    size_t size = dtype_size(t->op.dtype), n = 0;

    if (op_is_ragged(t->op.kind))
        for (uint32_t i = 0; i < t->view.team->size; i++)
            n += op->counts[i];
    else if (t->op.kind != SHM_REDUCESCATTER)
        n = t->op.count;
    else if (op->table)
        n = op->table[t->index];
    else
        n = rows_of_rank(t->op.count / t->op.row, t->view.team, t->index) * t->op.row;
    return n * size;
}

static size_t lines(size_t bytes)
{
    return (bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

/* What the driver is given of a lane: it may call when the lane has gone, where a stream could not be waited
 * for. */
struct device_copy {
    struct device_lane *lane; /* NULL: that was the last use of this */
    bool under_way;
};
static pthread_mutex_t copies = PTHREAD_MUTEX_INITIALIZER;

/* The device is done with it; called by the driver's thread. */
static void copied(void *data)
{
    struct device_copy *copy = data;
    bool last;

    pthread_mutex_lock(&copies);
    copy->under_way = false;
    last = !copy->lane;
    if (!last) {
        atomic_store(&copy->lane->copied, true);
        doorbell_ring(client.mailbox);
    }
    pthread_mutex_unlock(&copies);
    if (last)
        free(copy);
}

static void set_under_way(struct device_copy *copy, bool is)
{
    pthread_mutex_lock(&copies);
    copy->under_way = is;
    pthread_mutex_unlock(&copies);
}

static void free_copy(struct device_copy *copy)
{
    bool unused;

    pthread_mutex_lock(&copies);
    copy->lane = NULL;
    unused = !copy->under_way;
    pthread_mutex_unlock(&copies);
    if (unused)
        free(copy);
}

static bool gives(const struct tensor *t)
{
    return t->op.kind != SHM_BROADCAST || t->op.root == t->index;
}

static int copy_pieces_in(struct device_lane *lane, struct err *e)
{
    const struct driver *d = device.driver;
    const struct tensor *t = lane->op->tensor;
    const struct group *g = t->group;
    struct piece whole = {(void *)(uintptr_t)t->in, in_bytes(lane->op)};
    const struct piece *p = g ? g->in : &whole;
    char *to = lane->block;

    for (size_t i = 0; i < (g ? g->ins : 1); to += p[i++].bytes)
        if (p[i].bytes > 0 &&
            driver_check(
                d, d->cuMemcpyDtoHAsync(to, (cu_pointer)(uintptr_t)p[i].at, p[i].bytes, lane->team->stream),
                e, "copying from GPU %d", lane->op->context->gpu) != 0)
            return -1;
    return 0;
}

static int copy_pieces_out(struct device_lane *lane, struct err *e)
{
    const struct driver *d = device.driver;
    const struct tensor *t = lane->op->tensor;
    const struct group *g = t->group;
    struct piece whole = {t->out, out_bytes(lane->op)};
    const struct piece *p = g ? g->out : &whole;
    const char *from = lane->out;

    for (size_t i = 0; i < (g ? g->outs : 1); from += p[i++].bytes)
        if (p[i].bytes > 0 && p[i].at &&
            driver_check(
                d, d->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)p[i].at, from, p[i].bytes, lane->team->stream),
                e, "copying to GPU %d", lane->op->context->gpu) != 0)
            return -1;
    return 0;
}

static void lose(struct device_lane *lane, const char *why)
{
    device_break("rank %d: tensor \"%s\": %s", client.rank, lane->op->tensor->name, why);
    fsm_post(&lane->fsm, EV_LOST);
}

static int enqueue_in(struct device_lane *lane, struct err *e)
{
    const struct driver *d = device.driver;
    struct device_op *op = lane->op;
    bool apart = op_scatters(op->tensor->op.kind);
    size_t in = lines(in_bytes(op));

    if (make_block(lane, apart ? in + lines(out_bytes(op)) : in, e) != 0)
        return -1;
    lane->out = apart ? lane->block + in : lane->block;
    if (driver_check(d, d->cuStreamWaitEvent(lane->team->stream, op->given, 0), e, "waiting for an event") !=
        0)
        return -1;
    if (gives(op->tensor) && copy_pieces_in(lane, e) != 0)
        return -1;
    set_under_way(lane->copy, true);
    if (driver_check(d, d->cuLaunchHostFunc(lane->team->stream, copied, lane->copy), e,
                     "asking for the end of a copy") == 0)
        return 0;
    set_under_way(lane->copy, false);
    return -1;
}

static void copy_in(void *owner)
{
    struct device_lane *lane = owner;
    struct err e = ERR_INIT;
    int rc;

    if (!lane->op->context) { /* nor any elements */
        atomic_store(&lane->copied, true);
        return;
    }
    rc = device_enter(lane->op->context, &e);
    atomic_store(&lane->copied, false);
    if (rc == 0) {
        rc = enqueue_in(lane, &e);
        device_leave();
    }
    if (rc != 0)
        lose(lane, e.text);
}

static void begin_host(void *owner)
{
    struct device_lane *lane = owner;
    struct device_op *op = lane->op;
    const struct tensor *t = op->tensor;
    struct request r = {.team = t->view.team,
                        .op = t->op,
                        .in = lane->block,
                        .out = lane->out,
                        .room = out_bytes(op),
                        .table = op->table};

    r.op.device = 0;
    if (device_host_begin(lane->host, &r) != HVD_SUCCESS)
        lose(lane, hvd_last_error());
}

static void copy_out(void *owner)
{
    struct device_lane *lane = owner;
    struct device_op *op = lane->op;
    const struct driver *d = device.driver;
    struct err e = ERR_INIT;
    int rc = op->context ? device_enter(op->context, &e) : 0;

    if (rc == 0 && op->context) {
        rc = copy_pieces_out(lane, &e);
        if (rc == 0)
            rc = driver_check(d, d->cuEventRecord(op->done, lane->team->stream), &e, "recording an event");
        device_leave();
    }
    lane->op = NULL;
    if (rc == 0)
        device_end(op, DEVICE_ENQUEUED);
    else
        device_break("rank %d: tensor \"%s\": %s", client.rank, op->tensor->name, e.text);
}

/* ---- lanes --------------------------------------------------------------------------------------------- */

static bool make_lane(struct device_lane *lane, struct device_team *team, uint32_t number)
{
    char name[sizeof SHM_DEVICE_NAME + 12];

    if (lane->host)
        return true;
    snprintf(name, sizeof name, SHM_DEVICE_NAME ".%u", number);
    if (tensor_find(team->team, name, &lane->host) != HVD_SUCCESS) {
        lane->host = NULL;
        device_break("rank %d: %s", client.rank, hvd_last_error());
        return false;
    }
    if (!(lane->copy = malloc(sizeof *lane->copy))) {
        lane->host = NULL;
        device_break("rank %d: no memory", client.rank);
        return false;
    }
    *lane->copy = (struct device_copy){.lane = lane};
    lane->team = team;
    fsm_init(&lane->fsm, &table, lane, team->label, LANE_FREE);
    return true;
}

bool device_stage(struct device_op *op)
{
    struct device_team *team = op->team;
    struct device_lane *lane = &team->lane[team->staged % DEVICE_LANES];

    if (lane->op || !make_lane(lane, team, team->staged % DEVICE_LANES))
        return false;
    team->staged++;
    op->phase = DEVICE_STAGED;
    lane->op = op;
    fsm_post(&lane->fsm, EV_TAKEN);
    return true;
}

static void advance(struct device_lane *lane)
{
    int status;

    if (lane->fsm.state == LANE_COPYING && atomic_load(&lane->copied))
        fsm_post(&lane->fsm, EV_COPIED);
    if (lane->fsm.state != LANE_RUNNING || !device_host_ended(lane->host, &status))
        return;
    if (status == HVD_SUCCESS) {
        fsm_post(&lane->fsm, EV_ENDED);
        return;
    }
    if (!region_poisoned(&client.region))
        lose(lane, lane->host->text);
}

void device_stages(struct device_team *team)
{
    for (uint32_t i = 0; i < DEVICE_LANES && !device.failed; i++)
        if (team->lane[i].op)
            advance(&team->lane[i]);
}

enum device_need device_stage_need(const struct device_team *team)
{
    for (uint32_t i = 0; i < DEVICE_LANES; i++)
        if (team->lane[i].op)
            return DEVICE_BELL;
    return DEVICE_NOTHING;
}

void device_lanes_free(struct device_team *team, bool settled)
{
    for (struct device_lane *lane = team->lane; lane < team->lane + DEVICE_LANES; lane++) {
        if (lane->copy)
            free_copy(lane->copy);
        if (!settled)
            continue;
        drop_block(lane->memory);
        while (lane->olders > 0)
            drop_block(lane->older[--lane->olders]);
    }
}
