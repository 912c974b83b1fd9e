/* The workers of this host: their connections and their processes (workers.c), their questions
 * (questions.c). */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/shm/worker_socket.h"

#define ENGINE_STRANGERS_MAX 64u /* connections beyond one for each rank of this host */
#define ENGINE_CAUSE_WAIT_MS 20  /* how long a dead process's cause is waited for */
#define WORKER_STRANGER      UINT32_MAX

/* A connection on the worker socket; after its hello it is a member's. */
struct worker {
    struct watch watch; /* first: the loop's pointer is ours */
    struct worker_reader reader;
    uint32_t member; /* or WORKER_STRANGER */
    /* Elastic jobs: its hello has no answer before the next membership. */
    bool waits;
    bool former;     /* it was a member's of a former membership: the worker may still say that it leaves */
    uint32_t number; /* of the worker */
    uint32_t left;   /* the membership that it was in; 0: none */
};

/* A rank of this host, by local rank. */
struct member {
    struct watch pidfd; /* first */
    struct worker *worker;
    uint32_t pid;
    bool joined, shut_down;
    bool joining;     /* it is in hvd_join */
    uint32_t epoch;   /* that it has joined last */
    uint32_t forgot;  /* the header's `wanting` that it has answered last */
    uint64_t dead_at; /* its process has ended; poison then, or when the session tells the cause; 0: alive */
};

struct workers {
    struct watch listener;
    uint8_t *token; /* WORKER_TOKEN_SIZE secret bytes */
    uint32_t members;
    struct member *member;
    struct worker *connection; /* [connections]: members and strangers */
    uint32_t connections;
    uint32_t gone_rank; /* one that has ended, in whatever way; UINT32_MAX: none */
};

extern const struct engine_part workers_part, questions_part;

/* All ranks of this host have called hvd_shutdown in this epoch. */
bool workers_have_left(const struct engine *engine);
/* The process is the member's from now on. -1: it cannot be watched. */
int workers_watch_process(struct engine *engine, struct member *m, int pidfd, uint32_t pid, struct err *e);
/* To a member whose question could not be answered at once. */
void workers_answer_later(struct engine *engine, uint32_t member, const struct worker_message *answer);
/* Closes the connection. */
void workers_drop(struct engine *engine, struct worker *w);
/* The session says that a rank (of any host) has ended. */
void workers_rank_ended(struct engine *engine, const Hvd__RankEnded *ended);

/* questions.c: the listener has connections. */
void workers_accept(struct engine *engine, struct watch *watch, uint32_t events);
