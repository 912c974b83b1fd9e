/* The work of each kind of operation within one host: one file a kind, one row each in tensor.c's table.
 *
 * All members' entries were read and agree about what must agree; v->in, v->count, v->capacity and (where
 * there is one) v->split hold. Nothing here waits, claims or publishes. */
#pragma once

#include "collectives/local/tensor_view.h"

struct kind {
    /* The bytes of the output of a member; the members' claims are in the view. */
    uint64_t (*output_bytes)(const struct tensor_view *v, uint32_t member);
    /* Sets v->get; returns the elements that the chunks cover, or UINT64_MAX with a sentence to follow
     * "tensor x: ". */
    uint64_t (*plan)(struct tensor_view *v, char *wrong, size_t size);
    /* Elements [first, first + count) of those, into every member's output. */
    void (*part)(const struct tensor_view *v, size_t first, size_t count);
    /* The whole of my result into `out`. */
    void (*mine)(const struct tensor_view *v, void *out);
};

extern const struct kind kind_allreduce, kind_adasum, kind_allreduce_shared, kind_broadcast, kind_allgather,
    kind_alltoall, kind_reducescatter;

/* kind_allreduce.c: elements [first, first + count) of all inputs into `outputs` arrays, finished. */
void kind_reduce(const struct tensor_view *v, void *const *out, size_t outputs, size_t first, size_t count);
/* The same of inputs elsewhere, one of each member, into as many outputs. */
void kind_reduce_from(const struct tensor_view *v, const void *const *in, void *const *out, size_t first,
                      size_t count);
/* The same into one output, for other hosts to go on with: an average is only summed, and the postscale is
 * not in it. */
void kind_reduce_partly(const struct tensor_view *v, const void *const *in, void *out, size_t first,
                        size_t count);

/* tensor.c: the row of the table; NULL for a kind that moves nothing. */
const struct kind *kind_of(const struct tensor_op *op);
