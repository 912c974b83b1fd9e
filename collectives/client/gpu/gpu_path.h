/* Operations on memory of GPUs as a path (operation.h). */
#pragma once

#include "collectives/client/gpu/gpu_op.h"

extern const struct path_ops gpu_path;

/* ---- gpu_claim.c --------------------------------------------------------------------------------------- */

/* Finds out whether the request's buffers are memory of a GPU, and marks the request. */
int gpu_claim(struct request *r) __attribute__((cold));
/* The place of the request's buffers. false: no buffer names a GPU, and the operation has no elements. */
int gpu_locate(const struct request *r, struct pointer *at, bool *found);

/* ---- gpu_solo.c ---------------------------------------------------------------------------------------- */

/* The whole operation in a job of one rank; its status. */
int gpu_solo(struct tensor *t);
