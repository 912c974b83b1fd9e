#include "collectives/engine/flight.h"

#include <unistd.h>

#include "collectives/engine/run/run.h"
#include "collectives/kernels/dtype.h"
#include "collectives/shm/worker_socket.h"
#include "common/base/log.h"

_Static_assert(FLIGHT_SLOTS >= SHM_SLOTS && FLIGHT_NAME_MAX == SHM_NAME_MAX, "every slot's name has room");
_Static_assert(FLIGHT_WORDS >= DTYPES && FLIGHT_WORDS >= SHM_KINDS, "every kind and type has room");

static int open_desk(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    struct flight_desk *desk = &engine->flight;
    struct err why = ERR_INIT;
    (void)config, (void)e;
    if (desk->fd < 0)
        return 0;
    if (flight_map(&desk->map, desk->fd, &why) != 0) {
        log_warning("operations are not recorded: %s", why.text);
        close(desk->fd);
        desk->fd = -1;
        return 0;
    }
    for (uint8_t kind = 0; kind < SHM_KINDS; kind++)
        flight_set_kind(&desk->map, kind, op_kind_name(kind));
    for (int type = 0; type < DTYPES; type++)
        flight_set_type(&desk->map, (uint32_t)type, dtype_name(type));
    desk->ring = flight_rings(&desk->map, FLIGHT_ENGINE);
    atomic_store(&desk->ring->rank, FLIGHT_NO_RANK);
    atomic_store(&desk->ring->pid, (uint32_t)getpid());
    return 0;
}

static void close_desk(struct engine *engine)
{
    flight_unmap(&engine->flight.map);
    if (engine->flight.fd >= 0)
        close(engine->flight.fd);
}

const struct engine_part flight_part = {.start = open_desk, .free = close_desk};

int flight_give(struct engine *engine, struct worker_message *answer)
{
    if (engine->flight.fd >= 0)
        answer->id = engine->flight.given++ % FLIGHT_WORKERS;
    return engine->flight.fd;
}

void flight_run_begins(struct run *run)
{
    struct engine *engine = run->engine;
    struct flight_ring *ring = engine->flight.ring;
    const struct tensor_op *op = &run->view->op;
    run->record = NULL;
    if (!ring)
        return;
    run->recorded = atomic_load_explicit(&ring->operations, memory_order_relaxed) + 1;
    atomic_store_explicit(&ring->operations, run->recorded, memory_order_relaxed);
    run->record = &ring->record[run->recorded % FLIGHT_RECORDS];
    flight_write_begin(run->record, run->recorded,
                       (struct flight_what){.slot = (uint32_t)(run->name - engine->names.name),
                                            .operation = run->view->sequence,
                                            .set = op->set,
                                            .kind = op->kind,
                                            .type = op->dtype,
                                            .count = op->count,
                                            .bytes = op->count * dtype_size(op->dtype)});
}

void flight_run_ends(const struct run *run, int status)
{
    flight_write_end(run->record, run->recorded, status);
}
