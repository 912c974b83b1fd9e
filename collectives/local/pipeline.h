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
 * With several hosts only an allreduce goes by pieces. The engine makes a buffer of the host when all have
 * arrived (`host_made`, `host_at` of the slot). A member reduces its part of a piece into the buffer and
 * takes nothing back. The engine sends the pieces that all have reduced. Behind the buffer it lists the
 * pieces whose result is final (struct stream_final). Each member copies these out while others are on
 * their way, and says when it has all (stream_leave).
 *
 * A member that waits says so in its entry (SHM_STREAMED). When not all do, those who did copy the whole
 * after all, and say so (tensor_stage); until then the operation has not arrived. */
#pragma once

#include "collectives/local/tensor_view.h"

#ifndef STREAM_PIECE
#define STREAM_PIECE     (1u << 20) /* bytes at most */
#define STREAM_LEAST     (1u << 20) /* bytes of an allreduce: below, a copy of the whole is cheaper */
#define STREAM_LEAST_FAR (8u << 20) /* the same between hosts, */
#define STREAM_LEAST_SIZED                                                                                   \
    (256u << 10) /* and of a sized operation, where pieces need more turns of each rank */
#endif
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

/* ---- several hosts ------------------------------------------------------------------------------------- */

/* The pieces whose result is final, in the order in which they became so; behind the host's buffer, by lines.
 * Written by the engine. */
struct stream_final {
    _Atomic uint32_t count;
    uint32_t piece[];
};

/* Can ranks of several hosts stream that operation? */
bool stream_crosses(const struct region *region, const struct tensor_op *op);
/* Bytes of the host's buffer, with what lies behind it. */
size_t stream_host_bytes(const struct tensor_view *v);
/* Engine: all members stream, and the host's buffer is at that address. false: no memory. */
bool stream_begin_host(struct tensor_view *v, uint64_t address, void *memory);
/* Engine: these bytes of the result are final. Each byte once. */
void stream_note_final(struct tensor_view *v, uint64_t offset, uint64_t size);
/* Member: copies one piece of the result that is final. false: there is none. */
bool stream_take_final(struct tensor_view *v);
bool stream_has_final(const struct tensor_view *v);
/* Member: the buffer's address, if the engine has made it. */
bool stream_has_host(const struct tensor_view *v, uint64_t *address);
/* Member: all of my part of the tensor is in the buffer. */
bool stream_gave_all(const struct tensor_view *v);
/* Pieces, and bytes from the beginning of the buffer, that all members have reduced. */
uint32_t stream_packed_pieces(const struct tensor_view *v);
uint64_t stream_packed(const struct tensor_view *v);
/* Engine: the member has yet to bring pieces, and no other member is less far. */
bool stream_is_behind(const struct tensor_view *v, uint32_t member);
/* Member: I need neither the buffer nor the others any more. */
void stream_leave(struct tensor_view *v);
/* The member has done so in that operation on the slot, or has gone on. All had arrived at the operation. */
bool stream_has_left(const struct region *region, uint32_t slot, uint32_t local, uint32_t sequence);

/* ---- copies (pipeline_copy.c) -------------------------------------------------------------------------- */

/* After tensor_open has set v->streamed and found everything. */
void pass_plan(struct tensor_view *v);
/* As stream_step and those that follow it. */
bool pass_step(struct tensor_view *v);
bool pass_has_step(const struct tensor_view *v);
bool pass_ended(const struct tensor_view *v);
