/* Memory of the ranks is let go.
 *
 * The driver may make who closes memory wait until the GPU has nothing to do. A kernel of NCCL there may wait
 * for one on another GPU that the loop has yet to launch, so the loop must not wait for it; nor could a
 * thread, which would hold locks of the driver meanwhile. So memory that a rank has let go is nobody's from
 * that moment on, keeps its number, and is closed when nothing is in the GPU's streams: at once, or before
 * something is put there, or as soon as that is seen. Nobody else puts anything there. */
#include <time.h>

#include "collectives/gpu/mapping.h"
#include "collectives/engine/gpu/gpu.h"
#include "common/base/clock.h"

#define LOOK_NS (DEVICE_CLOSE_MS * NSEC_PER_MSEC)

struct device_memory *device_memory_of(const struct device_owner *o, uint32_t number)
{
    struct device_memory *m = number > 0 && number <= o->memories ? &o->memory[number - 1] : NULL;

    return m && m->at && !m->closing ? m : NULL;
}

static bool has_ended(const struct devices *d, const struct device_seat *seat)
{
    return !seat->launching && communicator_state(seat->communicator) != COMMUNICATOR_LAUNCHING &&
           d->driver->cuStreamQuery(seat->stream) != CU_NOT_READY;
}

/* Of the GPU whose context is current. A stream that has failed does not keep anybody waiting. */
static bool is_idle(const struct devices *d, uint32_t gpu)
{
    for (const struct device_set *s = d->sets; s; s = s->next)
        for (uint32_t m = 0; m < s->set->team->members; m++)
            if (s->seat[m].stream && s->seat[m].gpu == gpu && !has_ended(d, &s->seat[m]))
                return false;
    return true;
}

static void close_memory(struct devices *d, struct device_memory *m)
{
    const struct driver *driver = d->driver;

    device_make_unknown(d, m);
    if (m->allocation || m->span)
        mapping_close(driver, m->at, m->bytes);
    else
        driver->cuIpcCloseMemHandle(m->at);
    if (m->allocation)
        driver->cuMemRelease(m->allocation);
    d->closing--;
    d->gpu[m->gpu].closing--;
    *m = (struct device_memory){.at = 0};
}

static void close_all(struct devices *d, uint32_t members, uint32_t gpu)
{
    for (uint32_t i = 0; i < members; i++)
        for (struct device_memory *m = d->owner[i].memory; m < d->owner[i].memory + d->owner[i].memories; m++)
            if (m->closing && m->gpu == gpu)
                close_memory(d, m);
}

void device_close_idle(struct engine *engine, uint32_t gpu)
{
    struct devices *d = engine->devices;
    struct err e = ERR_INIT;

    if (d->gpu[gpu].closing == 0 || d->gpu[gpu].lost || device_enter(d, gpu, &e) != 0)
        return;
    if (is_idle(d, gpu))
        close_all(d, engine->members, gpu);
    device_leave(d);
}

bool device_close_progress(struct engine *engine, uint64_t now)
{
    struct devices *d = engine->devices;

    if (d->closing == 0)
        return false;
    if (now - d->looked >= LOOK_NS) {
        d->looked = now;
        for (uint32_t i = 0; i < DEVICE_GPUS_MAX; i++)
            device_close_idle(engine, i);
    }
    return d->closing > 0;
}

void device_close(struct engine *engine, struct device_memory *m)
{
    struct devices *d = engine->devices;

    m->closing = true;
    d->closing++;
    d->gpu[m->gpu].closing++;
    device_close_idle(engine, m->gpu);
}

uint32_t device_closing_of(const struct device_owner *o)
{
    uint32_t n = 0;

    for (const struct device_memory *m = o->memory; m < o->memory + o->memories; m++)
        n += m->closing;
    return n;
}

void device_settle(struct devices *d, uint32_t gpu, cu_stream stream, uint64_t until)
{
    const struct timespec moment = {.tv_nsec = NSEC_PER_MSEC};
    struct err e = ERR_INIT;
    cu_result result;

    if (d->gpu[gpu].lost || device_enter(d, gpu, &e) != 0)
        return;
    while ((result = d->driver->cuStreamQuery(stream)) == CU_NOT_READY && clock_now() < until)
        nanosleep(&moment, NULL);
    d->gpu[gpu].lost = result == CU_NOT_READY;
    device_leave(d);
}
