/* Memory of hvd_alloc_device that NCCL knows, in the engine: as in the ranks (client/device_memory.c), mapped
 * once more, and that second mapping registered with the communicators of the rank whose memory it is. The
 * rank asks for it, once for each set, and says with each operation whether all ranks have agreed that theirs
 * is known. What it says is not believed: the second mapping is given to NCCL where it was registered. */
#include "collectives/engine/gpu/gpu.h"

#include "collectives/gpu/mapping.h"

cu_pointer device_known_at(const struct device_seat *seat, const struct device_memory *m)
{
    return m->second && communicator_register(seat->communicator, (void *)(uintptr_t)m->second, m->bytes)
               ? m->second
               : 0;
}

/* Only what came as a descriptor can be mapped twice. */
static void map_again(const struct devices *d, struct device_memory *m)
{
    const struct mapping_part all = {m->allocation, m->bytes};
    struct err e = ERR_INIT;

    if (m->second || !m->allocation || !d->nccl->ncclCommRegister || device_enter(d, m->gpu, &e) != 0)
        return;
    if (mapping_open(d->driver, d->gpu[m->gpu].what.device, &all, 1, &m->second, &e) != 0)
        m->second = 0;
    device_leave(d);
}

int device_make_known(struct engine *engine, uint32_t member, const struct worker_message *q, uint32_t *known,
                      struct err *e)
{
    struct devices *d = engine->devices;
    struct device_memory *m = device_memory_of(&d->owner[member], q->id);
    const struct device_seat *seat = device_seat_of(engine, member, q->set);

    if (!m || !seat || m->gpu != seat->gpu)
        return err_set(e, ERR_PROTOCOL, "there is no such memory, or process set");
    *known = SHM_DEVICE_ASK_LATER;
    if (seat->leaves || seat->pending || communicator_state(seat->communicator) != COMMUNICATOR_READY)
        return 0;
    map_again(d, m);
    *known = device_known_at(seat, m) ? SHM_DEVICE_KNOWN : SHM_DEVICE_UNKNOWN;
    return 0;
}

void device_make_unknown(const struct devices *d, struct device_memory *m)
{
    if (!m->second)
        return;
    for (struct device_set *s = d->sets; s; s = s->next)
        for (uint32_t i = 0; i < s->set->team->members; i++)
            if (s->seat[i].stream)
                communicator_deregister(s->seat[i].communicator, (void *)(uintptr_t)m->second);
    mapping_close(d->driver, m->second, m->bytes);
    m->second = 0;
}
