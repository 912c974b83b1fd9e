/* From READY hosts to running workers. */
#ifndef HVD_LAUNCHER_JOB_SPAWN_MESSAGE_H
#define HVD_LAUNCHER_JOB_SPAWN_MESSAGE_H

#include "common/base/err.h"

struct job;

/* Makes the plan, and from it the environment, output and input (place.c). */
int job_place(struct job *j, struct err *e);
/* Sends every host of the plan its workers, and lets the other hosts go. */
void job_spawn(struct job *j);

#endif
