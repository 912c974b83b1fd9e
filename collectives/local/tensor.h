/* One operation on one slot, as a member or the engine sees it: publish, see who has arrived, check that all
 * agree, take chunks, know when all are done.
 *
 *   member: tensor_begin -> tensor_publish -> tensor_arrived? -> tensor_open -> tensor_work* -> tensor_done?
 *   engine:                                   tensor_arrived? -> tensor_open -> tensor_work*
 *                                             (while nobody waits)
 *
 * tensor_open copies what the members have written once, checks the copy and never looks again. It is stable
 * while it is used: a member rewrites an entry two operations later, which needs every member's arrival in
 * between. The engine, which arrives nowhere, takes a chunk only when the claim word still carries its
 * operation, and a claimed chunk keeps the operation unfinished.
 *
 * Nothing here waits and nothing here may be trusted: every number is checked before it is an address. */
#pragma once

#include "collectives/hvd.h"
#include "collectives/local/tensor_view.h"

/* The part of a member's entry beside the operation: the places of its elements, and its private fields. */
struct tensor_where {
    const void *payload;   /* the elements, when they go into the entry; NULL: this member gives none */
    uint64_t in, out;      /* shm_address, when they do not, or when the output is too large for it; `in` of
                              a device: what is said of its memory */
    uint64_t capacity;     /* allgather, alltoall: elements that fit into the output */
    const uint64_t *table; /* [ranks of the team], when it goes into the entry; else at table_at */
    uint64_t table_at;
    uint64_t recv_counts_at; /* shm_address; allgather, alltoall between hosts */
    uint8_t table_place;     /* 0: none, SHM_INLINE, SHM_SEGMENT */
    bool is_streamed;        /* `in` is a place of STREAM_PLACE bytes; with own_in and own_out */
    bool is_private; /* allreduce, all others have arrived: this member does the whole work, with these: */
    const void *own_in;
    void *own_out;
};

/* Turns a shm_address into memory of `bytes` bytes; NULL when it lies in no segment. */
struct tensor_resolver {
    void *(*resolve)(void *ctx, uint64_t address, uint64_t bytes);
    void *ctx;
};

/* Makes the view's arrays; freed with tensor_view_free. -1: no memory. */
int tensor_view_init(struct tensor_view *v, const struct region *region, const struct team *team,
                     uint32_t slot, uint32_t me);
void tensor_view_free(struct tensor_view *v);
/* The next operation. */
void tensor_begin(struct tensor_view *v, uint32_t sequence);

/* The elements go into the entry, behind a table of that many bytes. */
static inline bool tensor_is_inline(uint64_t bytes, uint64_t table_bytes)
{
    return bytes + table_bytes <= SHM_INLINE_MAX;
}
/* Member: writes my entry. */
void tensor_publish(struct tensor_view *v, const struct tensor_op *op, const struct tensor_where *where);
/* Member, all have arrived: fetches the lines that I write at the next operation of this name. All have read
 * them, so a publication finds them in my processor's cache. */
void tensor_claim_next(const struct tensor_view *v);
/* The address that a member gave for its output, or for the result of all. */
uint64_t tensor_out_address(const struct tensor_view *v, uint32_t member);
/* All members have arrived. */
bool tensor_arrived(struct tensor_view *v);
/* All are still at it: none has gone on after a wait that ended without the engine, and written over its
 * entry. */
bool tensor_still_here(const struct tensor_view *v);
/* Member: all but me have, before I publish; and their elements can be read. */
bool tensor_others_arrived(const struct tensor_view *v);
/* All members have arrived at the next operation. Values that were read of this one before that
 * are of this operation; values read later may be of the one after next. */
bool tensor_is_over(const struct tensor_view *v);
/* The last operation that the member has arrived at, whichever the view's own is; 0: none. */
uint32_t tensor_latest(const struct tensor_view *v, uint32_t member);
/* The member's request in its latest operation. It may be garbage. */
struct tensor_op tensor_asked(const struct tensor_view *v, uint32_t member);
/* The first member that has not arrived; only after tensor_arrived said false. The number of members: all are
 * here, but some have to stage first (pipeline.h). */
uint32_t tensor_missing(const struct tensor_view *v);

/* All have arrived: checks that they agree and finds the elements. HVD_SUCCESS; or HVD_ERR_MISMATCH,
 * HVD_ERR_INVALID with a sentence: the same one whoever asks. `name` is for the sentence. */
int tensor_open(struct tensor_view *v, const char *name, const struct tensor_resolver *resolver, char *text,
                size_t text_size);

/* SHM_INLINE on one host: computes my result from all payloads into `out` (NULL: it is not wanted). */
void tensor_compute(const struct tensor_view *v, void *out);
/* The reduction over this host's members alone, elements [first, first + count), into one place, as elements
 * of `dtype` (the op's own, or one that reduce_job.out_dtype may be), times `scale`; an average is only
 * summed, and the postscale is not in it. */
void tensor_reduce_local(const struct tensor_view *v, void *out, hvd_dtype dtype, double scale, size_t first,
                         size_t count);

/* The small result of a member that gave no address, as the taker of a chunk has written it. The member
 * copies it. */
void *tensor_scratch(const struct tensor_view *v, uint32_t member);

/* SHM_SEGMENT: takes a chunk and does it. false: none is left to take. */
bool tensor_work(struct tensor_view *v);
/* A chunk can be taken, as far as one can see. */
bool tensor_has_chunk(const struct tensor_view *v);
/* No worker can take a chunk any more. */
bool tensor_all_taken(const struct tensor_view *v);
/* Member: makes chunks of this operation available to the engine too. */
void tensor_offer(struct tensor_view *v);
/* All chunks are done. */
bool tensor_done(const struct tensor_view *v);
/* Member, of a sized operation: I need nobody's elements any more. */
void tensor_has_read(struct tensor_view *v);
/* The member has read all elements of that operation on the slot. All members had arrived at the
 * operation. */
bool tensor_is_read(const struct region *region, uint32_t slot, uint32_t local, uint32_t sequence);
/* A member has gone on without the end of what it was in: it has no engine. */
bool tensor_was_left(const struct tensor_view *v);
