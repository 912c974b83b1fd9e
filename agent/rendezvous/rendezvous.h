/* Programs that know nothing of hvdrun find each other by rendezvous methods: one for each library.
 *
 *   worker --- its library's protocol ---> method (pmix, pmi1, gloo) --- tree.h ---> other sessions
 *
 * Before the workers start, every method that the job asks for opens its listener (a loopback port without a
 * server) and says what the workers' environment must name; worker_env.c holds the table of the variables.
 * The server behind a listener is made when the first worker connects, so a job that needs no rendezvous pays
 * for some bind(2) only. A faulty client loses its call or connection, and the job goes on.
 *
 * All on the session's loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/tree/tree.h"
#include "common/protocol/contracts.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

#define RENDEZVOUS_METHODS  3
#define RENDEZVOUS_SAID_MAX (16u << 10)

struct rendezvous_events {
    /* A sentence for the user; `level` as in common/base/log.h. */
    void (*notice)(void *ctx, uint32_t level, const char *text);
    /* A rank of this host asks for the end of the whole job with this exit status, as MPI_Abort does. Also
     * within rank_ended of that rank, when it left things undone: an exit status 0 becomes this one then.
     * `time`: of the call, by clock_now(). */
    void (*abort)(void *ctx, uint32_t rank, uint32_t status, const char *text, uint64_t time);
    /* A signal for a rank of this host and its children, in the name of another rank. */
    void (*signal)(void *ctx, uint32_t rank, int number);
    /* A rank of this host has something to say to the user, by its library; RENDEZVOUS_SAID_MAX at most. */
    void (*said)(void *ctx, uint32_t rank, bool to_stdout, const char *text, size_t len);
    /* A server of ours that ranks may need has failed: the sentence says which and how. */
    void (*failed)(void *ctx, const char *text);
};

/* Values for the workers' variables: filled by the methods' open, and by the session (interfaces). Empty or 0
 * without the method. */
struct rendezvous_values {
    char **pmix;       /* NAME=value for all ranks alike, NULL at the end; NULL: there is no PMIx */
    char pmi_port[32]; /* "127.0.0.1:port" */
    uint16_t gloo_port;
    char interface[64]; /* of the address that the launcher reaches, or of the first; on one host alone lo */
    char chosen_interfaces[256]; /* of all its addresses, if --network-interfaces says which */
    bool crowded;                /* ranks of this host share processors (agent/worker/processors.h) */
    /* By local rank: the processors that it is bound to, as "0-3"; "": it is not. NULL: no rank is bound. */
    char **bound;
};

/* The job, for the methods; all of it outlives them. */
struct rendezvous {
    uv_loop_t *loop;
    const Hvd__Spawn *spawn; /* plan, this host's workers, contracts */
    const char *job;         /* unguessable name */
    const char *host;        /* our name */
    const char *const *wdir; /* of the workers, by program; NULL: none of it is here */
    const char *directory;   /* the job's own, 0700; removed with all that is in it */
    struct tree *tree;
    struct pmix_host *pmix; /* all zeros; whoever reaps children tells it */
    int cgroup_fd;          /* of the job, for servers of ours; -1: none */
    uint32_t silence_ms;    /* a server that says nothing for so long is taken for dead */
    const struct rendezvous_events *events;
    void *ctx;
    struct rendezvous_values values; /* empty, but for what is the session's */
    char **end; /* [spawn->size]: why a rank has ended ("exit status 0", ...), NULL: it has not */
    void *state[RENDEZVOUS_METHODS];
};

/* One method. `bit` is its number in Spawn.contracts. */
struct rendezvous_method {
    enum contract bit;
    /* Opens the listener and fills in the values. NULL with *e: the job cannot start. */
    void *(*open)(struct rendezvous *r, struct err *e);
    /* A rank of any host has ended: operations that wait for it end with an error. r->end[rank] says why. */
    void (*rank_ended)(void *state, uint32_t rank);
    /* Closes everything; the handles are closed when the loop has run again. `state` is freed then or now. */
    void (*close)(void *state);
};

extern const struct rendezvous_method rendezvous_pmix, rendezvous_pmi1, rendezvous_gloo;

/* Opens the methods that r->spawn asks for. The fields above `values` are the caller's. -1 with *e, after
 * which rendezvous_close is due as well. */
int rendezvous_open(struct rendezvous *r, struct err *e);
void rendezvous_rank_ended(struct rendezvous *r, uint32_t rank, const char *how);
void rendezvous_close(struct rendezvous *r);

/* Does a program of this host's workers look so to `detect` (detect.h)? */
bool rendezvous_detects(const struct rendezvous *r,
                        bool (*detect)(char *const *argv, const char *search, const char *wdir));

/* ---- the plan, for the methods ------------------------------------------------------------------------- */
/* The host of a rank below spawn->size. */
uint32_t rendezvous_host_of(const struct rendezvous *r, uint32_t rank);
