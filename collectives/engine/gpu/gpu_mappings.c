/* Memory of the ranks is let go.
 *
 * The driver may make who closes memory wait until the GPU has nothing to do. A kernel of NCCL there may wait
 * for one on another GPU that the loop has yet to launch, so the loop must not wait for it; nor could a
 * thread, which would hold locks of the driver meanwhile. So memory that a rank has let go is nobody's from
 * that moment on, keeps its number, and is closed when nothing is in the GPU's streams: at once, or before
 * something is put there, or as soon as that is seen. Nobody else puts anything there.
 *
 * Memory of hvd_alloc_device that NCCL knows is mapped once more, as in the ranks (client/gpu/gpu_memory.c).
 * That second mapping is registered with the communicators of the rank whose memory it is. The rank asks for
 * it once for each set, and says with each operation whether all ranks have agreed that theirs is known. The
 * rank is not believed: the second mapping is given to NCCL where it was registered. */
#include <time.h>

#include "collectives/engine/gpu/gpu.h"
#include "collectives/gpu/mapping.h"
#include "common/base/clock.h"

#define LOOK_NS (ENGINE_GPU_CLOSE_MS * NSEC_PER_MSEC)

int engine_gpu_enter(const struct engine_gpus *d, uint32_t gpu, struct err *e)
{
    return driver_check(d->driver, d->driver->cuCtxPushCurrent(d->gpu[gpu].context), e, "using GPU %d",
                        d->gpu[gpu].what.device);
}

void engine_gpu_leave(const struct engine_gpus *d)
{
    cu_context before;
    d->driver->cuCtxPopCurrent(&before);
}

struct gpu_memory *engine_gpu_memory_of(const struct gpu_owner *o, uint32_t number)
{
    struct gpu_memory *m = number > 0 && number <= o->memories ? &o->memory[number - 1] : NULL;
    return m && m->at && !m->closing ? m : NULL;
}

/* ---- registered with NCCL ------------------------------------------------------------------------------ */

cu_pointer engine_gpu_known_at(const struct gpu_member *gpu_member, const struct gpu_memory *m)
{
    return m->second &&
                   communicator_register(gpu_member->communicator, (void *)(uintptr_t)m->second, m->bytes)
               ? m->second
               : 0;
}

/* Only what came as a descriptor can be mapped twice. */
void engine_gpu_map_again(const struct engine_gpus *d, struct gpu_memory *m)
{
    const struct mapping_part all = {m->allocation, m->bytes};
    struct err e = ERR_INIT;
    if (m->second || !m->allocation || !d->nccl->ncclCommRegister || engine_gpu_enter(d, m->gpu, &e) != 0)
        return;
    if (mapping_open(d->driver, d->gpu[m->gpu].what.device, &all, 1, &m->second, &e) != 0)
        m->second = 0;
    engine_gpu_leave(d);
}

static void make_unknown(const struct engine_gpus *d, struct gpu_memory *m)
{
    if (!m->second)
        return;
    for (struct gpu_set *s = d->sets; s; s = s->next)
        for (uint32_t i = 0; i < s->set->team->members; i++)
            if (s->member[i].stream)
                communicator_deregister(s->member[i].communicator, (void *)(uintptr_t)m->second);
    mapping_close(d->driver, m->second, m->bytes);
    m->second = 0;
}

/* ---- let go -------------------------------------------------------------------------------------------- */

static bool has_ended(const struct engine_gpus *d, const struct gpu_member *gpu_member)
{
    return !gpu_member->launching && communicator_state(gpu_member->communicator) != COMMUNICATOR_LAUNCHING &&
           d->driver->cuStreamQuery(gpu_member->stream) != CU_NOT_READY;
}

/* Of the GPU whose context is current. A stream that has failed does not keep anybody waiting. */
static bool is_idle(const struct engine_gpus *d, uint32_t gpu)
{
    for (const struct gpu_set *s = d->sets; s; s = s->next)
        for (uint32_t m = 0; m < s->set->team->members; m++)
            if (s->member[m].stream && s->member[m].gpu == gpu && !has_ended(d, &s->member[m]))
                return false;
    return true;
}

static void close_memory(struct engine_gpus *d, struct gpu_memory *m)
{
    const struct driver *driver = d->driver;
    make_unknown(d, m);
    if (m->allocation || m->span)
        mapping_close(driver, m->at, m->bytes);
    else
        driver->cuIpcCloseMemHandle(m->at);
    if (m->allocation)
        driver->cuMemRelease(m->allocation);
    d->closing--;
    d->gpu[m->gpu].closing--;
    *m = (struct gpu_memory){.at = 0};
}

static void close_all(struct engine_gpus *d, uint32_t members, uint32_t gpu)
{
    for (uint32_t i = 0; i < members; i++)
        for (struct gpu_memory *m = d->owner[i].memory; m < d->owner[i].memory + d->owner[i].memories; m++)
            if (m->closing && m->gpu == gpu)
                close_memory(d, m);
}

void engine_gpu_close_idle(struct engine *engine, uint32_t gpu)
{
    struct engine_gpus *d = engine->gpus;
    struct err e = ERR_INIT;
    if (d->gpu[gpu].closing == 0 || d->gpu[gpu].lost || engine_gpu_enter(d, gpu, &e) != 0)
        return;
    if (is_idle(d, gpu))
        close_all(d, engine->workers.members, gpu);
    engine_gpu_leave(d);
}

bool engine_gpu_close_progress(struct engine *engine, uint64_t now)
{
    struct engine_gpus *d = engine->gpus;
    if (d->closing == 0)
        return false;
    if (now - d->looked >= LOOK_NS) {
        d->looked = now;
        for (uint32_t i = 0; i < ENGINE_GPUS_MAX; i++)
            engine_gpu_close_idle(engine, i);
    }
    return d->closing > 0;
}

void engine_gpu_close(struct engine *engine, struct gpu_memory *m)
{
    struct engine_gpus *d = engine->gpus;
    m->closing = true;
    d->closing++;
    d->gpu[m->gpu].closing++;
    engine_gpu_close_idle(engine, m->gpu);
}

uint32_t engine_gpu_closing_of(const struct gpu_owner *o)
{
    uint32_t n = 0;
    for (const struct gpu_memory *m = o->memory; m < o->memory + o->memories; m++)
        n += m->closing;
    return n;
}

void engine_gpu_settle(struct engine_gpus *d, uint32_t gpu, cu_stream stream, uint64_t until)
{
    const struct timespec moment = {.tv_nsec = NSEC_PER_MSEC};
    struct err e = ERR_INIT;
    if (d->gpu[gpu].lost || engine_gpu_enter(d, gpu, &e) != 0)
        return;
    cu_result result;
    while ((result = d->driver->cuStreamQuery(stream)) == CU_NOT_READY && clock_now() < until)
        nanosleep(&moment, NULL);
    d->gpu[gpu].lost = result == CU_NOT_READY;
    engine_gpu_leave(d);
}
