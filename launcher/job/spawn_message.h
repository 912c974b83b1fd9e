/* From READY hosts to running workers. */
#pragma once

#include <stdint.h>

#include "common/base/err.h"

struct job;

/* Makes the plan, and from it the environment, output and input (place.c). */
int job_place(struct job *j, struct err *e);
/* Sends every host of the plan its workers, and lets the other hosts go. */
void job_spawn(struct job *j);

/* Of an elastic job: gives a new host the workers that the plan has there; they wait for a membership. */
void job_spawn_newcomers(struct job *j, uint32_t plan_host, struct err *e);
#define RECRUITS_MAX 64 /* of a call */
/* Likewise a host that has had workers before: these `n` ranks of the plan. */
void job_recruit(struct job *j, uint32_t plan_host, const uint32_t *rank, uint32_t n);
