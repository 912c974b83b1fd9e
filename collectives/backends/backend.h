/* Backends: what moves data between the hosts of a job. One interface; tcp is the first.
 *
 * An operation is of some of the job's hosts, its participants, and starts when its turn on their execution
 * list has come: it has the same (set, sequence), in the same order within the set, on each of them. It works
 * on buffers of which a host has one, whatever its ranks: in goes what this host's ranks reduced to or
 * gathered, out comes what concerns this host of the result over all. Nothing blocks: progress happens in
 * links_progress (and whatever else a backend hangs on the engine's loop), and `done` is called from there.
 *
 *   kind            data                                      part (elements)      in the end
 *   ALLREDUCE       this host's contribution                  -                    the reduction
 *   BROADCAST       root's elements                           -                    the root's
 *   BARRIER         -                                         -                    -
 *   ALLGATHER       all parts in host order, mine filled in   of each host         all parts
 *   REDUCESCATTER   all parts in host order, all filled in    for each host        in my part the reduction
 *   ALLTOALL        what I send, in host order                of mine to each      in `out` what I got
 *
 * An alltoall's part_in is what each host has for me; `out` is in host order, too.
 *
 * Several operations of a set may be in flight; start them in the same order on every host, and wait for one
 * before more than BACKEND_IN_FLIGHT_MAX are. Sets progress independently. A lost host ends every operation
 * in flight with that error, and every later one at start. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"
#include "common/base/err.h"

#define BACKEND_IN_FLIGHT_MAX 16

/* Bytes of one frame: of data that may come before its operation begins, and of any other. */
#ifndef BACKEND_EAGER_MAX
#define BACKEND_EAGER_MAX (1024u << 10)
#endif
#define BACKEND_PIECE_MAX (1u << 20)

/* Limits of the word that names an operation between hosts. */
#define BACKEND_SET_MAX      ((1u << 24) - 1)
#define BACKEND_SEQUENCE_MAX ((1ull << 40) - 1)

enum backend_kind {
    BACKEND_ALLREDUCE = 1,
    BACKEND_BROADCAST = 2,
    BACKEND_BARRIER = 3,
    BACKEND_ALLGATHER = 4,
    BACKEND_REDUCESCATTER = 5,
    BACKEND_ALLTOALL = 6
};

struct backend_request {
    enum backend_kind kind;
    uint32_t set;
    uint64_t sequence; /* grows within the set, from 1 */
    /* The participants, as indexes of the job's hosts, ascending, this one among them; NULL: all. "Host
     * order" is theirs. Read at start only, like the parts. */
    const uint32_t *host;
    uint32_t hosts;
    void *data;     /* valid and the backend's until done(); 64-byte alignment is faster */
    void *out;      /* alltoall; a reduction whose result is rounded */
    uint64_t count; /* elements; allreduce and broadcast (for the others the parts say it) */
    const uint64_t *part, *part_in;
    hvd_dtype dtype;
    /* Not 0: the result of a reduction of HVD_FLOAT32 is rounded to this 16-bit type and written to `out`.
     * Each element has the same index there as in `data`, and `data` then has no result. */
    hvd_dtype rounded;
    hvd_op op; /* allreduce, reducescatter; HVD_AVERAGE divides by divisor after the sum */
    uint32_t divisor;
    double postscale; /* of a reduction's result; 0 or 1: none */
    /* Sizes of the transfer, the same on every participant. 0: as the backend's configuration says. The bits
     * of the result do not depend on them. */
    uint32_t eager_bytes; /* up to this size data is sent without a grant; at most BACKEND_EAGER_MAX */
    uint32_t piece_bytes; /* of the largest piece: a power of two from 64 on, at most BACKEND_PIECE_MAX */
    bool fit_packets;     /* pieces are cut somewhat smaller, so that a network device sends them at once */
    uint32_t root;        /* broadcast: a participant, by its index in the job */
    /* Optional: how many bytes of data, from its beginning, this host has filled in so far. When there are
     * more, the owner calls `more`. Only for an allreduce of more than BACKEND_EAGER_MAX bytes. */
    uint64_t (*packed)(void *ctx);
    /* Optional: bytes [offset, offset + size) of the result are final. The result is `out` for an alltoall
     * and a rounded reduction, else `data`. Each byte is reported once, in any order, before done. */
    void (*range)(void *ctx, uint64_t offset, uint64_t size);
    /* error NULL: the result is complete, and the owner may change `data` again. */
    void (*done)(void *ctx, const struct err *error);
    void *ctx;
};

struct backend;

struct backend_ops {
    const char *name;
    /* The request is copied. -1 with *e: not started, done will not be called. done may be called before
     * start returns (one host). */
    int (*start)(struct backend *backend, const struct backend_request *request, struct err *e);
    /* `packed` of that operation, which is in flight, has grown. done may be called before this returns. */
    void (*more)(struct backend *backend, uint32_t set, uint64_t sequence);
    /* Nothing of the set is in flight. Another set may use the number; its operations count anew. */
    void (*forget_set)(struct backend *backend, uint32_t set);
    /* Ends everything in flight with done(error), and refuses what comes later. */
    void (*fail)(struct backend *backend, const struct err *error);
    void (*free)(struct backend *backend);
};

struct backend {
    const struct backend_ops *ops;
};
