/* The runner of all operations on GPUs, and its thread. gpu_lock is held. */
#pragma once

#include "collectives/client/gpu/gpu_team.h"

/* Does what can be done, for all teams. */
enum gpu_need gpu_progress(void);
/* If all ranks are there: compares their operations, and appends the operation to the order if that is this
 * rank's task. */
void gpu_op_check(struct gpu_op *op);
/* Looks for failures that NCCL has noticed by itself, and for GPUs that have failed. */
void gpu_watch(void);
/* Until the team's stream is empty, or everything in it was aborted. goes_on: meanwhile the operations of
 * other teams go on. */
void gpu_drain_team(struct gpu_team *team, bool goes_on);

/* ---- gpu_thread.c -------------------------------------------------------------------------------------- */

/* A status, after fail(). */
int gpu_thread_start(void);
void gpu_thread_stop(void);
/* Wakes the thread if this need is more than the thread has seen. */
void gpu_thread_wake(enum gpu_need need);

/* ---- gpu_alloc.c --------------------------------------------------------------------------------------- */

/* hvd_free; takes the lock. false: the memory is not of hvd_alloc_device. */
bool gpu_memory_free(void *memory);
