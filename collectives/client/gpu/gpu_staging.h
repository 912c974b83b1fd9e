/* Operations by way of host memory. */
#pragma once

#include "collectives/client/gpu/gpu_core.h"
#include "common/base/fsm.h"

#define GPU_STAGING_SLOTS 4u /* operations of a team that are on their way through host memory at once */

struct gpu_staging_slot {
    struct fsm fsm;
    struct gpu_team *team;
    struct tensor *host; /* the operation on the host */
    struct gpu_op *op;   /* NULL: the slot is free */
    char *memory;        /* of the arena; in it: */
    char *block;         /* registered with the driver */
    size_t block_bytes;
    char *older[64]; /* each at most half as large as the next: the stream may still copy from them */
    unsigned olders;
    char *out; /* the result, in the block */
    _Atomic bool copied;
    struct gpu_copy *copy; /* of the team's stream */
};

/* Gives the operation to the next slot. false: that slot is not free. */
bool gpu_stage(struct gpu_op *op);
void gpu_staging_progress(struct gpu_team *team);
enum gpu_need gpu_staging_need(const struct gpu_team *team);
/* `drained`: the team's stream is empty; else it may still use the slots' memory, and that stays. */
void gpu_staging_free(struct gpu_team *team, bool drained);
/* An operation of libhvd's own on host memory, by a name "hvd.device...": begins it; and whether it has
 * ended. */
int gpu_host_begin(struct tensor *t, const struct request *r);
bool gpu_host_ended(struct tensor *t, int *status);
