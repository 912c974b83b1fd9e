/* A large allreduce (and, by pipeline_copy.c, broadcast, allgather or alltoall, for which the first and
 * the last of what follows hold too) of private memory in which every member of the host waits: the
 * elements go by pieces through a small place of each member that stays in a cache, instead of through a
 * copy of the whole.
 *
 * For each piece a member gives: it copies what others reduce from its memory to its own place. When all have
 * given, it reduces its part of the piece, and writes the result into its own memory and into all others'
 * places. When all have done that, it takes the rest of the result from its place. A place has two halves,
 * for pieces in turn: a member gives the next piece before it reduces one, and gives no further one before it
 * has taken that. So whoever sees that all have done piece k knows that nobody touches its half for k any
 * more.
 *
 * A member that waits says so in its entry (SHM_STREAMED). When not all do, those who did copy the whole
 * after all, and say so (tensor_stage); until then the operation has not arrived. */
#ifndef HVD_COLLECTIVES_LOCAL_PIPELINE_H
#define HVD_COLLECTIVES_LOCAL_PIPELINE_H

#include "collectives/local/tensor_view.h"

#define STREAM_PIECE (1u << 20) /* bytes at most */
#define STREAM_PLACE (2 * STREAM_PIECE)

/* `out` of a streamed sized operation: where the member's elements can be read; or this, they cannot. */
#define STREAM_NOT_SHARED UINT64_MAX

/* The kinds that can: those that reduce nothing have a way of their own (pipeline_copy.c). */
#define STREAM_KINDS (SHM_KIND_BIT(SHM_ALLREDUCE) | SHM_KIND_BIT(SHM_BROADCAST) | SHM_RAGGED)

/* tensor_open has set v->streamed and found everything. */
void stream_plan(struct tensor_view *v);
/* Does one thing, if anything can be done. */
bool stream_step(struct tensor_view *v);
/* Something can be done. */
bool stream_has_step(const struct tensor_view *v);
/* My result is complete, and nobody touches my place any more. */
bool stream_ended(const struct tensor_view *v);

/* All have arrived, I have SHM_STREAMED and others have not: the whole must be copied. */
bool stream_must_stage(const struct tensor_view *v);
/* I have done so: my elements and results are there. */
void stream_staged(struct tensor_view *v, uint64_t in, uint64_t out);
/* Every member streams. */
bool stream_of_all(const struct tensor_view *v);
/* Nobody has yet to do so. */
bool stream_settled(const struct tensor_view *v);

/* ---- copies (pipeline_copy.c) -------------------------------------------------------------------------- */

/* After tensor_open has set v->streamed and found everything. */
void pass_plan(struct tensor_view *v);
/* As stream_step and those that follow it. */
bool pass_step(struct tensor_view *v);
bool pass_has_step(const struct tensor_view *v);
bool pass_ended(const struct tensor_view *v);

#endif
