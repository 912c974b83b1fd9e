/* What a buffer is, and one operation on a device as the rest of libhvd sees it. */
#include "collectives/client/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/client/counts.h"
#include "collectives/gpu/async_destroy.h"

#define ENDINGS_MS 2000 /* for communicators that were given up: NCCL still works on them */

struct device device = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Atomic bool device_seen;

bool device_look(void)
{
    if (!atomic_load_explicit(&device_seen, memory_order_relaxed) && driver_in_process())
        atomic_store(&device_seen, true);
    return atomic_load_explicit(&device_seen, memory_order_relaxed);
}

/* ---- whose memory -------------------------------------------------------------------------------------- */

/* What has been seen of a call's buffers. */
struct claim {
    bool host, device, empty; /* empty: no buffer has elements */
    struct pointer at;        /* of the first one on a device */
};

static int see(struct claim *c, const void *buffer)
{
    struct err e = ERR_INIT;
    struct pointer p;

    if (!buffer)
        return HVD_SUCCESS;
    if (pointer_find(buffer, &p, &e) != 0)
        return fail(HVD_ERR_INVALID, "%s", e.text);
    if (p.device && c->device && p.ordinal != c->at.ordinal)
        return fail(HVD_ERR_INVALID, "one buffer is memory of GPU %d, another one of GPU %d", c->at.ordinal,
                    p.ordinal);
    if (p.device && !c->device)
        c->at = p;
    c->device = c->device || p.device;
    c->host = c->host || !p.device;
    return c->device && c->host
               ? fail(HVD_ERR_INVALID, "one buffer is memory of GPU %d, another one of the host",
                      c->at.ordinal)
               : HVD_SUCCESS;
}

/* Those that have elements say what the call is; where none has, all that are not NULL. */
static int see_all(struct claim *c, const struct request *r, bool full)
{
    uint64_t in = tensor_all_bytes(&r->op);
    int status = HVD_SUCCESS;

    if (r->in && (in > 0) == full)
        status = see(c, r->in);
    if (status == HVD_SUCCESS && r->out && r->out != r->in && (r->room > 0) == full)
        status = see(c, r->out);
    for (size_t i = 0; r->group && i < r->group->ins + r->group->outs && status == HVD_SUCCESS; i++) {
        const struct piece *p = &r->group->piece[i];
        if ((p->bytes > 0) == full)
            status = see(c, p->at);
    }
    return status;
}

static int see_request(struct claim *c, const struct request *r)
{
    int status = HVD_SUCCESS;

    *c = (struct claim){.host = false};
    if (op_moves(r->op.kind))
        status = see_all(c, r, true);
    c->empty = op_moves(r->op.kind) && !c->host && !c->device;
    if (status == HVD_SUCCESS && c->empty)
        status = see_all(c, r, false);
    return status;
}

/* A kernel that loads an element from such an address ends the use of its GPU for the whole process. */
static bool is_askew(const struct request *r, const void *buffer, uint64_t bytes)
{
    return bytes > 0 && (uintptr_t)buffer % dtype_size(r->op.dtype) != 0;
}

/* What moves elements moves bytes, which lie anywhere. */
static int check_places(const struct request *r, int gpu)
{
    const void *askew = is_askew(r, r->in, tensor_all_bytes(&r->op)) ? r->in
                        : is_askew(r, r->out, r->room)               ? r->out
                                                                     : NULL;

    for (size_t i = 0; !askew && r->group && i < r->group->ins + r->group->outs; i++)
        if (is_askew(r, r->group->piece[i].at, r->group->piece[i].bytes))
            askew = r->group->piece[i].at;
    if (!askew)
        return HVD_SUCCESS;
    return fail(
        HVD_ERR_INVALID,
        "%p in memory of GPU %d is not aligned: an address of %s that a GPU combines is a multiple of "
        "%zu",
        askew, gpu, dtype_name(r->op.dtype), dtype_size(r->op.dtype));
}

int device_claim(struct request *r)
{
    struct claim c;
    int status = see_request(&c, r);

    if (status == HVD_SUCCESS && c.device && op_reduces(r->op.kind) && dtype_size(r->op.dtype) > 0)
        status = check_places(r, c.at.ordinal);
    if (status == HVD_SUCCESS)
        r->op.device = c.empty ? device_claim_empty(r, c.device) : c.device;
    return status;
}

/* ---- an operation -------------------------------------------------------------------------------------- */

static void drop_events(struct device_op *op)
{
    const struct driver *d = device.driver;

    if (op->given)
        d->cuEventDestroy(op->given);
    if (op->done)
        d->cuEventDestroy(op->done);
    op->given = op->done = NULL;
}

int device_events(struct device_op *op, struct err *e)
{
    const struct driver *d = device.driver;
    int rc;

    if (op->given)
        return 0;
    if (device_enter(op->context, e) != 0)
        return -1;
    rc = driver_check(d, d->cuEventCreate(&op->given, CU_EVENT_NO_TIMING), e, "making an event");
    if (rc == 0)
        rc = driver_check(d, d->cuEventCreate(&op->done, CU_EVENT_NO_TIMING), e, "making an event");
    if (rc != 0)
        drop_events(op);
    device_leave();
    return rc;
}

/* Of what the call gives; *context NULL: that names none, and it has no elements. */
static int find_gpu(struct tensor *t, const struct request *r, struct device_context **context)
{
    struct err e = ERR_INIT;
    struct claim c;
    int status = see_request(&c, r);

    *context = NULL;
    if (status != HVD_SUCCESS || (!c.device && !device_place_of(r, &c.at) && r->op.device == OP_EITHER))
        return status;
    if (!(*context = device_context_find(&c.at, &e)))
        return fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", t->name, e.text);
    return HVD_SUCCESS;
}

static int prepare(struct tensor *t, const struct request *r)
{
    struct err e = ERR_INIT;
    struct device_op *op = t->device;
    struct device_context *context;
    int status = find_gpu(t, r, &context);

    if (status != HVD_SUCCESS)
        return status;
    if (!op && !(op = t->device = calloc(1, sizeof *op)))
        return fail(HVD_ERR_MEMORY, "no memory for tensor \"%s\"", t->name);
    op->tensor = t;
    if (op->context != context) {
        drop_events(op);
        device_engine_forget(op);
    }
    op->context = context;
    op->stream = r->stream;
    if (context && device_events(op, &e) != 0)
        return fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", t->name, e.text);
    if (client.solo)
        return device_describe(op, r);
    op->team = NULL;
    if (r->team->id >= 0 && atomic_load(&client.removed[r->team->id]))
        return fail(HVD_ERR_SET_UNKNOWN, "there is no process set %d", r->team->id);
    if (!(op->team = device_team_find(r->team, context)))
        return last_failure();
    if (context && op->team->context != context && op->team->context->gpu == context->gpu)
        return fail(
            HVD_ERR_INVALID,
            "tensor \"%s\": its memory is in another CUDA context of GPU %d than the first one of this "
            "rank in process set %d",
            t->name, context->gpu, r->team->id);
    if (context && op->team->context != context)
        return fail(HVD_ERR_INVALID,
                    "tensor \"%s\": it is in memory of GPU %d, the first one of this rank in process set %d "
                    "was of GPU %d",
                    t->name, context->gpu, r->team->id, op->team->context->gpu);
    return device_describe(op, r);
}

int device_prepare(struct tensor *t, const struct request *r)
{
    int status;

    device_lock();
    status = prepare(t, r);
    device_unlock();
    return status;
}

/* What is in the user's stream by now comes before the operation. */
static int give(struct device_op *op)
{
    struct err e = ERR_INIT;
    int rc, status = HVD_SUCCESS;
    bool capturing = false;

    if (!op->context)
        return HVD_SUCCESS;
    rc = device_enter(op->context, &e);
    if (rc == 0) {
        status = device_capturing(op, &capturing);
        if (status == HVD_SUCCESS && capturing)
            status = device_is_captured(op);
        if (status == HVD_SUCCESS)
            rc = device_engine_give(op, &e);
        if (status == HVD_SUCCESS && rc == 0)
            rc = device_record_given(op, &e);
        device_leave();
    }
    return rc == 0 ? status : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", op->tensor->name, e.text);
}

static int start(struct tensor *t, bool will_wait)
{
    struct device_op *op = t->device;
    int status;

    if (!op->team) /* another thread has, since this was prepared */
        return fail(HVD_ERR_SET_UNKNOWN, "tensor \"%s\": process set %d was removed", t->name,
                    t->view.team->id);
    if ((status = give(op)) != HVD_SUCCESS)
        return status;
    tensor_begin(&t->view, ++t->sequence);
    count_begins(t);
    op->phase = DEVICE_ARRIVING;
    op->status = HVD_SUCCESS;
    op->staged = op->by_engine = op->known = op->elsewhere = false;
    t->where.in = device_memory_mark(op);
    op->begun = op->agreed = 0;
    device.pending++;
    device_thread_wants();
    tensor_publish(&t->view, &t->op, &t->where);
    t->phase = PHASE_DEVICE;
    if (tensor_arrived(&t->view))
        device_look_at(op);
    tell_others(t, will_wait);
    device_thread_kick(device_progress());
    return HVD_SUCCESS;
}

int device_start(struct tensor *t, bool will_wait)
{
    int status;

    device_lock();
    status = start(t, will_wait);
    device_unlock();
    return status;
}

int device_step(struct tensor *t)
{
    struct device_op *op = t->device;
    bool ended;
    int status;

    if (region_poisoned(&client.region))
        return 1;
    if (op->waited) /* who holds it may have rung already, so a waiter that only tried would sleep on */
        device_lock();
    else if (!device_trylock())
        return 1;
    if (op->phase == DEVICE_ARRIVING)
        device_look_at(op);
    device_thread_kick(device_progress());
    ended = op->phase == DEVICE_ENQUEUED || op->phase == DEVICE_FAILED;
    status = op->phase == DEVICE_FAILED ? op->status : HVD_SUCCESS;
    if (op->phase == DEVICE_NOWHERE) {
        op->phase = DEVICE_IDLE;
        op->elsewhere = true;
        t->phase = team_is_here(t->view.team) ? PHASE_ARRIVE : PHASE_REMOTE;
    }
    device_unlock();
    if (ended) {
        timeline(t, TIMELINE_AGREED, op->agreed);
        if (op->begun)
            timeline(t, op->staged ? TIMELINE_STAGED : TIMELINE_NCCL, op->begun);
    }
    return ended ? status : 1;
}

/* One that is left before its end, because the job has failed, stays in whatever queue it is: nothing looks
 * there any more. */
bool device_ended(struct tensor *t)
{
    struct device_op *op = t->device;
    bool well;

    device_lock();
    well = op->phase == DEVICE_ENQUEUED;
    if (op->phase != DEVICE_ENQUEUED && op->phase != DEVICE_FAILED)
        device_abort();
    op->phase = DEVICE_IDLE;
    device_memory_sweep();
    device_unlock();
    return well;
}

/* A stream that is being captured cannot wait for what came before: the host does, for this one result. */
static int wait_for_result(struct device_op *op, bool capturing, struct err *e)
{
    const struct driver *d = device.driver;
    cu_stream stream = op->stream;
    int rc = 0;

    if (capturing)
        rc = driver_stream(d, &stream, e);
    if (rc == 0)
        rc = driver_check(d, d->cuStreamWaitEvent(stream, op->done, 0), e,
                          "letting the stream wait for the result");
    if (rc == 0)
        rc = device_engine_return(op, stream, e);
    if (!capturing)
        return rc;
    if (rc == 0)
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "waiting for the result");
    if (stream)
        d->cuStreamDestroy(stream);
    return rc;
}

/* Without the lock: it may wait. */
int device_result(struct tensor *t)
{
    struct device_op *op = t->device;
    struct err e = ERR_INIT;
    unsigned mode;
    int rc, status = HVD_SUCCESS;
    bool capturing;

    if (op->elsewhere || !op->context)
        return HVD_SUCCESS;
    mode = driver_capture_mode(device.driver, CU_CAPTURE_MODE_RELAXED);
    rc = device_enter(op->context, &e);
    if (rc == 0) {
        status = device_capturing(op, &capturing);
        if (status == HVD_SUCCESS)
            rc = wait_for_result(op, capturing, &e);
        device_leave();
    }
    driver_capture_mode(device.driver, mode);
    return rc == 0 ? status : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", op->tensor->name, e.text);
}

void device_waits(struct tensor *t, bool begins)
{
    if (client.solo)
        return;
    if (!begins && t->status == HVD_SUCCESS && (t->status = device_result(t)) != HVD_SUCCESS)
        memcpy(t->text, hvd_last_error(), strnlen(hvd_last_error(), sizeof t->text - 1) + 1);
    if (begins ? t->phase == PHASE_ENDED : !t->device->waited)
        return;
    device_lock();
    t->device->waited = begins;
    device.waiters += begins ? 1 : (uint32_t)-1;
    device_thread_wants();
    if (!begins && device.pending > 0 && device.waiters == 0)
        device_thread_kick(device_progress());
    device_unlock();
}

void device_free(struct device_op *op)
{
    if (!op)
        return;
    device_lock();
    drop_events(op);
    device_engine_forget(op);
    device_unlock();
    device_undescribe(op);
    free(op);
}

/* The set goes while another thread has this begun in it: what not all ranks have begun can still be left. */
static void leave_set(struct device_op *op)
{
    int32_t set = op->team->team->id;

    if (op->phase == DEVICE_ARRIVING)
        device_look_at(op);
    if (op->phase == DEVICE_ARRIVING)
        device_fail(op, HVD_ERR_SET_UNKNOWN, "process set %d was removed meanwhile", set);
    else if (op->phase >= DEVICE_AGREED && op->phase <= DEVICE_STAGED)
        device_break("rank %d: tensor \"%s\": process set %d was removed meanwhile", client.rank,
                     op->tensor->name, set);
    op->team = NULL;
}

void device_set_removed(const struct team *team)
{
    struct device_team **at, *gone;

    device_lock();
    for (at = &device.teams; *at && (*at)->team != team; at = &(*at)->next)
        ;
    if ((gone = *at) != NULL) {
        device_team_settle(gone, true);
        for (uint32_t slot = 0; slot < SHM_SLOTS; slot++) {
            const struct tensor *t = atomic_load(&client.by_slot[slot]);
            if (t && t->device && t->device->team == gone)
                leave_set(t->device);
        }
        *at = gone->next;
        device_team_free(gone);
    }
    device_unlock();
}

void device_drain(void)
{
    device_lock();
    for (struct device_team *team = device.teams; team; team = team->next)
        device_team_settle(team, true);
    device_unlock();
}

void device_close(void)
{
    device_thread_stop();
    device_lock();
    if (!client.solo && client.region.header && region_poisoned(&client.region))
        device_abort();
    for (struct device_team *team = device.teams; team; team = team->next)
        device_team_settle(team, false);
    while (device.teams) {
        struct device_team *team = device.teams;
        device.teams = team->next;
        device_team_free(team);
    }
    if (device.driver)
        endings_wait(ENDINGS_MS);
    device_engine_close();
    device_memory_close();
    device.pending = device.waiters = 0;
    device.failed = device.stranded = device.moved = device.warned = false;
    device_unlock();
}
