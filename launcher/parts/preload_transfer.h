/* The part of a job between its plan and its Spawn: every host of the plan gets the files of --preload, all
 * at once, and each as fast as it takes them. */
#ifndef HVD_LAUNCHER_PARTS_PRELOAD_TRANSFER_H
#define HVD_LAUNCHER_PARTS_PRELOAD_TRANSFER_H

#include "launcher/job/job_internal.h"

/* Posts JOB_EV_PRELOADED when all have them, or at once when there are none. */
void job_preload_start(struct job *j);
/* It takes so many bytes more. NULL, or why it cannot. */
const char *job_preload_credit(struct job *j, struct host *h, uint32_t bytes);
/* Its transport takes bytes again. */
void job_preload_go_on(struct job *j, struct host *h);
/* It has all of them. Likewise. */
const char *job_preload_done(struct job *j, struct host *h);

#endif
