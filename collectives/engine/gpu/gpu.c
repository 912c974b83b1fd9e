/* The ranks' questions about devices: which memory. It is opened once for each allocation:
 * the rank keeps account of that and says when an allocation has gone. */
#include "collectives/engine/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/gpu/mapping.h"
#include "collectives/shm/numbers.h"
#include "common/base/log.h"

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

/* A handle says nothing about that to us. Where the driver does not either, the rank is believed: it is its
 * own memory that it speaks of. */
static int check_size(const struct driver *driver, const struct device_memory *m, struct err *e)
{
    cu_pointer base;
    size_t bytes;

    if (driver->cuMemGetAddressRange(&base, &bytes, m->at) != CU_OK ||
        (m->at >= base && m->at - base <= bytes && m->bytes <= bytes - (m->at - base)))
        return 0;
    return err_set(e, ERR_PROTOCOL, "the rank speaks of %llu bytes of an allocation of %zu",
                   (unsigned long long)m->bytes, bytes);
}

/* -1 with m->at: it is open, and of no use. */
static int open_handle(const struct devices *d, const struct worker_device *q, struct device_memory *m,
                       struct err *e)
{
    const struct driver *driver = d->driver;
    struct cu_ipc_memory handle;
    cu_result result;

    memcpy(&handle, q->handle, sizeof handle);
    result = driver->cuIpcOpenMemHandle(&m->at, handle, CU_IPC_LAZY_PEER_ACCESS);
    if (result != CU_OK)
        m->at = 0;
    if (driver_check(driver, result, e, "opening memory of GPU %d", d->gpu[m->gpu].what.device) != 0)
        return -1;
    return check_size(driver, m, e);
}

static int open_descriptor(const struct devices *d, int fd, struct device_memory *m, struct err *e)
{
    const struct driver *driver = d->driver;
    struct mapping_part all = {.bytes = m->bytes};

    if (driver_need(driver, DRIVER_VMM, e) != 0 ||
        driver_check(
            driver,
            driver->cuMemImportFromShareableHandle(&all.allocation, (void *)(intptr_t)fd, CU_HANDLE_FD), e,
            "taking memory of GPU %d", d->gpu[m->gpu].what.device) != 0)
        return -1;
    m->allocation = all.allocation;
    if (mapping_open(driver, d->gpu[m->gpu].what.device, &all, 1, &m->at, e) == 0)
        return 0;
    driver->cuMemRelease(m->allocation);
    return -1;
}

/* The driver opens nothing where it has other memory of the rank open. If it may be that which is being
 * closed, the rank is told 0: to ask again. */
static int open_memory(struct engine *engine, struct device_owner *o, const struct worker_device *q, int fd,
                       uint32_t *id, struct err *e)
{
    struct devices *d = engine->devices;
    struct device_memory m = {.gpu = q->gpu, .bytes = q->bytes};
    uint32_t i;
    int rc;

    device_close_idle(engine, q->gpu);
    if ((i = new_memory(o)) == UINT32_MAX)
        return err_set(e, ERR_MEMORY, "no room for one more allocation");
    if (device_enter(d, q->gpu, e) != 0)
        return -1;
    rc = fd >= 0 ? open_descriptor(d, fd, &m, e) : open_handle(d, q, &m, e);
    device_leave(d);
    *id = rc == 0 ? i + 1 : 0;
    if (rc != 0 && !m.at && fd < 0 && device_closing_of(o) > 0)
        return 0;
    if (rc == 0 || m.at)
        o->memory[i] = m;
    if (rc != 0 && m.at)
        device_close(engine, &o->memory[i]);
    return rc;
}

/* The memories of these numbers, which all must be of that GPU, come as descriptors, and each once; NULL:
 * they are not. */
static struct mapping_part *parts_of(struct device_owner *o, uint32_t gpu, const uint32_t *number, size_t n,
                                     uint64_t *bytes)
{
    struct mapping_part *part = n > 0 ? malloc(n * sizeof *part) : NULL;
    uint32_t now = ++o->spans;

    *bytes = 0;
    for (size_t i = 0; part && i < n; i++) {
        struct device_memory *m = device_memory_of(o, number[i]);
        if (!m || !m->allocation || m->gpu != gpu || m->named == now) {
            free(part);
            return NULL;
        }
        m->named = now;
        part[i] = (struct mapping_part){m->allocation, m->bytes};
        *bytes += m->bytes;
    }
    return part;
}

static int open_span(struct devices *d, struct device_owner *o, const struct worker_device *q, int fd,
                     uint32_t *id, struct err *e)
{
    struct device_memory m = {.gpu = q->gpu, .span = true};
    size_t n = 0;
    uint32_t *number = fd >= 0 ? numbers_read(fd, DEVICE_THINGS_MAX, &n) : NULL, i = new_memory(o);
    struct mapping_part *part = number ? parts_of(o, q->gpu, number, n, &m.bytes) : NULL;
    int rc = -1;

    free(number);
    if (!part)
        return err_set(e, ERR_PROTOCOL, "what came as allocations one behind the other is none");
    if (i == UINT32_MAX)
        err_set(e, ERR_MEMORY, "no room for one more allocation");
    else if ((rc = device_enter(d, q->gpu, e)) == 0) {
        rc = mapping_open(d->driver, d->gpu[q->gpu].what.device, part, n, &m.at, e);
        device_leave(d);
    }
    free(part);
    if (rc == 0)
        o->memory[i] = m;
    *id = i + 1;
    return rc;
}

static void close_owner(struct engine *engine, struct device_owner *o)
{
    for (uint32_t i = 1; i <= o->memories; i++)
        if (device_memory_of(o, i))
            device_close(engine, &o->memory[i - 1]);
}

/* What processes had that may be no more must not stay allocated. */
void devices_forget(struct engine *engine)
{
    struct devices *d = engine->devices;

    if (!d)
        return;
    device_sets_free(engine);
    for (uint32_t i = 0; i < engine->members; i++)
        close_owner(engine, &d->owner[i]);
    for (uint32_t i = 0; i < DEVICE_GPUS_MAX; i++) {
        device_close_idle(engine, i);
        d->gpu[i].closing = 0;
    }
    if (d->closing > 0)
        log_warning("%u allocations of GPUs stay open: a GPU does not come to an end", d->closing);
    d->closing = 0;
    for (uint32_t i = 0; i < engine->members; i++) {
        free(d->owner[i].memory);
        d->owner[i] = (struct device_owner){.memories = 0};
    }
}

/* ---- questions ----------------------------------------------------------------------------------------- */

static int answer(struct engine *engine, uint32_t member, const struct worker_message *q,
                  const struct worker_device *device, int fd, struct worker_message *a, struct err *e)
{
    struct devices *d = engine->devices;
    struct device_owner *o = &d->owner[member];

    if ((q->type == WORKER_DEVICE_MEMORY || q->type == WORKER_DEVICE_SPAN || q->type == WORKER_DEVICE_JOIN) &&
        (device->gpu >= DEVICE_GPUS_MAX || !d->gpu[device->gpu].context))
        return err_set(e, ERR_PROTOCOL, "nobody has opened that GPU");
    switch (q->type) {
    case WORKER_DEVICE_MEMORY:
        return open_memory(engine, o, device, fd, &a->id, e);
    case WORKER_DEVICE_SPAN:
        return open_span(d, o, device, fd, &a->id, e);
    case WORKER_DEVICE_FORGET:
        if (q->id && !device_memory_of(o, q->id))
            return err_set(e, ERR_PROTOCOL, "there is no such memory");
        if (q->id)
            device_close(engine, device_memory_of(o, q->id));
        a->id = device_closing_of(o);
        return 0;
    case WORKER_DEVICE_JOIN:
        return device_join(engine, member, sets_find(engine, q->set), device, e);
    case WORKER_DEVICE_LEAVE:
        return device_leave_set(engine, member, q->set, e);
    case WORKER_DEVICE_KNOW:
        return device_make_known(engine, member, q, &a->id, e);
    default: /* WORKER_DEVICE_CLOSE */
        if (d->driver && device_is_idle(engine, member))
            close_owner(engine, o);
        return 0;
    }
}

bool devices_answer(struct engine *engine, uint32_t member, struct worker_reader *reader,
                    struct worker_message *a)
{
    struct worker_device device;
    struct err e = ERR_INIT;
    int fd = reader->number_of_fds == 1 ? reader->fds[0] : -1;

    if (!engine->devices) {
        a->status = HVD_ERR_INVALID;
        snprintf(a->text, sizeof a->text, "the workers of this job run NCCL themselves");
        return true;
    }
    memcpy(&device, reader->message.text, sizeof device);
    if (reader->message.type == WORKER_DEVICE_OPEN) {
        device_open(engine, member, device.uuid);
        return false;
    }
    if (answer(engine, member, &reader->message, &device, fd, a, &e) != 0) {
        a->status = HVD_ERR_SYSTEM;
        snprintf(a->text, sizeof a->text, "%.500s", e.text);
    }
    return true;
}

/* The last thing this process does with devices, whatever the job has come to. */
void devices_free(struct engine *engine)
{
    struct devices *d = engine->devices;

    if (!d)
        return;
    devices_forget(engine);
    for (struct device_gpu *g = d->gpu; g < d->gpu + DEVICE_GPUS_MAX && g->context; g++) {
        struct err e = ERR_INIT;
        if (!g->lost && device_enter(d, (uint32_t)(g - d->gpu), &e) == 0) {
            pack_close(g->pack);
            device_leave(d);
        } else {
            pack_forget(g->pack);
        }
        if (!g->lost)
            d->driver->cuDevicePrimaryCtxRelease(g->what.device);
    }
    free(d->owner);
    free(d);
    engine->devices = NULL;
}
