/* The control region: what the workers of one host and their engine share, besides the tensors themselves.
 *
 *   header | entries | one mailbox per member | slots; each slot: its own lines, then one member slot each |
 *   of an elastic job: the number of each rank's worker, uint32_t
 *
 * A member is a rank of this host, by local rank. A slot belongs to one tensor name (slots 0 and 1 to barrier
 * and shutdown); the engine hands them out. Operations on a slot are counted from 1, and all ranks agree
 * about the number because a name has one operation at a time. Operation k of a member is written to entry k
 * % 2 of its two: a member can be at k + 1 while another one still reads k, but not at k + 2, since k + 1 is
 * complete only when all have arrived there, and they arrive after k. So when all have arrived at k, nobody
 * reads the payload of the other entry any more: whoever takes a chunk may put a small result for that member
 * there.
 *
 * An entry is one line of memory; what few need, or does not fit, is its body in the member slot. A member's
 * entries of all slots lie together: thousands of names then need few pages, and are in the order of their
 * first use.
 *
 * A slot serves many names, one after the other. Each member gives a slot back when the member's tensor is
 * idle. When no member holds the slot, the engine zeroes the slot's words: the slot is as new.
 *
 * Writers: each word has one writer, named below, but for three kinds that anyone adds to (a death
 * leaves them merely unused): `claim`, changed by compare and swap and tagged with its operation, so a late
 * worker can never take a chunk of the next one; `bell`, a counter to sleep on; and `last`, exchanged, with
 * `next` that whoever has exchanged it writes (order.h: a death between the two breaks the order, which ends
 * with the job). The region is sealed:
 * nobody can make it smaller under another one's feet. It is never repaired: after a death it is poisoned for
 * ever and the next epoch has a new one. Everything in it may be garbage for a reader: readers copy, then
 * check.
 *
 * Order, also where the machine keeps none: what a word announces (an entry, elements, a result, a sentence)
 * is written before the word, and read after it. The words are _Atomic and stored and loaded with the default
 * order, so that a store releases, a load acquires, and "I store mine, then look at yours" works on both
 * sides of a sleep (bell, sleeping, engine_sleeping, tail, head). Memory is used again by its owner only
 * after a word that every reader stores after its last read: the next `sequence`, `done`, `given`. A reader
 * without such a word (the engine on one host) reads first and asks then whether that was in time
 * (tensor_is_over), with a fence between, because a load that acquires holds back what follows it, not what
 * went before. Relaxed are only words of one's own (tail, head), looks at `claim` before it is changed, and
 * the processors of members and engine. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/shm/op.h"

/* ---- counts -------------------------------------------------------------------------------------------- */

/* A member's counts of its operations that have ended well. The engine sums them up when the session asks.
 *
 * Each word has one writer: the thread of the member that called hvd_init. Its other threads add, by atomic
 * adds, to words that they share. A time is taken of each large operation and of some of the small ones,
 * which then stand for those between. */

struct shm_count {
    _Atomic uint64_t operations;
    _Atomic uint64_t bytes; /* that the member gave; of a broadcast, those of the tensor */
    _Atomic uint64_t ns;    /* from the call to its result */
};

struct shm_counts {
    _Alignas(64) struct shm_count own[SHM_KINDS];
    _Alignas(64) struct shm_count others[SHM_KINDS];
};

#define SHM_TIMED_BYTES (64u << 10) /* operations as large are timed each */

/* How many of a tensor's small operations the time of its `sequence`th stands for; 0: it is not taken. In
 * sum as many as there were, whenever `sequence` is a power of two or a multiple of 64. */
static inline uint8_t shm_stands_for(uint32_t sequence)
{
    if (__builtin_expect(sequence % 64 != 0 && (sequence >= 64 || (sequence & (sequence - 1)) != 0), 1))
        return 0;
    return sequence > 64 ? 64 : (uint8_t)((sequence + 1) / 2);
}

/* ---- the region ---------------------------------------------------------------------------------------- */

#define SHM_MAGIC       0x31646e6f69676572ull
#define SHM_VERSION     24u
#define SHM_LINE        64
#define SHM_SLOTS       16384u /* a power of two; the rings are as long, so that every slot fits */
#define SHM_INLINE_MAX  2048u  /* bytes of a tensor that travels inside the region */
#define SHM_SMALL_MAX   24u    /* bytes of one that is in the entry itself */
#define SHM_TEXT_MAX    512u
#define SHM_MEMBERS_MAX 1024u

#define SHM_SLOT_BARRIER  0u
#define SHM_SLOT_SHUTDOWN 1u
#define SHM_SLOT_FIRST    2u /* of names */
/* Names of the fixed slots, in sentences and between hosts; a tensor may not have them. */
#define SHM_BARRIER_NAME  "hvd.barrier"
#define SHM_SHUTDOWN_NAME "hvd.shutdown"
#define SHM_SETS_NAME     "hvd.sets"   /* of the world's agreement about process sets */
#define SHM_JOIN_NAME     "hvd.join"   /* of the world's agreement that all ranks have joined */
#define SHM_DEVICE_NAME   "hvd.device" /* of a team's order, and of its agreements about devices: order.h */
#define SHM_NAME_MAX      255u
#define SHM_SETS_MAX      4096u /* process sets of an epoch that all ranks know; their ids are below */
/* Ids of sets that only their ranks know: below this, and not below SHM_SETS_MAX. A rank has SHM_SETS_MAX. */
#define SHM_OPENED_END 0x800000u

#define SHM_ALIGNED _Alignas(SHM_LINE)

/* The place of the elements. */
enum shm_place {
    SHM_INLINE = 1,    /* in the entry or its payload; results go to the slot's result, or are computed by
                          each rank for itself */
    SHM_SEGMENT = 2,   /* at the addresses `in` and `out` */
    SHM_DETAILED = 4,  /* added to either: the entry's details are written */
    SHM_PRIVATE = 8,   /* added to SHM_SEGMENT, by the last to come: my elements are where nobody else sees
                          them, I do the whole work */
    SHM_STREAMED = 16, /* added to SHM_SEGMENT: `in` is a place through which pieces go (pipeline.h) */
    SHM_BRIEF = 32,    /* added to SHM_INLINE: of the details only row and capacity differ from those of an
                          operation without any; both are in `in` and `out` */
    SHM_DEVICE = 64,   /* added to SHM_INLINE: there are none here, but in memory of a device */
    SHM_EITHER = 128   /* added to SHM_DEVICE: there are none at all */
};

/* Fields that few operations need. */
struct shm_details {
    uint64_t row; /* these as in struct tensor_op; without details 0, the scales 1 */
    double prescale, postscale;
    uint32_t group, compression;
    uint64_t capacity; /* allgather, alltoall: elements that fit into my output */
    uint64_t table_at; /* shm_address of the table that belongs to the operation, when it lies in a segment */
    uint32_t table;    /* 0: there is none, SHM_INLINE: the payload begins with it, SHM_SEGMENT */
    /* allgather, alltoall, more than one host: shm_address of a table that the engine fills: how many
     * elements I get of each rank */
    uint64_t recv_counts_at;
};

/* A table has one uint64_t for each rank: what an alltoall sends it, what a grouped reducescatter leaves it.
 */
#define SHM_TABLE_MAX (SHM_INLINE_MAX / 2) /* bytes that go into the payload */

/* One operation of one member. Written by the member, `sequence` last. */
struct shm_entry {
    SHM_ALIGNED _Atomic uint32_t sequence;
    uint8_t kind, dtype, op, place;
    uint32_t root;
    int32_t set;
    uint64_t count;
    uint64_t in, out;             /* shm_address */
    uint8_t small[SHM_SMALL_MAX]; /* the elements, when they fit and no table comes with them */
};
_Static_assert(sizeof(struct shm_entry) == SHM_LINE, "an entry is a line");

/* The rest of it, written before its `sequence`. */
struct shm_body {
    SHM_ALIGNED uint8_t payload[SHM_INLINE_MAX];
    struct shm_details details;
};

/* One member's entries of one parity; a little more, so that not all members' use the same lines of a cache.
 */
struct shm_entries {
    struct shm_entry of[SHM_SLOTS];
    uint8_t apart[2 * SHM_LINE];
};

/* The words and bytes of one member in a slot. */
struct shm_member_slot {
    SHM_ALIGNED _Atomic uint64_t done;  /* member: shm_tagged(operation, chunks it has finished) */
    SHM_ALIGNED _Atomic uint64_t given; /* member: shm_tagged(operation, pieces it has given: pipeline.h) */
    _Atomic uint64_t call;              /* member: shm_address of a description, device_call.h */
    _Atomic uint64_t launched; /* engine: shm_tagged(operation, 1); of SHM_DEVICE_NAME: how far NCCL is */
    _Atomic uint32_t carried;  /* member: its last operation that ended over the link between ranks */
    struct shm_body body[2];   /* of its entries */
};

struct shm_slot {
    SHM_ALIGNED _Atomic uint64_t claim; /* anyone: shm_tagged(operation, chunks claimed: see chunks_pick) */
    SHM_ALIGNED _Atomic uint64_t done;  /* engine: shm_tagged(operation, chunks it has finished) */
    _Atomic uint32_t wanted;            /* engine: an operation that ranks in hvd_join are to take part in */
    struct tensor_op wanted_op;         /* engine: what it is, as others have said */
    SHM_ALIGNED _Atomic uint32_t
        settled;           /* engine: the last operation it has given a result for (more than one host) */
    int32_t status;        /* engine: of that operation, an hvd_status */
    uint64_t due;          /* engine: of that operation, clock_now() when all hosts were known to have it */
    _Atomic uint64_t last; /* order.h: of the team's SHM_DEVICE_NAME: shm_tagged(listed, slot) */
    _Atomic uint64_t next[2]; /* shm_tagged(listed, the slot that follows it) */
    _Atomic uint32_t listed;  /* how often it was put into its team's order, by who did */
    uint32_t
        device; /* engine: of the settled operation: 1: it is on devices, for those without elements too */
    uint32_t known;   /* engine: of that one: 1: all ranks of all hosts say the same of their memory */
    uint64_t host_at; /* engine: shm_address of this host's buffer, more than one host: pipeline.h */
    _Atomic uint32_t host_made;                 /* engine: the operation that host_at belongs to */
    SHM_ALIGNED uint8_t result[SHM_INLINE_MAX]; /* engine: elements, or the sentence when status is not 0 */
    struct shm_member_slot member_slot[];
};

/* Slots, from one that puts them to one that takes them. */
struct shm_ring {
    SHM_ALIGNED _Atomic uint32_t tail;    /* the one that puts: how many it has put */
    SHM_ALIGNED _Atomic uint32_t head;    /* the one that takes: how many it has taken */
    SHM_ALIGNED uint32_t slot[SHM_SLOTS]; /* the one that puts */
};

/* A member's side of the region that has nothing to do with one tensor. */
struct shm_mailbox {
    SHM_ALIGNED _Atomic uint32_t bell;     /* anyone: rung when something may have changed for a sleeper */
    SHM_ALIGNED _Atomic uint32_t sleeping; /* member: how many of its threads sleep or are about to */
    _Atomic uint32_t alarm;                /* anyone: as bell, for the member's thread for devices; */
    _Atomic uint32_t alarm_wanted; /* member: operations on devices are pending, and only that thread looks */
    _Atomic uint32_t left;         /* member: it has left operations that have not ended, without an engine */
    _Atomic uint32_t processor;    /* member: 1 + where it last waited; 0: unknown; relaxed */
    SHM_ALIGNED uint32_t rank;     /* engine: whose this is; ascending */
    struct shm_counts
        counts;             /* member, one of its threads; those in `others`: its other threads, which add */
    struct shm_ring ready;  /* to the engine: slots whose operation is complete here, or lacks joined ranks */
    struct shm_ring wanted; /* of the engine, to a member in hvd_join: slots whose operation it lacks */
    struct shm_ring
        launch; /* to the engine: slots whose operation on a device has its turn (device_call.h) */
};

/* Each host has one rank, and the ranks may have connections; the other ranks have theirs, or will soon. */
enum shm_rank_link { SHM_RANK_LINK_NONE, SHM_RANK_LINK_MAY, SHM_RANK_LINK_UP };

struct shm_header {
    uint64_t magic;
    uint32_t version, epoch;
    uint32_t slots, members;
    uint32_t hosts;         /* of the job; with one, ranks finish operations among themselves */
    uint32_t size;          /* ranks of the job */
    uint32_t workers;       /* numbers at the end of the region: `size`, or 0 in a job that is not elastic */
    uint32_t devices;       /* engine: 1 when operations on devices are to be run by it */
    uint32_t fuse;          /* bytes of small tensors on devices that are to be packed at once; 0: none */
    uint32_t connect_ms;    /* how long NCCL may take to connect ranks */
    uint32_t requires_nccl; /* 1: the job ends where NCCL cannot be used */
    _Atomic uint32_t rank_link; /* engine: enum shm_rank_link; relaxed */
    uint64_t stream_least; /* bytes of a tensor from which on an operation between hosts may be streamed */
    SHM_ALIGNED _Atomic uint32_t poisoned; /* engine: 1 when the job has failed, after the two fields below */
    _Atomic uint32_t joined;          /* engine: members that are in hvd_join; beside what every call reads */
    _Atomic uint32_t next_membership; /* engine: the number of the membership that comes next; 0: none */
    _Atomic uint32_t wanting;       /* engine: how often it has asked the members for idle slots; likewise */
    int32_t poison_status;          /* engine: an hvd_status */
    char poison_text[SHM_TEXT_MAX]; /* engine: the sentence */
    SHM_ALIGNED _Atomic uint32_t beat;            /* engine: changes while it lives */
    SHM_ALIGNED _Atomic uint32_t engine_sleeping; /* engine: a kick is needed */
    _Atomic int32_t engine_processor;             /* engine: where it ran last; relaxed */
};

static inline uint64_t shm_tagged(uint32_t operation, uint32_t count)
{
    return (uint64_t)operation << 32 | count;
}

/* A tensor segment and an offset in it. */
#define SHM_OFFSET_BITS 48
static inline uint64_t shm_address(uint32_t segment, uint64_t offset)
{
    return (uint64_t)segment << SHM_OFFSET_BITS | offset;
}

static inline uint32_t shm_address_segment(uint64_t address)
{
    return (uint32_t)(address >> SHM_OFFSET_BITS);
}

static inline uint64_t shm_address_offset(uint64_t address)
{
    return address & ((1ull << SHM_OFFSET_BITS) - 1);
}
