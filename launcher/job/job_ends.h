/* Tells the hosts of a job which ranks have ended on others: then their engines and rendezvous servers know
 * why a rank will not take part any more. */
#ifndef HVD_LAUNCHER_JOB_JOB_ENDS_H
#define HVD_LAUNCHER_JOB_JOB_ENDS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/err.h"

struct job;

struct job_ends {
    uint32_t *rank; /* that have ended and of which the others have not been told */
    uint32_t count;
    bool urgent; /* a bad end was told lately */
    uv_timer_t timer;
};

/* Memory for the plan's ranks. */
int job_ends_init(struct job *j, struct err *e);
void job_ends_free(struct job *j);
/* j->rank[rank].end says how it ended. */
void job_ends_tell(struct job *j, uint32_t rank);
/* A session needs links to the others, and from now on hears of every end. */
void job_ends_order(struct job *j);

#endif
