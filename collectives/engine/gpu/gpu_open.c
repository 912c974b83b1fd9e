/* A GPU is opened: the driver, NCCL, the GPU's context, its kernels.
 *
 * Without a process that keeps the driver's state, the driver takes seconds for each GPU of the host. The
 * loop must not be silent for so long: its session would kill it, the ranks and other engines would take it
 * for dead. So a thread does it, for one GPU at a time, and the rank is answered when it has ended. A thread
 * that never comes back keeps what it was given, and nobody but the ranks that asked for its GPU. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/gpu/gpu.h"
#include "collectives/engine/workers.h"
#include "common/base/log.h"
#include "common/process/quiet_thread.h"

struct gpu_opening {
    uint8_t uuid[16];
    int kick; /* of its own */
    const struct driver *driver;
    const struct nccl *nccl;
    struct opened_gpu gpu;
    struct err error;
    _Atomic bool ended;
};

/* ---- in the thread ------------------------------------------------------------------------------------- */

/* A GPU is named by its UUID, since each process counts its own. */
static int find_gpu(const struct driver *d, const uint8_t uuid[16], struct driver_device *into, struct err *e)
{
    int n = 0;
    if (driver_check(d, d->cuDeviceGetCount(&n), e, "counting GPUs") != 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (driver_describe(d, i, into, e) != 0)
            return -1;
        else if (memcmp(into->uuid, uuid, sizeof into->uuid) == 0)
            return 0;
    return err_set(e, ERR_SYSTEM, "the engine does not see its GPU");
}

/* In its primary context, which is current for as long as kernels are loaded. */
static int open_context(const struct driver *d, struct opened_gpu *g, struct err *e)
{
    if (driver_check(d, d->cuDevicePrimaryCtxRetain(&g->context, g->what.device), e, "using GPU %d",
                     g->what.device) != 0)
        return -1;
    if (driver_check(d, d->cuCtxPushCurrent(g->context), e, "using GPU %d", g->what.device) == 0) {
        g->pack = pack_open(d, e);
        cu_context before;
        d->cuCtxPopCurrent(&before);
    }
    if (g->pack)
        return 0;
    d->cuDevicePrimaryCtxRelease(g->what.device);
    return -1;
}

/* An older NCCL lets kernels of one GPU use the buffers of ranks on others of the process where these lie.
 * Memory that came by an IPC handle is open here for its own GPU. A kernel of another GPU would fault on it,
 * and all ranks would be lost. NCCL reads this when it makes its first communicator, so nothing of it reads
 * the environment yet. */
static void keep_buffers_apart(const struct nccl *n)
{
    if (n->version < NCCL_ASKS_SINCE)
        setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
}

static void open_gpu(struct gpu_opening *o)
{
    struct err *e = &o->error;
    o->driver = driver_open(e);
    if (o->driver && driver_need(o->driver, DRIVER_IPC, e) == 0)
        o->nccl = nccl_open(e);
    if (o->nccl && find_gpu(o->driver, o->uuid, &o->gpu.what, e) == 0)
        open_context(o->driver, &o->gpu, e);
    if (o->nccl)
        keep_buffers_apart(o->nccl);
}

static void *open_in_thread(void *argument)
{
    struct gpu_opening *o = argument;
    uint64_t one = 1;
    int kick = o->kick;
    open_gpu(o);
    atomic_store(&o->ended, true); /* it is the loop's from now on */
    if (write(kick, &one, sizeof one) < 0)
        log_debug("the loop looks later");
    close(kick);
    return NULL;
}

/* ---- in the loop --------------------------------------------------------------------------------------- */

static const struct opened_gpu *find_opened(const struct engine_gpus *d, const uint8_t uuid[16])
{
    for (const struct opened_gpu *g = d->gpu; g < d->gpu + ENGINE_GPUS_MAX && g->context; g++)
        if (memcmp(g->what.uuid, uuid, sizeof g->what.uuid) == 0)
            return g;
    return NULL;
}

static void answer_member(struct engine *engine, uint32_t member, const struct opened_gpu *g,
                          const struct err *why)
{
    const struct engine_gpus *d = engine->gpus;
    uint32_t rank = engine->region.rank[member];
    struct worker_message a = {.tag = WORKER_MESSAGE_TAG, .type = WORKER_DEVICE_OPEN};
    engine->gpus->owner[member].asks = false;
    if (g) {
        struct gpu_abilities able = gpu_abilities(d->nccl, &g->what, g->pack, engine->region.fuse);
        struct worker_device said = {.gpu = (uint32_t)(g - d->gpu),
                                     .nccl = able.nccl,
                                     .capability = able.capability,
                                     .kernels = able.kernels,
                                     .fuse = (uint32_t)able.fuse,
                                     .host = nccl_host_of(able.nccl, engine->region.rank[0], rank)};
        memcpy(a.text, &said, sizeof said);
    } else {
        log_warning("rank %u is to run NCCL itself: %s", rank, why->text);
        a.status = HVD_ERR_SYSTEM;
        snprintf(a.text, sizeof a.text, "%.500s", why->text);
    }
    workers_answer_later(engine, member, &a);
}

static struct gpu_opening *start_opening(const struct engine *engine, const uint8_t uuid[16], struct err *e)
{
    struct gpu_opening *o = calloc(1, sizeof *o);
    if (!o) {
        err_set(e, ERR_MEMORY, "no memory");
        return NULL;
    }
    memcpy(o->uuid, uuid, sizeof o->uuid);
    o->kick = fcntl(engine->loop.kick.fd, F_DUPFD_CLOEXEC, 0);
    int error = o->kick < 0 ? errno : quiet_thread_start(open_in_thread, o);
    if (!error)
        return o;
    if (o->kick >= 0)
        close(o->kick);
    free(o);
    err_sys(e, error, "cannot make a thread for a GPU");
    return NULL;
}

/* Answers whom it can, and begins with the GPU of the next one. */
static void go_on(struct engine *engine)
{
    struct engine_gpus *d = engine->gpus;
    for (uint32_t i = 0; i < engine->workers.members && !d->opening; i++) {
        struct gpu_owner *o = &d->owner[i];
        const struct opened_gpu *g = o->asks ? find_opened(d, o->uuid) : NULL;
        struct err e = ERR_INIT;
        if (!o->asks)
            continue;
        if (!g)
            d->opening = start_opening(engine, o->uuid, &e);
        if (!d->opening)
            answer_member(engine, i, g, &e);
    }
}

void engine_gpu_open(struct engine *engine, uint32_t member, const uint8_t uuid[16])
{
    struct gpu_owner *o = &engine->gpus->owner[member];
    o->asks = true;
    memcpy(o->uuid, uuid, sizeof o->uuid);
    go_on(engine);
}

void engine_gpus_begin(struct engine *engine, uint32_t member)
{
    if (engine->gpus)
        engine->gpus->owner[member].asks = false;
}

/* Takes what the thread has found. NULL with *e: it is of no use. */
static const struct opened_gpu *take_opened(struct engine_gpus *d, const struct gpu_opening *o, struct err *e)
{
    struct opened_gpu *g = d->gpu;
    *e = o->error;
    if (!o->gpu.pack)
        return NULL;
    while (g < d->gpu + ENGINE_GPUS_MAX && g->context)
        g++;
    if (g == d->gpu + ENGINE_GPUS_MAX) {
        err_set(e, ERR_SYSTEM, "the engine uses %u GPUs already", ENGINE_GPUS_MAX);
        return NULL;
    }
    d->driver = o->driver;
    d->nccl = o->nccl;
    *g = o->gpu;
    return g;
}

void engine_gpu_open_progress(struct engine *engine)
{
    struct engine_gpus *d = engine->gpus;
    struct gpu_opening *o = d->opening;
    struct err e = ERR_INIT;
    if (!o || !atomic_load(&o->ended))
        return;
    d->opening = NULL;
    const struct opened_gpu *g = take_opened(d, o, &e);
    for (uint32_t i = 0; i < engine->workers.members; i++)
        if (d->owner[i].asks && memcmp(d->owner[i].uuid, o->uuid, sizeof o->uuid) == 0)
            answer_member(engine, i, g, &e);
    free(o);
    go_on(engine);
}
