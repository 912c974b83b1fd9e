/* PMI-1, the protocol of MPICH and its descendants, for the ranks of this host. Calls go down this list:
 *
 *   pmi1.c          the rendezvous method: listener, ranks that end, requests of other sessions
 *   pmi1_command.c  the table of commands, by phase
 *   pmi1_barrier.c  the barrier over all hosts, which carries the puts since the barrier before
 *   pmi1_names.c    published names
 *   pmi1_client.c   a connection: bytes into lines, answers out, the rank of the client
 *
 * A client connects to PMI_PORT and says "cmd=initack pmiid=RANK" (PMI_ID). From then on the connection is
 * that rank's, and no other process can be that rank while the connection lives. A rank may be several
 * clients one after another: programs that a script runs in a row. A put is visible on this host at once, on
 * other hosts after the next barrier. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/rendezvous/lazy_listener.h"
#include "agent/rendezvous/pmi1/pmi1_message.h"
#include "agent/rendezvous/pmi1/pmi1_store.h"
#include "agent/rendezvous/rendezvous.h"
#include "common/base/buf.h"
#include "common/protocol/host_ranks.h"
#include "common/net/stream.h"

#define PMI1_STORE_MAX   (64u << 20) /* keys and values of a job; published names have as much */
#define PMI1_OUT_MAX     (64u << 10) /* answers that a client does not read */
#define PMI1_LEFT_MS     1000        /* for the process of a rank that has left MPI to end by itself */
#define PMI1_NOTICES_MAX 16          /* about faulty clients: a client in a loop must not fill the terminal */

enum pmi1_phase {
    PMI1_UNIDENTIFIED, /* has not named its rank */
    PMI1_BOUND,        /* is a rank */
    PMI1_READY,        /* and has said cmd=init */
    PMI1_FINAL         /* has said cmd=finalize */
};

struct pmi1_client {
    struct pmi1_client *next;
    struct pmi1 *p;
    struct stream stream;
    enum pmi1_phase phase;
    uint32_t rank;
    bool waiting;       /* in the barrier */
    bool spawning;      /* within the lines of mcmd=spawn */
    bool spawn_ends;    /* this is the last command of mcmd=spawn */
    char total[12];     /* number of these commands, as the client said it */
    const void *asking; /* the question about a name that another host will answer; NULL: none */
    bool closing;
    struct buf out;
    size_t len;
    char line[PMI1_LINE_MAX];
};

/* pmi1_client.c calls these functions of the files above it. */
struct pmi1_client_events {
    /* A line of `len` bytes without its newline; line[len] is writable. */
    void (*line)(struct pmi1_client *c, char *line, size_t len);
    /* The client is no longer in the list, and will be freed. */
    void (*closed)(struct pmi1_client *c);
};

struct pmi1_barrier {
    size_t waiting;  /* clients */
    uint64_t joined; /* gathers up to now */
    bool pending;    /* the last gather is under way */
    struct buf puts; /* records since the last barrier */
    char *broken;    /* the reason why there can be no barrier any more; NULL: there can */
    bool linked;     /* the links were asked for */
    bool said;       /* the user knows which rank has ended */
    uint64_t *asked; /* [hosts]: the barrier about which that host was asked, + 1 */
};

struct pmi1 {
    struct rendezvous *r;
    struct lazy_listener listener;
    struct pmi1_client *client;
    size_t clients;
    const struct pmi1_client_events *client_events;
    struct pmi1_store store; /* the job's keys that are known here */
    struct pmi1_store names; /* published names that are kept here */
    struct pmi1_barrier barrier;
    bool any_ended; /* a rank of any host */
    bool *left;     /* [n_worker]: a program of that rank has left MPI without cmd=finalize */
    unsigned notices;
    uv_timer_t left_timer; /* of ranks that have left MPI; the end of its handle is the end of *p */
};

/* ---- pmi1_client.c ------------------------------------------------------------------------------------- */
bool pmi1_is_here(const struct pmi1 *p, uint32_t rank);
const Hvd__HostRanks *pmi1_here(const struct pmi1 *p);
/* To the user, as often as PMI1_NOTICES_MAX. */
void pmi1_notice(struct pmi1 *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Takes the descriptor. */
void pmi1_client_new(struct pmi1 *p, int fd);
/* The client that is this rank now; NULL: none, or it has said cmd=finalize. */
struct pmi1_client *pmi1_client_of(struct pmi1 *p, uint32_t rank);
/* A line, without its newline. A client that does not read its answers is closed. */
void pmi1_answer(struct pmi1_client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "rc=-1" with the reason. */
void pmi1_refuse(struct pmi1_client *c, const char *answer, const char *why);
void pmi1_client_close(struct pmi1_client *c);

/* ---- pmi1_command.c ------------------------------------------------------------------------------------ */
/* A line of `len` bytes without its newline; line[len] is writable. */
void pmi1_command(struct pmi1_client *c, char *line, size_t len);

/* ---- pmi1_barrier.c ------------------------------------------------------------------------------------ */
int pmi1_barrier_init(struct pmi1 *p, struct err *e);
void pmi1_barrier_free(struct pmi1 *p);
void pmi1_barrier_enter(struct pmi1_client *c);
/* The client was closed. */
void pmi1_barrier_leave(struct pmi1_client *c);
void pmi1_barrier_rank_ended(struct pmi1 *p);
/* Adds a record to the next barrier. -1 with *e: too many bytes since the last barrier. */
int pmi1_barrier_put(struct pmi1 *p, const char *key, const char *value, struct err *e);
/* Another host asks whether this one will bring its part of barrier `round`. -1 with *e: never. */
int pmi1_barrier_check(struct pmi1 *p, uint64_t round, struct err *e);

/* ---- pmi1_names.c -------------------------------------------------------------------------------------- */
void pmi1_publish(struct pmi1_client *c, const struct pmi1_message *m);
void pmi1_unpublish(struct pmi1_client *c, const struct pmi1_message *m);
void pmi1_lookup(struct pmi1_client *c, const struct pmi1_message *m);
/* Requests to other hosts begin with one of these. */
enum pmi1_request { PMI1_ASK_BARRIER = 1, PMI1_ASK_PUBLISH, PMI1_ASK_UNPUBLISH, PMI1_ASK_LOOKUP };
/* One of the last three, from another host or from this one: 0 and, of a look-up, the port; -1 with *e. */
int pmi1_names_serve(struct pmi1 *p, enum pmi1_request request, const char *service, const char *port,
                     const char **found, struct err *e);
