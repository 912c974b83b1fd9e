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
#ifndef HVD_COLLECTIVES_LOCAL_TENSOR_H
#define HVD_COLLECTIVES_LOCAL_TENSOR_H

#include "collectives/kernels/chunk.h"
#include "collectives/kernels/dtype.h"
#include "collectives/hvd.h"
#include "collectives/shm/op.h"
#include "collectives/shm/region.h"
#include "collectives/shm/team.h"

/* What a member publishes beside the operation: where its elements are, and what is its own business. */
struct tensor_where {
    const void *payload;   /* the elements, when they go into the entry; NULL: this member gives none */
    uint64_t in, out;      /* shm_address, when they do not, or when the output is too large for it; `in` of
                              a device: what is said of its memory */
    uint64_t room;         /* allgather, alltoall: elements that fit into the output */
    const uint64_t *table; /* [ranks of the team], when it goes into the entry; else at table_at */
    uint64_t table_at;
    uint8_t table_place; /* 0: none, SHM_INLINE, SHM_SEGMENT */
    uint64_t receipt_at; /* shm_address; allgather, alltoall between hosts */
    bool is_streamed;    /* `in` is a place of STREAM_PLACE bytes; with own_in and own_out */
    bool is_private; /* allreduce, all others have arrived: this member does the whole work, with these: */
    const void *own_in;
    void *own_out;
};

#define TENSOR_ANYBODY   UINT32_MAX
#define TENSOR_BYTES_MAX (1ull << SHM_OFFSET_BITS)

struct tensor_view {
    const struct region *region;
    const struct team *team; /* its owner's; members are counted in it */
    struct shm_slot *slot;
    struct shm_seat **seat; /* [members] */
    uint32_t number;        /* of the slot */
    uint32_t sequence;
    uint32_t me;          /* my member; the number of members for the engine */
    uint32_t seen;        /* members [0, seen) have arrived */
    uint32_t mine;        /* chunks, or pieces, that I have finished */
    uint32_t gave, taken; /* pieces; taken of pipeline_copy.c: members' of this round */
    const void *own_in;
    void *own_out;
    uint64_t own_room;
    bool is_brief; /* my entry (SHM_BRIEF) */
    struct {       /* pipeline_copy.c's own */
        size_t piece;
        uint32_t rounds, mine; /* of all, and pieces that I give */
        uint64_t kept, to_keep;
    } pass;
    /* after tensor_open; before, a member's own: */
    struct tensor_op op;
    uint64_t device_memory; /* of a device: what the members of one host say alike of theirs; 0: not all do */
    uint8_t place;          /* SHM_INLINE: all elements are in the entries, SHM_SEGMENT: chunks are taken */
    size_t bytes;           /* of what the chunks cover */
    bool streamed;          /* by pieces, nothing else */
    uint32_t worker;        /* the one member that takes chunks; TENSOR_ANYBODY */
    bool patient;           /* chunks of members that are at theirs are left to them; its owner says it */
    struct chunks chunks;
    const void **in;        /* [members]; places of the elements, NULL where a kind has none */
    void **out;             /* [members]; NULL where each computes its own, or a kind has none */
    void *scratch;          /* of an operation that needs some; NULL: none */
    const void **stream_in; /* [members], pipeline.c's own */
    void **stream_out;
    uint64_t *count; /* [members]; elements that the member gives */
    uint64_t *room;  /* [members]; allgather, alltoall: elements that fit into its output */
    uint64_t *get;   /* [members]; elements of its result; the engine of several hosts finds it out itself */
    uint64_t **receipt; /* [members]; allgather, alltoall between hosts: the engine tells there what came of
                           each rank */
    uint64_t *split;    /* [members][ranks]; alltoall: elements for each rank. [ranks]; reducescatter: of each
                           rank's part. Made when first needed */
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

/* Bytes of the elements, wherever they are; UINT64_MAX when the operation makes no sense. */
static inline uint64_t tensor_all_bytes(const struct tensor_op *op)
{
    size_t size = dtype_size(op->dtype);

    if (!op_moves(op->kind))
        return 0;
    return size == 0 || op->count > TENSOR_BYTES_MAX || op->count * size > TENSOR_BYTES_MAX
               ? UINT64_MAX
               : op->count * size;
}
/* Of those that go through here: none of a device's. */
static inline uint64_t tensor_bytes(const struct tensor_op *op)
{
    return op->device ? 0 : tensor_all_bytes(op);
}
/* A member's entry of that operation. */
static inline struct shm_entry *tensor_entry_at(const struct tensor_view *v, uint32_t member,
                                                uint32_t sequence)
{
    return region_entry(v->region, v->number, v->team->local[member], sequence);
}
/* The elements go into the entry, behind a table of that many bytes. */
static inline bool tensor_is_inline(uint64_t bytes, uint64_t table_bytes)
{
    return bytes + table_bytes <= SHM_INLINE_MAX;
}
/* Member: writes my entry. */
void tensor_publish(struct tensor_view *v, const struct tensor_op *op, const struct tensor_where *where);
/* The address that a member gave for its output, or for the result of all. */
uint64_t tensor_out_address(const struct tensor_view *v, uint32_t member);
/* All members have arrived. */
bool tensor_arrived(struct tensor_view *v);
/* All are still at it: none has gone on after a wait that ended without the engine, and written over its
 * entry. */
bool tensor_still_here(const struct tensor_view *v);
/* Member: all but me have, before I publish; and their elements can be read. */
bool tensor_others_arrived(const struct tensor_view *v);
/* All members have arrived at the next operation. What was read of this one before that is what its members
 * wrote for it; later it may be of the one after next. */
bool tensor_is_over(const struct tensor_view *v);
/* The last operation that the member has arrived at, whichever the view's own is; 0: none. */
uint32_t tensor_latest(const struct tensor_view *v, uint32_t member);
/* What the member asks for in that one. It may be garbage. */
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

/* Where a chunk's taker has put the small result of a member that gave no address; to be copied by it. */
void *tensor_scratch(const struct tensor_view *v, uint32_t member);

/* SHM_SEGMENT: takes a chunk and does it. false: none is left to take. */
bool tensor_work(struct tensor_view *v);
/* A chunk can be taken, as far as one can see. */
bool tensor_has_chunk(const struct tensor_view *v);
/* Member: makes chunks of this operation available to the engine too. */
void tensor_offer(struct tensor_view *v);
/* All chunks are done. */
bool tensor_done(const struct tensor_view *v);
/* A member has gone on without the end of what it was in: it has no engine. */
bool tensor_was_left(const struct tensor_view *v);

#endif
