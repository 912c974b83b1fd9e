/* One operation on one slot, as a member or the engine sees it: publish, see who has arrived, check that all
 * agree, take chunks, know when all are done.
 *
 *   member: tensor_begin -> tensor_publish -> tensor_arrived? -> tensor_open -> tensor_work* -> tensor_done?
 *   engine:                                   tensor_arrived? -> tensor_open -> tensor_work* (while nobody
 * waits)
 *
 * tensor_open copies what the members have written once, checks the copy and never looks again. It is stable
 * while it is used: a member rewrites an entry two operations later, which needs every member's arrival in
 * between. The engine, which arrives nowhere, takes a chunk only when the claim word still carries its
 * operation, and a claimed chunk keeps the operation unfinished.
 *
 * Nothing here waits and nothing here may be trusted: every number is checked before it is an address. */
#ifndef HVD_SHM_TENSOR_H
#define HVD_SHM_TENSOR_H

#include "collectives/algorithms/chunk.h"
#include "collectives/hvd.h"
#include "collectives/shm/op.h"
#include "collectives/shm/region.h"

struct tensor_view {
    const struct region *region;
    struct shm_slot *slot;
    uint32_t sequence;
    uint32_t me;   /* local rank; the number of members for the engine */
    uint32_t seen; /* members [0, seen) have arrived */
    uint32_t mine; /* chunks that I have finished */
    /* after tensor_open: */
    struct tensor_op op;
    uint8_t place;
    size_t bytes;
    struct chunks chunks;
    const void **in; /* [members]; places of the elements, NULL where a kind has none */
    void **out;      /* [members]; NULL for SHM_INLINE */
};

/* Turns a shm_address into memory of `bytes` bytes; NULL when it lies in no segment. */
struct tensor_resolver {
    void *(*resolve)(void *ctx, uint64_t address, uint64_t bytes);
    void *ctx;
};

/* Makes the view's arrays; freed with tensor_view_free. -1: no memory. */
int tensor_view_init(struct tensor_view *v, const struct region *region, uint32_t slot, uint32_t me);
void tensor_view_free(struct tensor_view *v);
/* The next operation. */
void tensor_begin(struct tensor_view *v, uint32_t sequence);

/* Bytes of the elements; UINT64_MAX when the operation makes no sense. */
uint64_t tensor_bytes(const struct tensor_op *op);
/* Member: writes my entry. payload: the elements when they are at most SHM_INLINE_MAX bytes (NULL: this
 * member gives none), else in and out hold. */
void tensor_publish(struct tensor_view *v, const struct tensor_op *op, const void *payload, uint64_t in,
                    uint64_t out);
/* All members have arrived. */
bool tensor_arrived(struct tensor_view *v);
/* The first member that has not arrived; only after tensor_arrived said false. */
uint32_t tensor_missing(const struct tensor_view *v);

/* All have arrived: checks that they agree and finds the elements. HVD_SUCCESS; or HVD_ERR_MISMATCH,
 * HVD_ERR_INVALID with a sentence: the same one whoever asks. `name` is for the sentence. */
int tensor_open(struct tensor_view *v, const char *name, const struct tensor_resolver *resolver, char *text,
                size_t text_size);

/* SHM_INLINE on one host: computes the result from all payloads into `out` (out may be NULL when it is not
 * wanted). */
void tensor_compute(const struct tensor_view *v, void *out);
/* The reduction over this host's members alone, elements [first, first + count), into one place; an average
 * is only summed. */
void tensor_reduce_local(const struct tensor_view *v, void *out, size_t first, size_t count);

/* SHM_SEGMENT: takes a chunk and does it. false: none is left to take. */
bool tensor_work(struct tensor_view *v);
/* A chunk can be taken, as far as one can see. */
bool tensor_has_chunk(const struct tensor_view *v);
/* Member: makes chunks of this operation available to the engine too. */
void tensor_offer(struct tensor_view *v);
/* All chunks are done. */
bool tensor_done(const struct tensor_view *v);

#endif
