/* Backends: what moves data between the hosts of a job. One interface; tcp is the first.
 *
 * An operation starts when its entry of the execution list is due: it has the same number, in the same order,
 * on every host. It works in place on one buffer per host: in goes what this host's ranks reduced to, out
 * comes the result over all hosts. Nothing blocks: progress happens in links_progress (and whatever else a
 * backend hangs on the engine's loop), and `done` is called from there.
 *
 * Several operations may be in flight; start them in list order on every host, and wait for the oldest before
 * more than BACKEND_IN_FLIGHT_MAX are. A lost host ends every operation in flight with that error, and every
 * later one at start. */
#ifndef HVD_BACKENDS_BACKEND_H
#define HVD_BACKENDS_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"
#include "common/err.h"

#define BACKEND_IN_FLIGHT_MAX 4

enum backend_kind { BACKEND_ALLREDUCE = 1, BACKEND_BROADCAST = 2, BACKEND_BARRIER = 3 };

struct backend_request {
    enum backend_kind kind;
    uint64_t sequence; /* number on the execution list */
    void *data;        /* valid and the backend's until done(); 64-byte alignment is faster */
    uint64_t count;    /* elements */
    hvd_dtype dtype;
    hvd_op op; /* allreduce; HVD_AVERAGE divides by divisor after the sum */
    uint32_t divisor;
    uint32_t root; /* broadcast: host index */
    /* Optional: bytes [offset, offset + size) of data are final. Each byte once, in any order, before done.
     */
    void (*range)(void *ctx, uint64_t offset, uint64_t size);
    /* error NULL: the result is complete and data the owner's again. */
    void (*done)(void *ctx, const struct err *error);
    void *ctx;
};

struct backend;

struct backend_ops {
    const char *name;
    /* The request is copied. -1 with *e: not started, done will not be called. done may be called before
     * start returns (one host). */
    int (*start)(struct backend *backend, const struct backend_request *request, struct err *e);
    /* Ends everything in flight with done(error), and refuses what comes later. */
    void (*fail)(struct backend *backend, const struct err *error);
    void (*free)(struct backend *backend);
};

struct backend {
    const struct backend_ops *ops;
};

#endif
