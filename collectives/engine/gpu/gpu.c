/* The ranks' questions about devices: which memory. It is opened once for each allocation:
 * the rank keeps account of that and says when an allocation has gone. */
#include "collectives/engine/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/sets.h"
#include "collectives/gpu/mapping.h"
#include "collectives/shm/numbers.h"
#include "common/base/log.h"

/* ---- memory -------------------------------------------------------------------------------------------- */

/* A free number of the list; it grows. UINT32_MAX: no room. */
static uint32_t new_memory(struct gpu_owner *o)
{
    uint32_t n = o->memories, capacity = n ? 2 * n : 64;
    for (uint32_t i = 0; i < n; i++)
        if (!o->memory[i].at)
            return i;
    if (capacity > ENGINE_GPU_MEMORIES_MAX)
        return UINT32_MAX;
    struct gpu_memory *more = realloc(o->memory, capacity * sizeof *more);
    if (!more)
        return UINT32_MAX;
    memset(more + n, 0, (capacity - n) * sizeof *more);
    o->memory = more;
    o->memories = capacity;
    return n;
}

/* A handle says nothing about that to us. If the driver does not either, the rank is believed: the memory is
 * its own. */
static int check_size(const struct driver *driver, const struct gpu_memory *m, struct err *e)
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
static int open_handle(const struct engine_gpus *d, const struct worker_device *q, struct gpu_memory *m,
                       struct err *e)
{
    const struct driver *driver = d->driver;
    struct cu_ipc_memory handle;
    memcpy(&handle, q->handle, sizeof handle);
    cu_result result = driver->cuIpcOpenMemHandle(&m->at, handle, CU_IPC_LAZY_PEER_ACCESS);
    if (result != CU_OK)
        m->at = 0;
    if (driver_check(driver, result, e, "opening memory of GPU %d", d->gpu[m->gpu].what.device) != 0)
        return -1;
    return check_size(driver, m, e);
}

static int open_descriptor(const struct engine_gpus *d, int fd, struct gpu_memory *m, struct err *e)
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
static int open_memory(struct engine *engine, struct gpu_owner *o, const struct worker_device *q, int fd,
                       uint32_t *id, struct err *e)
{
    struct engine_gpus *d = engine->gpus;
    struct gpu_memory m = {.gpu = q->gpu, .bytes = q->bytes};
    engine_gpu_close_idle(engine, q->gpu);
    uint32_t i = new_memory(o);
    if (i == UINT32_MAX)
        return err_set(e, ERR_MEMORY, "no room for one more allocation");
    if (engine_gpu_enter(d, q->gpu, e) != 0)
        return -1;
    int rc = fd >= 0 ? open_descriptor(d, fd, &m, e) : open_handle(d, q, &m, e);
    engine_gpu_leave(d);
    *id = rc == 0 ? i + 1 : 0;
    if (rc != 0 && !m.at && fd < 0 && engine_gpu_closing_of(o) > 0)
        return 0;
    if (rc == 0 || m.at)
        o->memory[i] = m;
    if (rc != 0 && m.at)
        engine_gpu_close(engine, &o->memory[i]);
    return rc;
}

/* The memories of these numbers, which all must be of that GPU, come as descriptors, and each once; NULL:
 * they are not. */
static struct mapping_part *parts_of(struct gpu_owner *o, uint32_t gpu, const uint32_t *number, size_t n,
                                     uint64_t *bytes)
{
    struct mapping_part *part = n > 0 ? malloc(n * sizeof *part) : NULL;
    uint32_t now = ++o->spans;
    *bytes = 0;
    for (size_t i = 0; part && i < n; i++) {
        struct gpu_memory *m = engine_gpu_memory_of(o, number[i]);
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

static int open_span(struct engine_gpus *d, struct gpu_owner *o, const struct worker_device *q, int fd,
                     uint32_t *id, struct err *e)
{
    struct gpu_memory m = {.gpu = q->gpu, .span = true};
    size_t n = 0;
    uint32_t *number = fd >= 0 ? numbers_read(fd, ENGINE_GPU_MEMORIES_MAX, &n) : NULL, i = new_memory(o);
    struct mapping_part *part = number ? parts_of(o, q->gpu, number, n, &m.bytes) : NULL;
    free(number);
    if (!part)
        return err_set(e, ERR_PROTOCOL, "what came as allocations one behind the other is none");
    int rc = i == UINT32_MAX ? err_set(e, ERR_MEMORY, "no room for one more allocation")
                             : engine_gpu_enter(d, q->gpu, e);
    if (rc == 0) {
        rc = mapping_open(d->driver, d->gpu[q->gpu].what.device, part, n, &m.at, e);
        engine_gpu_leave(d);
    }
    free(part);
    if (rc == 0)
        o->memory[i] = m;
    *id = i + 1;
    return rc;
}

static void close_owner(struct engine *engine, struct gpu_owner *o)
{
    for (uint32_t i = 1; i <= o->memories; i++)
        if (engine_gpu_memory_of(o, i))
            engine_gpu_close(engine, &o->memory[i - 1]);
}

/* Memory of processes that may have ended must not stay allocated. */
static void forget_gpus(struct engine *engine)
{
    struct engine_gpus *d = engine->gpus;
    if (!d)
        return;
    engine_gpu_sets_free(engine);
    for (uint32_t i = 0; i < engine->workers.members; i++)
        close_owner(engine, &d->owner[i]);
    for (uint32_t i = 0; i < ENGINE_GPUS_MAX; i++) {
        engine_gpu_close_idle(engine, i);
        d->gpu[i].closing = 0;
    }
    if (d->closing > 0)
        log_warning("%u allocations of GPUs stay open: a GPU does not come to an end", d->closing);
    d->closing = 0;
    for (uint32_t i = 0; i < engine->workers.members; i++) {
        free(d->owner[i].memory);
        d->owner[i] = (struct gpu_owner){.memories = 0};
    }
}

/* ---- questions ----------------------------------------------------------------------------------------- */

/* An enum shm_device_known. -1: there is no such set or memory. */
static int make_known(struct engine *engine, uint32_t member, const struct worker_message *q, uint32_t *known,
                      struct err *e)
{
    struct engine_gpus *d = engine->gpus;
    struct gpu_memory *m = engine_gpu_memory_of(&d->owner[member], q->id);
    const struct gpu_member *gpu_member = engine_gpu_member_of(engine, member, q->set);
    if (!m || !gpu_member || m->gpu != gpu_member->gpu)
        return err_set(e, ERR_PROTOCOL, "there is no such memory, or process set");
    *known = SHM_DEVICE_ASK_LATER;
    if (gpu_member->leaves || gpu_member->pending ||
        communicator_state(gpu_member->communicator) != COMMUNICATOR_READY)
        return 0;
    engine_gpu_map_again(d, m);
    *known = engine_gpu_known_at(gpu_member, m) ? SHM_DEVICE_KNOWN : SHM_DEVICE_UNKNOWN;
    return 0;
}

static int answer_question(struct engine *engine, uint32_t member, const struct worker_message *q,
                           const struct worker_device *device, int fd, struct worker_message *a,
                           struct err *e)
{
    struct engine_gpus *d = engine->gpus;
    struct gpu_owner *o = &d->owner[member];
    if ((q->type == WORKER_DEVICE_MEMORY || q->type == WORKER_DEVICE_SPAN || q->type == WORKER_DEVICE_JOIN) &&
        (device->gpu >= ENGINE_GPUS_MAX || !d->gpu[device->gpu].context))
        return err_set(e, ERR_PROTOCOL, "no rank has opened that GPU");
    switch (q->type) {
    case WORKER_DEVICE_MEMORY:
        return open_memory(engine, o, device, fd, &a->id, e);
    case WORKER_DEVICE_SPAN:
        return open_span(d, o, device, fd, &a->id, e);
    case WORKER_DEVICE_FORGET:
        if (q->id && !engine_gpu_memory_of(o, q->id))
            return err_set(e, ERR_PROTOCOL, "there is no such memory");
        if (q->id)
            engine_gpu_close(engine, engine_gpu_memory_of(o, q->id));
        a->id = engine_gpu_closing_of(o);
        return 0;
    case WORKER_DEVICE_JOIN:
        return engine_gpu_join(engine, member, sets_find(engine, q->set), device, e);
    case WORKER_DEVICE_LEAVE:
        return engine_gpu_leave_set(engine, member, q->set, e);
    case WORKER_DEVICE_KNOW:
        return make_known(engine, member, q, &a->id, e);
    default: /* WORKER_DEVICE_CLOSE */
        if (d->driver && engine_gpu_is_idle(engine, member))
            close_owner(engine, o);
        return 0;
    }
}

bool engine_gpus_answer(struct engine *engine, uint32_t member, struct worker_reader *reader,
                        struct worker_message *a)
{
    struct err e = ERR_INIT;
    int fd = reader->number_of_fds == 1 ? reader->fds[0] : -1;
    if (!engine->gpus) {
        a->status = HVD_ERR_INVALID;
        snprintf(a->text, sizeof a->text, "the workers of this job run NCCL themselves");
        return true;
    }
    struct worker_device device;
    memcpy(&device, reader->message.text, sizeof device);
    if (reader->message.type == WORKER_DEVICE_OPEN) {
        engine_gpu_open(engine, member, device.uuid);
        return false;
    }
    if (answer_question(engine, member, &reader->message, &device, fd, a, &e) != 0) {
        a->status = HVD_ERR_SYSTEM;
        snprintf(a->text, sizeof a->text, "%.500s", e.text);
    }
    return true;
}

/* The last thing this process does with devices, whatever the job has come to. */
static void free_gpus(struct engine *engine)
{
    struct engine_gpus *d = engine->gpus;
    if (!d)
        return;
    forget_gpus(engine);
    for (struct opened_gpu *g = d->gpu; g < d->gpu + ENGINE_GPUS_MAX && g->context; g++) {
        struct err e = ERR_INIT;
        if (!g->lost && engine_gpu_enter(d, (uint32_t)(g - d->gpu), &e) == 0) {
            pack_close(g->pack);
            engine_gpu_leave(d);
        } else {
            pack_forget(g->pack);
        }
        if (!g->lost)
            d->driver->cuDevicePrimaryCtxRelease(g->what.device);
    }
    free(d->owner);
    free(d);
    engine->gpus = NULL;
}

static int begin_gpus(struct engine *engine, struct err *e)
{
    (void)e;
    if (!engine->gpus)
        return 0;
    engine->gpus->aborted = false;
    engine->region.header->devices = 1;
    return 0;
}

static int start_gpus(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    if (!config->tuning || !config->tuning->gpu_placement)
        return 0;
    struct engine_gpus *d = calloc(1, sizeof *d);
    if (d)
        d->owner = calloc(engine->workers.members, sizeof *d->owner);
    if (!d || !d->owner) {
        free(d);
        return err_set(e, ERR_MEMORY, "no memory for devices");
    }
    engine->gpus = d;
    return begin_gpus(engine, e);
}

static void progress_gpus(struct engine *engine, struct turn *turn)
{
    if (__builtin_expect(engine->gpus != NULL, 0))
        turn_within(turn, engine_gpus_progress(engine, turn->now));
}

const struct engine_part gpus_part = {.start = start_gpus,
                                      .epoch_begin = begin_gpus,
                                      .epoch_end = forget_gpus,
                                      .progress = progress_gpus,
                                      .failed = engine_gpus_abort,
                                      .free = free_gpus};
