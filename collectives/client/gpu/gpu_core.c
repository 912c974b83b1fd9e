/* The lock of all operations on GPUs, the ends of operations, and the end of everything. */
#include "collectives/client/gpu/gpu_core.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

#include "collectives/client/gpu/gpu_engine.h"
#include "collectives/client/rpc.h"
#include "collectives/shm/doorbell.h"

#define WORD_MS 1000 /* from the end of a process's connections to its own end: its GPU is freed between */

struct gpu_state gpu_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool gpu_look(void)
{
    if (!atomic_load_explicit(&path_gpu_seen, memory_order_relaxed) && driver_in_process())
        atomic_store(&path_gpu_seen, true);
    return atomic_load_explicit(&path_gpu_seen, memory_order_relaxed);
}

const struct driver *gpu_open_driver(struct err *e)
{
    if (!gpu_state.driver)
        gpu_state.driver = driver_open(e);
    return gpu_state.driver;
}

static void relax_capture(void)
{
    if (atomic_load(&path_gpu_seen))
        gpu_open_driver(NULL);
    gpu_state.capture_mode = gpu_state.driver ? driver_capture_mode(gpu_state.driver, CU_CAPTURE_MODE_RELAXED)
                                              : CU_CAPTURE_MODE_GLOBAL;
}

void gpu_lock(void)
{
    pthread_mutex_lock(&gpu_state.lock);
    relax_capture();
}

bool gpu_trylock(void)
{
    if (pthread_mutex_trylock(&gpu_state.lock) != 0)
        return false;
    relax_capture();
    return true;
}

void gpu_unlock(void)
{
    if (gpu_state.driver)
        driver_capture_mode(gpu_state.driver, gpu_state.capture_mode);
    pthread_mutex_unlock(&gpu_state.lock);
}

int gpu_enter(const struct gpu_context *context, struct err *e)
{
    return driver_check(gpu_state.driver, gpu_state.driver->cuCtxPushCurrent(context->context), e,
                        "using GPU %d", context->gpu);
}

void gpu_leave(void)
{
    cu_context before;
    gpu_state.driver->cuCtxPopCurrent(&before);
}

const struct nccl *gpu_open_nccl(void)
{
    if (!gpu_state.nccl)
        gpu_state.nccl = nccl_open(&gpu_state.no_nccl);
    return gpu_state.nccl;
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

void gpu_want_alarm(void)
{
    if (client.mailbox)
        atomic_store(&client.mailbox->alarm_wanted, gpu_state.pending > 0 && gpu_state.waiters == 0);
}

void gpu_op_end(struct gpu_op *op, enum gpu_phase phase)
{
    op->phase = phase;
    gpu_state.pending--;
    gpu_state.moved = true;
    gpu_want_alarm();
}

void gpu_op_fail(struct gpu_op *op, int status, const char *fmt, ...)
{
    struct tensor *t = op->tensor;
    int used = snprintf(t->text, sizeof t->text, "tensor \"%s\": ", t->name);
    va_list args;
    va_start(args, fmt);
    if (used > 0 && (size_t)used < sizeof t->text)
        vsnprintf(t->text + used, sizeof t->text - (size_t)used, fmt, args);
    va_end(args);
    op->status = status;
    gpu_op_end(op, GPU_FAILED);
}

void gpu_abort(void)
{
    gpu_state.failed = gpu_state.moved = true;
    for (struct gpu_team *team = gpu_state.teams; team; team = team->next)
        if (team->communicator)
            communicator_abort(team->communicator, 0);
}

void gpu_fail_job(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char why[SHM_TEXT_MAX];
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (gpu_state.failed)
        return;
    rpc_failed(why); /* handles get it from there, as all ranks' do */
    gpu_abort();
}

void gpu_fail_by_nccl(const char *what, const struct err *e)
{
    if (gpu_state.failed)
        return;
    if (e->code == ERR_CLOSED || e->code == ERR_SYSTEM) {
        gpu_abort(); /* the streams need not wait for the name of the dead rank */
        for (int ms = 0; ms < WORD_MS && !gpu_job_has_failed(); ms++)
            poll(NULL, 0, 1);
        gpu_state.failed = gpu_job_has_failed();
    }
    gpu_fail_job("rank %d: %s%s", client.rank, what, e->text);
}

bool gpu_job_has_failed(void)
{
    return region_poisoned(&client.region) || atomic_load(&client.state) == CLIENT_STRANDED ||
           atomic_load(&client.mailbox->left);
}

/* In a stream of its own: the others may wait for it. */
void gpu_bridge_release(const struct gpu_team *team)
{
    const struct driver *d = gpu_state.driver;
    if (!team->bridge.result_ready || gpu_enter(team->context, NULL) != 0)
        return;
    cu_stream stream;
    if (driver_stream(d, &stream, NULL) == 0) {
        d->cuEventRecord(team->bridge.result_ready, stream);
        d->cuStreamDestroy(stream);
    }
    gpu_leave();
}

bool gpu_has_failed(void)
{
    if (!gpu_state.failed && gpu_job_has_failed())
        gpu_abort();
    if (!gpu_state.stranded && atomic_load(&client.state) == CLIENT_STRANDED) {
        gpu_state.stranded = true;
        for (const struct gpu_team *team = gpu_state.teams; team; team = team->next)
            gpu_bridge_release(team); /* the engine does not any more, and the user's streams must go on */
    }
    return gpu_state.failed;
}
