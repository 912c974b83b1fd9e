/* The flight recorder of a job on one host: the last operations of each worker, in memory that outlives the
 * workers and the engine.
 *
 *   header | the names of the region's slots | two rings for each worker, and for the engine
 *
 * The session makes the memory and reads it. The engine gives each worker its rings, writes the names, and
 * records operations between hosts, from the moment when all hosts have them. A worker writes its rings: the
 * first from one of its threads, the second from all others. An operation takes one line of memory, which is
 * written twice: when the operation begins, and when it ends.
 *
 * Everything in the memory may be garbage for a reader, which copies a record, and drops the copy if the
 * record was written meanwhile. A slot serves one name after the other: a record that began before its slot
 * got the present name has no name. The descriptor is sealed: nobody can make the memory smaller. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/base/err.h"

#define FLIGHT_WORKERS 1024u
#define FLIGHT_ENGINE  FLIGHT_WORKERS /* the number of the engine's rings */
#define FLIGHT_NO_RANK UINT32_MAX     /* its rank */
#define FLIGHT_RINGS   2u             /* of a worker */
#define FLIGHT_RECORDS 256u           /* of a ring; a power of two */
/* Records of a worker. */
#define FLIGHT_EACH_MAX ((size_t)FLIGHT_RINGS * FLIGHT_RECORDS)
#define FLIGHT_SLOTS    16384u
#define FLIGHT_NAME_MAX 255u
#define FLIGHT_WORDS    16u /* kinds of operations, types of elements */
#define FLIGHT_WORD_MAX 19u

/* Status of a record whose operation has not ended. Those of hvd.h are 0 and below. */
#define FLIGHT_PENDING 1

struct flight_record {
    _Alignas(64) _Atomic uint32_t number; /* of the ring's operations, from 1; 0: nothing else here holds */
    uint32_t slot;
    int32_t set;
    uint8_t kind, type;
    uint32_t operation;     /* of the tensor: all ranks count alike */
    uint64_t count, bytes;  /* elements, and the bytes that this rank gives */
    uint64_t began;         /* flight_ticks() */
    _Atomic uint64_t ended; /* likewise, written before */
    _Atomic int32_t status; /* FLIGHT_PENDING, or an hvd_status */
};
_Static_assert(sizeof(struct flight_record) == 64, "a record is a line");

struct flight_ring {
    _Alignas(64) _Atomic uint32_t operations; /* that have begun */
    _Atomic uint32_t pid, rank;               /* of the worker; pid 0: the ring is nobody's */
    struct flight_record record[FLIGHT_RECORDS];
};

struct flight_memory;

/* A mapping. */
struct flight {
    struct flight_memory *memory; /* NULL: there is none */
};

/* The processor's counter of time: a few instructions, where the kernel's clock costs as much as a small
 * operation. */
static inline uint64_t flight_ticks(void)
{
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#elif defined __aarch64__
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return clock_now();
#endif
}

/* Between two writes, or two reads, of a record. ThreadSanitizer knows no fences; no test of it has a reader
 * beside a writer. */
static inline void flight_fence(void)
{
#ifndef __SANITIZE_THREAD__
    atomic_thread_fence(memory_order_acq_rel);
#endif
}

/* An operation, as its record has it. */
struct flight_what {
    uint32_t slot, operation;
    int32_t set;
    uint8_t kind, type;
    uint64_t count, bytes;
};

/* The ring's `number`th operation begins in its record. */
static inline void flight_write_begin(struct flight_record *r, uint32_t number, struct flight_what w)
{
    atomic_store_explicit(&r->number, 0, memory_order_relaxed);
    flight_fence();
    r->slot = w.slot;
    r->operation = w.operation;
    r->set = w.set;
    r->kind = w.kind;
    r->type = w.type;
    r->count = w.count;
    r->bytes = w.bytes;
    r->began = flight_ticks();
    atomic_store_explicit(&r->status, FLIGHT_PENDING, memory_order_relaxed);
    atomic_store_explicit(&r->number, number, memory_order_release);
}

/* It has ended. So many others may have begun meanwhile that the record is theirs. `r` may be NULL. */
static inline void flight_write_end(struct flight_record *r, uint32_t number, int32_t status)
{
    if (__builtin_expect(!r || atomic_load_explicit(&r->number, memory_order_relaxed) != number, 0))
        return;
    atomic_store_explicit(&r->ended, flight_ticks(), memory_order_relaxed);
    atomic_store_explicit(&r->status, status, memory_order_release);
}

/* Makes the memory, maps it and returns the sealed descriptor (the caller's; close-on-exec). -1 with *e. */
int flight_create(struct flight *f, struct err *e);
/* Maps memory that came from elsewhere, after checking seals, size and version. The descriptor stays the
 * caller's. -1 with *e. */
int flight_map(struct flight *f, int fd, struct err *e);
void flight_unmap(struct flight *f);

/* The engine's words. Names longer than FLIGHT_NAME_MAX or FLIGHT_WORD_MAX bytes are cut. */
void flight_set_kind(struct flight *f, uint32_t kind, const char *name);
void flight_set_type(struct flight *f, uint32_t type, const char *name);
void flight_set_name(struct flight *f, uint32_t slot, const char *name);

/* The rings of one worker: [FLIGHT_RINGS]. worker < FLIGHT_WORKERS, or FLIGHT_ENGINE. */
struct flight_ring *flight_rings(const struct flight *f, uint32_t worker);

/* An operation as it was when flight_read copied it. Times are those of clock_now(). */
struct flight_operation {
    uint32_t ring, number, operation;
    int32_t set, status;
    uint64_t count, bytes;
    uint64_t began, ended;          /* ended 0: it has not */
    char name[FLIGHT_NAME_MAX + 1]; /* empty: its name was forgotten */
    char kind[FLIGHT_WORD_MAX + 1], type[FLIGHT_WORD_MAX + 1];
};

struct flight_worker {
    uint32_t rank, pid;
    uint64_t operations; /* that have begun; the last of them are told */
};

/* Copies the last operations of a worker, `most` at most, in the order of their beginnings. Returns how many;
 * SIZE_MAX: there is no such worker. */
size_t flight_read(const struct flight *f, uint32_t worker, struct flight_worker *who,
                   struct flight_operation *out, size_t most);

/* The beginning of an operation of all ranks (set 0), to compare when the ranks came to it. */
struct flight_beginning {
    uint64_t
        id; /* made of the tensor's name and the operation's number: the same on all ranks of all hosts */
    uint64_t began; /* of clock_now() */
    uint64_t ticks; /* the same, for flight_copy_name */
    uint32_t slot, operation;
};

/* The process that a worker's rings belong to; 0: no such worker has come. */
uint32_t flight_pid(const struct flight *f, uint32_t worker);
/* Copies the beginnings that are newer than the seen[ring]-th of each ring, which is set to the newest. Those
 * without a name are left out. `out` has room for FLIGHT_EACH_MAX. Returns how many. */
size_t flight_read_beginnings(const struct flight *f, uint32_t worker, uint32_t seen[FLIGHT_RINGS],
                              struct flight_beginning *out);
/* The name of the slot for an operation that began then; empty: it was forgotten. [FLIGHT_NAME_MAX + 1] */
void flight_copy_name(const struct flight *f, uint32_t slot, uint64_t ticks, char *to);
