/* The engine runs NCCL for this rank: --gpu-placement engine. */
#pragma once

#include "collectives/client/gpu/gpu_team.h"

struct gpu_memory;

/* ---- gpu_engine.c -------------------------------------------------------------------------------------- */

/* Whether the engine uses the context's GPU too; asked once. */
bool gpu_engine_has(struct gpu_context *context);
struct gpu_abilities gpu_engine_abilities(const struct gpu_context *context);
/* Before `input_ready` is recorded: lets the engine reach all memory that the operation needs. The context is
 * entered. */
int gpu_engine_prepare(struct gpu_op *op, struct err *e);
/* Behind the result, in the stream: copies results out of bounce buffers. */
int gpu_engine_copy_back(struct gpu_op *op, cu_stream stream, struct err *e);
/* Drops what the operation has for the engine. */
void gpu_engine_forget(struct gpu_op *op);
/* Frees all bounce memory, once the engine has closed everything. */
void gpu_engine_free(void);
/* Like gpu_launch and gpu_launched. */
int gpu_engine_launch(struct gpu_op *op, struct err *e);
bool gpu_engine_launched(const struct gpu_op *op);
/* Then records `result_ready` of the operation behind the engine's stream. */
int gpu_engine_record(struct gpu_op *op, struct err *e);
/* The engine makes a communicator of this rank. -1: nothing of it stays. */
int gpu_engine_join(struct gpu_team *team, struct err *e);
enum communicator_state gpu_engine_state(const struct gpu_team *team);
/* The engine ends that communicator. */
void gpu_engine_leave(const struct gpu_team *team);
/* Destroys the team's streams and events for the engine. */
void gpu_bridge_close(struct gpu_team *team);
/* The team's stream goes on, whatever the engine does. */
void gpu_bridge_release(const struct gpu_team *team);
/* The engine closes everything of this rank. */
void gpu_engine_close(void);

/* ---- gpu_export.c -------------------------------------------------------------------------------------- */

/* The engine's number and offset of this memory; false: the engine does not have it. */
bool gpu_export(struct gpu_context *context, const void *at, uint64_t bytes, uint32_t *memory,
                uint64_t *offset);
/* The allocation that begins there goes: the engine closes it now. Operations on it have ended. */
void gpu_export_forget(const void *at);
/* The engine closes the memory of this number (0: no more than it is closing). true: the engine has closed
 * all memory that this rank has freed. */
bool gpu_export_close(uint32_t number);
/* The engine has closed everything. */
void gpu_export_forget_all(void);
/* Whether the team's communicator in the engine has registered the allocation. */
bool gpu_engine_registered(struct gpu_team *team, const struct gpu_memory *m);
/* The allocation will be freed. */
void gpu_engine_deregister(struct gpu_team *team, const struct gpu_memory *m);
