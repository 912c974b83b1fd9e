/* hvd_abort: a rank that cannot go on says why.
 *
 * The engine poisons the job with the rank's sentence, as it does when a rank dies. But the process goes on:
 * it prints, cleans up and exits with a status of its own, and hvdrun knows that this rank is the cause. */
#include <stdio.h>

#include "collectives/client/core.h"
#include "collectives/client/rpc.h"
#include "common/base/log.h"

/* There is no engine and no other rank: this rank's own calls fail from now on. */
static void give_up_alone(const char *why)
{
    int ready = CLIENT_READY;
    pthread_mutex_lock(&client.rpc_lock);
    if (atomic_load(&client.state) == CLIENT_READY) {
        snprintf(client.gave_up, sizeof client.gave_up, "rank 0 gave up: %.300s",
                 *why ? why : "it did not say why");
        atomic_compare_exchange_strong(&client.state, &ready, CLIENT_GAVE_UP);
    }
    pthread_mutex_unlock(&client.rpc_lock);
}

int hvd_abort(const char *why)
{
    struct worker_message m = {.type = WORKER_ABORT};
    int status = client_check();
    if (status != HVD_SUCCESS)
        return status;
    snprintf(m.text, sizeof m.text, "%s", why ? why : "");
    log_printable(m.text);
    if (client.solo) {
        give_up_alone(m.text);
        return HVD_SUCCESS;
    }
    return region_poisoned(&client.region) ? HVD_SUCCESS : rpc(&m, -1, NULL, NULL);
}
