/* One operation on a GPU, as the rest of libhvd sees it. */
#include "collectives/client/gpu/gpu_path.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/client/counts.h"
#include "collectives/client/gpu/gpu_engine.h"
#include "collectives/client/gpu/gpu_memory.h"
#include "collectives/client/gpu/gpu_progress.h"
#include "collectives/gpu/async_destroy.h"
#include "collectives/gpu/pack.h"

#define ENDINGS_MS 2000 /* for communicators that were given up: NCCL still works on them */

/* The context of the call's buffers. *context NULL: no buffer names a GPU, and there are no elements. */
static int find_context(struct tensor *t, const struct request *r, struct gpu_context **context)
{
    struct err e = ERR_INIT;
    struct pointer at;
    bool found;
    int status = gpu_locate(r, &at, &found);
    *context = NULL;
    if (status != HVD_SUCCESS || !found)
        return status;
    *context = gpu_context_find(&at, &e);
    return *context ? HVD_SUCCESS : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", t->name, e.text);
}

static int prepare_op(struct tensor *t, const struct request *r)
{
    struct err e = ERR_INIT;
    struct gpu_op *op = t->gpu;
    struct gpu_context *context;
    int status = find_context(t, r, &context);
    if (status != HVD_SUCCESS)
        return status;
    if (!op)
        op = t->gpu = calloc(1, sizeof *op);
    if (!op)
        return fail(HVD_ERR_MEMORY, "no memory for tensor \"%s\"", t->name);
    op->tensor = t;
    if (op->context != context) {
        gpu_drop_events(op);
        gpu_engine_forget(op);
    }
    op->context = context;
    op->stream = r->stream;
    if (context && gpu_make_events(op, &e) != 0)
        return fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", t->name, e.text);
    if (client.solo)
        return gpu_describe(op, r);
    op->team = NULL;
    if (r->team->id >= 0 && r->team->id < (int32_t)SHM_SETS_MAX && atomic_load(&client.removed[r->team->id]))
        return fail(HVD_ERR_SET_UNKNOWN, "there is no process set %d", r->team->id);
    status = gpu_thread_start();
    if (status != HVD_SUCCESS)
        return status;
    op->team = gpu_team_find(r->team, context);
    if (!op->team)
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
    return gpu_describe(op, r);
}

/* No elements go through shared memory; tables do. */
static int prepare_tensor(struct tensor *t, const struct request *r)
{
    int status = HVD_SUCCESS;
    t->op.capacity = 0;
    t->op.small = true;
    if (!client.solo && op_scatters(r->op.kind))
        status = operation_place(t);
    if (status != HVD_SUCCESS)
        return status;
    gpu_lock();
    status = prepare_op(t, r);
    gpu_unlock();
    return status;
}

/* The operation comes after all that is in the user's stream by now. */
static int record_input(struct gpu_op *op)
{
    struct err e = ERR_INIT;
    int status = HVD_SUCCESS;
    bool capturing = false;
    if (!op->context)
        return HVD_SUCCESS;
    int rc = gpu_enter(op->context, &e);
    if (rc == 0) {
        status = gpu_is_capturing(op, &capturing);
        if (status == HVD_SUCCESS && capturing)
            status = gpu_refuse_capture(op);
        if (status == HVD_SUCCESS)
            rc = gpu_engine_prepare(op, &e);
        if (status == HVD_SUCCESS && rc == 0)
            rc = gpu_record_input(op, &e);
        gpu_leave();
    }
    return rc == 0 ? status : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", op->tensor->name, e.text);
}

static int start_op(struct tensor *t, bool will_wait)
{
    struct gpu_op *op = t->gpu;
    if (!op->team) /* another thread has removed the set since this was prepared */
        return fail(HVD_ERR_SET_UNKNOWN, "tensor \"%s\": process set %d was removed", t->name,
                    t->view.team->id);
    int status = record_input(op);
    if (status != HVD_SUCCESS)
        return status;
    tensor_begin(&t->view, ++t->sequence);
    count_begins(t);
    op->phase = GPU_ARRIVING;
    op->status = HVD_SUCCESS;
    op->staged = op->by_engine = op->registered = op->elsewhere = false;
    t->op.where.in = gpu_memory_mark(op);
    op->begun = op->agreed = 0;
    gpu_state.pending++;
    gpu_want_alarm();
    tensor_publish(&t->view, &t->op.what, &t->op.where);
    t->phase = PHASE_PATH;
    if (tensor_arrived(&t->view))
        gpu_op_check(op);
    operation_announce(t, will_wait);
    gpu_thread_wake(gpu_progress());
    return HVD_SUCCESS;
}

static int start_tensor(struct tensor *t, bool will_wait)
{
    if (client.solo)
        return solo_run(t, gpu_solo);
    if (region_poisoned(&client.region)) {
        report_point(t, POINT_ENDED, 0);
        return fail_poisoned();
    }
    gpu_lock();
    int status = start_op(t, will_wait);
    gpu_unlock();
    return status;
}

static int step_tensor(struct tensor *t)
{
    struct gpu_op *op = t->gpu;
    if (region_poisoned(&client.region))
        return 1;
    if (op->waited) /* the lock's holder may have rung already: a waiter that only tried would sleep on */
        gpu_lock();
    else if (!gpu_trylock())
        return 1;
    if (op->phase == GPU_ARRIVING)
        gpu_op_check(op);
    gpu_thread_wake(gpu_progress());
    bool ended = op->phase == GPU_ENQUEUED || op->phase == GPU_FAILED;
    int status = op->phase == GPU_FAILED ? op->status : HVD_SUCCESS;
    if (op->phase == GPU_NOWHERE) {
        op->phase = GPU_IDLE;
        op->elsewhere = true;
        t->phase = team_is_here(t->view.team) ? PHASE_ARRIVE : PHASE_REMOTE;
    }
    gpu_unlock();
    if (ended) {
        report_point(t, POINT_AGREED, op->agreed);
        if (op->begun)
            report_point(t, op->staged ? POINT_STAGED : POINT_NCCL, op->begun);
    }
    return ended ? status : 1;
}

/* One that is left before its end, because the job has failed, stays in whatever queue it is: nothing looks
 * there any more. */
static bool end_tensor(struct tensor *t)
{
    struct gpu_op *op = t->gpu;
    gpu_lock();
    bool well = op->phase == GPU_ENQUEUED;
    if (op->phase != GPU_ENQUEUED && op->phase != GPU_FAILED)
        gpu_abort();
    op->phase = GPU_IDLE;
    gpu_memory_sweep();
    gpu_unlock();
    return well;
}

/* A stream that is being captured cannot wait for what came before: the host does, for this one result. */
static int wait_for_result(struct gpu_op *op, bool capturing, struct err *e)
{
    const struct driver *d = gpu_state.driver;
    cu_stream stream = op->stream;
    int rc = 0;
    if (capturing)
        rc = driver_stream(d, &stream, e);
    if (rc == 0)
        rc = driver_check(d, d->cuStreamWaitEvent(stream, op->result_ready, 0), e,
                          "letting the stream wait for the result");
    if (rc == 0)
        rc = gpu_engine_copy_back(op, stream, e);
    if (!capturing)
        return rc;
    if (rc == 0)
        rc = driver_check(d, d->cuStreamSynchronize(stream), e, "waiting for the result");
    if (stream)
        d->cuStreamDestroy(stream);
    return rc;
}

/* Without the lock: it may wait. */
static int take_result(struct tensor *t)
{
    struct gpu_op *op = t->gpu;
    struct err e = ERR_INIT;
    int status = HVD_SUCCESS;
    if (op->elsewhere || !op->context)
        return HVD_SUCCESS;
    unsigned mode = driver_capture_mode(gpu_state.driver, CU_CAPTURE_MODE_RELAXED);
    int rc = gpu_enter(op->context, &e);
    if (rc == 0) {
        bool capturing;
        status = gpu_is_capturing(op, &capturing);
        if (status == HVD_SUCCESS)
            rc = wait_for_result(op, capturing, &e);
        gpu_leave();
    }
    driver_capture_mode(gpu_state.driver, mode);
    return rc == 0 ? status : fail(HVD_ERR_SYSTEM, "tensor \"%s\": %s", op->tensor->name, e.text);
}

static void wait_for_tensor(struct tensor *t, bool begins)
{
    if (client.solo)
        return;
    if (!begins && t->op.status == HVD_SUCCESS) {
        t->op.status = take_result(t);
        if (t->op.status != HVD_SUCCESS)
            memcpy(t->text, hvd_last_error(), strnlen(hvd_last_error(), sizeof t->text - 1) + 1);
    }
    if (begins ? t->phase == PHASE_ENDED : !t->gpu->waited)
        return;
    gpu_lock();
    t->gpu->waited = begins;
    gpu_state.waiters += begins ? 1 : (uint32_t)-1;
    gpu_want_alarm();
    if (!begins && gpu_state.pending > 0 && gpu_state.waiters == 0)
        gpu_thread_wake(gpu_progress());
    gpu_unlock();
}

static void free_tensor(struct tensor *t)
{
    struct gpu_op *op = t->gpu;
    gpu_lock();
    gpu_drop_events(op);
    gpu_engine_forget(op);
    gpu_unlock();
    gpu_describe_free(op);
    free(op);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* The set goes while another thread has this begun in it: what not all ranks have begun can still be left. */
static void leave_set(struct gpu_op *op)
{
    int32_t set = op->team->team->id;
    if (op->phase == GPU_ARRIVING)
        gpu_op_check(op);
    if (op->phase == GPU_ARRIVING)
        gpu_op_fail(op, HVD_ERR_SET_UNKNOWN, "process set %d was removed meanwhile", set);
    else if (op->phase >= GPU_AGREED && op->phase <= GPU_STAGED)
        gpu_fail_job("rank %d: tensor \"%s\": process set %d was removed meanwhile", client.rank,
                     op->tensor->name, set);
    op->team = NULL;
}

static void remove_set(const struct team *team)
{
    gpu_lock();
    struct gpu_team **at;
    for (at = &gpu_state.teams; *at && (*at)->team != team; at = &(*at)->next)
        ;
    struct gpu_team *gone = *at;
    if (gone != NULL) {
        gpu_drain_team(gone, true);
        for (uint32_t slot = 0; slot < SHM_SLOTS; slot++) {
            const struct tensor *t = atomic_load(&client.tensors.by_slot[slot]);
            if (t && t->gpu && t->gpu->team == gone)
                leave_set(t->gpu);
        }
        *at = gone->next;
        gpu_team_free(gone);
    }
    gpu_unlock();
}

static void drain_teams(void)
{
    gpu_lock();
    for (struct gpu_team *team = gpu_state.teams; team; team = team->next)
        gpu_drain_team(team, true);
    gpu_unlock();
}

static void close_teams(void)
{
    gpu_thread_stop();
    gpu_lock();
    if (!client.solo && client.region.header && region_poisoned(&client.region))
        gpu_abort();
    for (struct gpu_team *team = gpu_state.teams; team; team = team->next)
        gpu_drain_team(team, false);
    while (gpu_state.teams) {
        struct gpu_team *team = gpu_state.teams;
        gpu_state.teams = team->next;
        gpu_team_free(team);
    }
    if (gpu_state.driver)
        endings_wait(ENDINGS_MS);
    gpu_engine_close();
    gpu_memory_close();
    gpu_state.pending = gpu_state.waiters = 0;
    gpu_state.failed = gpu_state.stranded = gpu_state.moved = gpu_state.warned = false;
    gpu_unlock();
}

static void close_contexts(void)
{
    if (!gpu_state.contexts)
        return;
    gpu_lock();
    gpu_engine_free();
    struct gpu_context *context;
    while ((context = gpu_state.contexts) != NULL) {
        gpu_state.contexts = context->next;
        if (context->pack && gpu_enter(context, NULL) == 0) {
            pack_close(context->pack);
            gpu_leave();
        } else {
            pack_forget(context->pack);
        }
        if (context->retained)
            gpu_state.driver->cuDevicePrimaryCtxRelease(context->gpu);
        free(context->exports.item);
        free(context->exports.span);
        free(context);
    }
    gpu_unlock();
}

const struct path_ops gpu_path = {.look = gpu_look,
                                  .claim = gpu_claim,
                                  .prepare = prepare_tensor,
                                  .start = start_tensor,
                                  .step = step_tensor,
                                  .ended = end_tensor,
                                  .wait = wait_for_tensor,
                                  .result = take_result,
                                  .free_tensor = free_tensor,
                                  .free_memory = gpu_memory_free,
                                  .remove_set = remove_set,
                                  .drain = drain_teams,
                                  .close = close_teams,
                                  .close_contexts = close_contexts};
