/* The work of each kind of operation within one host: one file a kind, one row each in tensor.c's table.
 *
 * All members' entries were read and agree about what must agree; v->in, v->count, v->room and (where there
 * is one) v->split hold. Nothing here waits, claims or publishes. */
#ifndef HVD_COLLECTIVES_LOCAL_WORK_H
#define HVD_COLLECTIVES_LOCAL_WORK_H

#include "collectives/kernels/dtype.h"
#include "collectives/local/tensor.h"

struct kind_work {
    /* Bytes that the output of a member needs to have room for; the members' claims are in the view. */
    uint64_t (*room)(const struct tensor_view *v, uint32_t member);
    /* Sets v->get; returns the elements that the chunks cover, or UINT64_MAX with a sentence to follow
     * "tensor x: ". */
    uint64_t (*plan)(struct tensor_view *v, char *wrong, size_t size);
    /* Elements [first, first + count) of those, into every member's output. */
    void (*part)(const struct tensor_view *v, size_t first, size_t count);
    /* The whole of my result into `out`. */
    void (*mine)(const struct tensor_view *v, void *out);
};

extern const struct kind_work work_allreduce, work_adasum, work_allreduce_shared, work_broadcast,
    work_allgather, work_alltoall, work_reducescatter;

/* work_allreduce.c: elements [first, first + count) of all inputs into `outputs` arrays, finished. */
void work_reduce(const struct tensor_view *v, void *const *out, size_t outputs, size_t first, size_t count);
/* The same of inputs elsewhere, one of each member, into as many outputs. */
void work_reduce_from(const struct tensor_view *v, const void *const *in, void *const *out, size_t first,
                      size_t count);

/* An order that goes through another process (I finish a chunk, it sees that and reuses the memory, I see its
 * next arrival) is invisible to ThreadSanitizer, which knows only this process. These two tell it.
 * The third comes before a look that says whether what was read before it holds. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TELL_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(TELL_TSAN)
#include <sanitizer/tsan_interface.h>
#define finished_for_others(v) __tsan_release((v)->region->header)
#define arrived_from_others(v) __tsan_acquire((v)->region->header)
#define reads_are_done()       ((void)0) /* it knows no fences */
#else
#define finished_for_others(v) ((void)(v))
#define arrived_from_others(v) ((void)(v))
#define reads_are_done()       atomic_thread_fence(memory_order_acquire)
#endif

/* tensor.c: the row of the table; NULL for a kind that moves nothing. */
const struct kind_work *tensor_work_of(const struct tensor_op *op);

static inline struct shm_entry *tensor_entry(const struct tensor_view *v, uint32_t member)
{
    return tensor_entry_at(v, member, v->sequence);
}

static inline struct shm_body *tensor_body(const struct tensor_view *v, uint32_t member)
{
    return &v->seat[member]->body[v->sequence & 1];
}

/* Where a member's elements are that travel inside the region, behind a table of so many bytes. */
static inline uint8_t *tensor_payload(const struct tensor_view *v, uint32_t member, uint64_t bytes,
                                      uint64_t table)
{
    return bytes <= SHM_SMALL_MAX && table == 0 ? tensor_entry(v, member)->small
                                                : tensor_body(v, member)->payload + table;
}

static inline size_t work_size(const struct tensor_view *v)
{
    return dtype_size(v->op.dtype);
}

#endif
