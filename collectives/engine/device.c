/* The ranks' questions about devices: which GPU, which memory, which events.
 *
 * A GPU is named by its UUID, since each process counts its own; it is used in its primary context. Memory is
 * opened once for each allocation: the rank keeps account of that and says when an allocation has gone. */
#include "collectives/engine/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/device/mapping.h"
#include "common/hash.h"
#include "common/log.h"

int devices_start(struct engine *engine, struct err *e)
{
    struct devices *d = calloc(1, sizeof *d);

    if (d)
        d->owner = calloc(engine->members, sizeof *d->owner);
    if (!d || !d->owner) {
        free(d);
        return err_set(e, ERR_MEMORY, "no memory for devices");
    }
    engine->devices = d;
    devices_again(engine);
    return 0;
}

void devices_forget(struct engine *engine)
{
    if (engine->devices)
        device_sets_free(engine);
}

void devices_again(struct engine *engine)
{
    if (!engine->devices)
        return;
    engine->devices->aborted = false;
    engine->region.header->devices = 1;
}

int device_enter(const struct devices *d, uint32_t gpu, struct err *e)
{
    return driver_check(d->driver, d->driver->cuCtxPushCurrent(d->gpu[gpu].context), e, "using GPU %d",
                        d->gpu[gpu].what.device);
}

void device_leave(const struct devices *d)
{
    cu_context before;

    d->driver->cuCtxPopCurrent(&before);
}

/* ---- GPUs ---------------------------------------------------------------------------------------------- */

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

static int open_gpu(struct devices *d, const uint8_t uuid[16], uint32_t *number, struct err *e)
{
    struct driver_device what;
    struct device_gpu *g = d->gpu;

    if (find_gpu(d->driver, uuid, &what, e) != 0)
        return -1;
    while (g < d->gpu + DEVICE_GPUS_MAX && g->context && g->what.device != what.device)
        g++;
    if (g == d->gpu + DEVICE_GPUS_MAX)
        return err_set(e, ERR_SYSTEM, "the engine uses %u GPUs already", DEVICE_GPUS_MAX);
    *number = (uint32_t)(g - d->gpu);
    if (g->context)
        return 0;
    if (driver_check(d->driver, d->driver->cuDevicePrimaryCtxRetain(&g->context, what.device), e,
                     "using GPU %d", what.device) != 0)
        return -1;
    g->what = what;
    if (device_enter(d, *number, e) != 0)
        return -1;
    g->pack = pack_open(d->driver, e);
    device_leave(d);
    return g->pack ? 0 : -1;
}

static int open_device(struct engine *engine, const struct worker_device *q, struct worker_device *a,
                       struct err *e)
{
    struct devices *d = engine->devices;
    const char *host = getenv("NCCL_HOSTID");
    struct device_abilities able;

    if (!d->driver && !(d->driver = driver_open(e)))
        return -1;
    if (driver_need(d->driver, DRIVER_IPC, e) != 0 || (!d->nccl && !(d->nccl = nccl_open(e))) ||
        open_gpu(d, q->uuid, &a->gpu, e) != 0)
        return -1;
    able = device_abilities(d->nccl, &d->gpu[a->gpu].what, d->gpu[a->gpu].pack, engine->region.fuse);
    a->nccl = able.nccl;
    a->capability = able.capability;
    a->kernels = able.kernels;
    a->fuse = (uint32_t)able.fuse;
    a->host = host ? hash_text(0, host) : engine->region.rank[0];
    return 0;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* A free number of the list; it grows. UINT32_MAX: no room. */
static uint32_t new_memory(struct device_owner *o)
{
    struct device_memory *more;
    uint32_t n = o->memories, room = n ? 2 * n : 64;

    for (uint32_t i = 0; i < n; i++)
        if (!o->memory[i].at)
            return i;
    if (room > DEVICE_THINGS_MAX || !(more = realloc(o->memory, room * sizeof *more)))
        return UINT32_MAX;
    memset(more + n, 0, (room - n) * sizeof *more);
    o->memory = more;
    o->memories = room;
    return n;
}

static int open_handle(const struct devices *d, const struct worker_device *q, struct device_memory *m,
                       struct err *e)
{
    struct cu_ipc_memory handle;

    memcpy(&handle, q->handle, sizeof handle);
    return driver_check(d->driver, d->driver->cuIpcOpenMemHandle(&m->at, handle, CU_IPC_LAZY_PEER_ACCESS), e,
                        "opening memory of GPU %d", d->gpu[m->gpu].what.device);
}

static int open_descriptor(const struct devices *d, int fd, struct device_memory *m, struct err *e)
{
    const struct driver *driver = d->driver;

    if (driver_need(driver, DRIVER_VMM, e) != 0 ||
        driver_check(
            driver,
            driver->cuMemImportFromShareableHandle(&m->allocation, (void *)(intptr_t)fd, CU_HANDLE_FD), e,
            "taking memory of GPU %d", d->gpu[m->gpu].what.device) != 0)
        return -1;
    if (mapping_open(driver, d->gpu[m->gpu].what.device, m->allocation, m->bytes, &m->at, e) == 0)
        return 0;
    driver->cuMemRelease(m->allocation);
    return -1;
}

static int open_memory(struct devices *d, struct device_owner *o, const struct worker_device *q, int fd,
                       uint32_t *id, struct err *e)
{
    struct device_memory m = {.gpu = q->gpu, .bytes = q->bytes};
    uint32_t i = new_memory(o);
    int rc;

    if (i == UINT32_MAX)
        return err_set(e, ERR_MEMORY, "no room for one more allocation");
    if (device_enter(d, q->gpu, e) != 0)
        return -1;
    rc = fd >= 0 ? open_descriptor(d, fd, &m, e) : open_handle(d, q, &m, e);
    device_leave(d);
    if (rc == 0)
        o->memory[i] = m;
    *id = i + 1;
    return rc;
}

static void close_memory(const struct devices *d, struct device_memory *m)
{
    const struct driver *driver = d->driver;
    struct err e = ERR_INIT;

    if (!m->at || device_enter(d, m->gpu, &e) != 0)
        return;
    if (m->allocation) {
        mapping_close(driver, m->at, m->bytes);
        driver->cuMemRelease(m->allocation);
    } else {
        driver->cuIpcCloseMemHandle(m->at);
    }
    device_leave(d);
    *m = (struct device_memory){.at = 0};
}

/* ---- events -------------------------------------------------------------------------------------------- */

static int open_event(struct devices *d, struct device_owner *o, const struct worker_device *q, uint32_t *id,
                      struct err *e)
{
    struct device_event *more;
    struct cu_ipc_event handle;
    int rc = device_enter(d, q->gpu, e);

    if (rc != 0)
        return -1;
    more = o->events < DEVICE_THINGS_MAX ? realloc(o->event, (o->events + 1) * sizeof *more) : NULL;
    if (more) {
        o->event = more;
        memcpy(&handle, q->handle, sizeof handle);
        more[o->events].gpu = q->gpu;
        rc = driver_check(d->driver, d->driver->cuIpcOpenEventHandle(&more[o->events].event, handle), e,
                          "opening an event");
    } else {
        rc = err_set(e, ERR_MEMORY, "no room for one more event");
    }
    device_leave(d);
    if (rc == 0)
        *id = ++o->events;
    return rc;
}

static void close_owner(const struct devices *d, struct device_owner *o)
{
    for (uint32_t i = 0; i < o->memories; i++)
        close_memory(d, &o->memory[i]);
    for (uint32_t i = 0; i < o->events; i++)
        d->driver->cuEventDestroy(o->event[i].event);
    free(o->memory);
    free(o->event);
    *o = (struct device_owner){.memories = 0};
}

/* ---- questions ----------------------------------------------------------------------------------------- */

static int answer(struct engine *engine, uint32_t member, const struct worker_message *q,
                  const struct worker_device *device, int fd, struct worker_message *a, struct err *e)
{
    struct devices *d = engine->devices;
    struct device_owner *o = &d->owner[member];
    struct worker_device said = {.gpu = 0};

    if ((q->type == WORKER_DEVICE_MEMORY || q->type == WORKER_DEVICE_EVENT ||
         q->type == WORKER_DEVICE_JOIN) &&
        (device->gpu >= DEVICE_GPUS_MAX || !d->gpu[device->gpu].context))
        return err_set(e, ERR_PROTOCOL, "nobody has opened that GPU");
    switch (q->type) {
    case WORKER_DEVICE_OPEN:
        if (open_device(engine, device, &said, e) != 0)
            return -1;
        memcpy(a->text, &said, sizeof said);
        return 0;
    case WORKER_DEVICE_MEMORY:
        return open_memory(d, o, device, fd, &a->id, e);
    case WORKER_DEVICE_FORGET:
        if (q->id == 0 || q->id > o->memories)
            return err_set(e, ERR_PROTOCOL, "there is no such memory");
        close_memory(d, &o->memory[q->id - 1]);
        return 0;
    case WORKER_DEVICE_EVENT:
        return open_event(d, o, device, &a->id, e);
    case WORKER_DEVICE_JOIN:
        return device_join(engine, member, sets_find(engine, q->set), device, e);
    case WORKER_DEVICE_LEAVE:
        return device_leave_set(engine, member, q->set, e);
    default: /* WORKER_DEVICE_CLOSE */
        if (d->driver && device_is_idle(engine, member))
            close_owner(d, o);
        return 0;
    }
}

void devices_answer(struct engine *engine, uint32_t member, struct worker_reader *reader,
                    struct worker_message *a)
{
    struct worker_device device;
    struct err e = ERR_INIT;
    int fd = reader->number_of_fds == 1 ? reader->fds[0] : -1;

    if (!engine->devices) {
        a->status = HVD_ERR_INVALID;
        snprintf(a->text, sizeof a->text, "the workers of this job run NCCL themselves");
        return;
    }
    memcpy(&device, reader->message.text, sizeof device);
    if (answer(engine, member, &reader->message, &device, fd, a, &e) == 0)
        return;
    if (reader->message.type == WORKER_DEVICE_OPEN)
        log_warning("rank %u is to run NCCL itself: %s", engine->region.rank[member], e.text);
    a->status = HVD_ERR_SYSTEM;
    snprintf(a->text, sizeof a->text, "%.500s", e.text);
}

/* The last thing this process does with devices, whatever the job has come to. */
void devices_free(struct engine *engine)
{
    struct devices *d = engine->devices;

    if (!d)
        return;
    device_sets_free(engine);
    for (uint32_t i = 0; i < engine->members; i++)
        if (d->driver)
            close_owner(d, &d->owner[i]);
    for (struct device_gpu *g = d->gpu; g < d->gpu + DEVICE_GPUS_MAX && g->context; g++) {
        struct err e = ERR_INIT;
        if (device_enter(d, (uint32_t)(g - d->gpu), &e) == 0) {
            pack_close(g->pack);
            device_leave(d);
        }
        d->driver->cuDevicePrimaryCtxRelease(g->what.device);
    }
    free(d->owner);
    free(d);
    engine->devices = NULL;
}
