/* One operation on one slot: the state that a member or the engine has of it, and where its entries are. */
#pragma once

#include "collectives/kernels/chunk.h"
#include "collectives/kernels/dtype.h"
#include "collectives/shm/op.h"
#include "collectives/shm/region.h"
#include "collectives/shm/team.h"

#define TENSOR_ANYBODY   UINT32_MAX
#define TENSOR_BYTES_MAX (1ull << SHM_OFFSET_BITS)

/* A member's own business in its operation. */
struct tensor_own {
    const void *in;
    void *out;
    const void *small; /* elements of a small allreduce, which its entry holds too; NULL: only that does */
    uint64_t capacity;
    uint8_t place; /* as its entry says; 0: the operation is not published */
};

/* The state of pipeline.c and pipeline_copy.c. */
struct tensor_stream {
    uint32_t gave, taken; /* pieces; taken of pipeline_copy.c: members' of this round */
    void *host;           /* several hosts: this host's buffer, which gets all pieces */
    uint32_t copied;      /* pieces of the result, out of that buffer */
    const void **in;      /* [members], pipeline.c's own */
    void **out;
    /* pipeline_copy.c's own: */
    size_t piece;
    uint32_t rounds, mine; /* of all, and pieces that I give */
    uint64_t kept, to_keep;
};

struct tensor_view {
    const struct region *region;
    const struct team *team; /* its owner's; members are counted in it */
    struct shm_slot *slot;
    struct shm_member_slot **member_slot; /* [members] */
    uint32_t number;                      /* of the slot */
    uint32_t sequence;
    uint32_t me;   /* my member; the number of members for the engine */
    uint32_t seen; /* members [0, seen) have arrived */
    uint32_t mine; /* chunks, or pieces, that I have finished */
    struct tensor_own own;
    struct tensor_stream stream;
    /* after tensor_open; before, a member's own: */
    struct tensor_op op;
    uint64_t device_memory; /* of a device: what the members of one host say alike of theirs; 0: not all do */
    uint8_t place;          /* SHM_INLINE: all elements are in the entries, SHM_SEGMENT: chunks are taken */
    size_t bytes;           /* of what the chunks cover */
    bool streamed;          /* by pieces, nothing else */
    uint32_t worker;        /* the one member that takes chunks; TENSOR_ANYBODY */
    bool patient;           /* chunks of members that are at theirs are left to them; its owner says it */
    struct chunks chunks;
    const void **in;    /* [members]; places of the elements, NULL where a kind has none */
    void **out;         /* [members]; NULL where each computes its own, or a kind has none */
    void *scratch;      /* of an operation that needs some; NULL: none */
    uint64_t *count;    /* [members]; elements that the member gives */
    uint64_t *capacity; /* [members]; allgather, alltoall: elements that fit into its output */
    uint64_t *get; /* [members]; elements of its result; the engine of several hosts finds it out itself */
    /* [members]; allgather, alltoall between hosts: the engine tells there what came of each rank, and behind
     * it where the result of a sized operation is (UINT64_MAX: in the member's scratch) */
    uint64_t **recv_counts;
    uint64_t *split; /* [members][ranks]; alltoall: elements for each rank. [ranks]; reducescatter: of each
                           rank's part. Made when first needed */
};

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
/* A number for each rank; of a sized operation also the address of the member's result. */
static inline size_t tensor_recv_bytes(const struct team *team, const struct tensor_op *op)
{
    return (team->size + op_is_sized(op)) * sizeof(uint64_t);
}
/* A member's entry of that operation. */
static inline struct shm_entry *tensor_entry_at(const struct tensor_view *v, uint32_t member,
                                                uint32_t sequence)
{
    return region_entry(v->region, v->number, v->team->local[member], sequence);
}

static inline struct shm_entry *tensor_entry(const struct tensor_view *v, uint32_t member)
{
    return tensor_entry_at(v, member, v->sequence);
}

static inline struct shm_body *tensor_body(const struct tensor_view *v, uint32_t member)
{
    return &v->member_slot[member]->body[v->sequence & 1];
}

/* The elements of a member that travel inside the region, behind a table of so many bytes. */
static inline uint8_t *tensor_payload(const struct tensor_view *v, uint32_t member, uint64_t bytes,
                                      uint64_t table)
{
    return bytes <= SHM_SMALL_MAX && table == 0 ? tensor_entry(v, member)->small
                                                : tensor_body(v, member)->payload + table;
}

static inline size_t tensor_element_size(const struct tensor_view *v)
{
    return dtype_size(v->op.dtype);
}

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
#define FINISHED_FOR_OTHERS(v) __tsan_release((v)->region->header)
#define ARRIVED_FROM_OTHERS(v) __tsan_acquire((v)->region->header)
#define READS_ARE_DONE()       ((void)0) /* it knows no fences */
#else
#define FINISHED_FOR_OTHERS(v) ((void)(v))
#define ARRIVED_FROM_OTHERS(v) ((void)(v))
#define READS_ARE_DONE()       atomic_thread_fence(memory_order_acquire)
#endif
