/* An entry of the list whose elements are on the ranks' devices: they do all of the work themselves, and the
 * engine says that all hosts agree and which operation comes next, in the order of the list. So the devices
 * of all hosts begin the same, one after the other; runs keep the order until here, since none of them may
 * overtake one that exchanges sizes. */
#include <stdio.h>

#include "collectives/engine/run/run.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/order.h"

void run_on_devices(struct run *run)
{
    struct engine *engine = run->engine;
    uint32_t head = names_find(engine, run->set, SHM_DEVICE_NAME);
    char text[SHM_TEXT_MAX];

    /* Ranks ask for that name before they begin anything on a device. */
    if (head == UINT32_MAX || !order_append(&engine->region, head, run->view->number)) {
        snprintf(text, sizeof text, "a rank on %.100s has overwritten its shared memory: tensor \"%.255s\"",
                 engine->host[engine->self].name, run->entry.desc.name);
        run_fail(run, HVD_ERR_PEER, text);
        return;
    }
    run_settle(run, HVD_SUCCESS, NULL);
    alarm_ring_all(&engine->region);
}
