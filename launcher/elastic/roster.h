/* The workers of an elastic job by number, and those of them that are ranks. Pure.
 *
 * A worker STARTS, is READY when it waits in hvd_init for its first membership, is a MEMBER from then on, and
 * GONE at its end. A membership is a list of workers by rank. The next one has the members that stay, in the
 * order of their ranks, then workers that are ready, host by host: Horovod's rule, by which rank 0 has the
 * state that newcomers need. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum roster_phase { ROSTER_STARTS, ROSTER_READY, ROSTER_MEMBER, ROSTER_GONE };

struct roster_worker {
    enum roster_phase phase;
    uint32_t host, slot; /* host: index in the plan */
    uint32_t waits;      /* the membership that it has left, and waits for the next; 0: it does not wait */
    bool arrived;        /* in hvd_init, which has not returned */
    bool entered;        /* the newest membership */
    bool trained;        /* it has entered one */
    bool first;          /* it was there at the start */
    bool leaves;         /* its host is not wanted any more, or it is too much */
    bool failed;         /* GONE: not as a rank that has done its work */
};

struct roster {
    struct roster_worker *worker; /* by number; room for `room` */
    uint32_t count, room;
    uint32_t number; /* of the newest membership; 0: none */
    uint32_t *rank;  /* the workers of the newest membership, by rank */
    uint32_t size;
};

/* -1: no memory. */
int roster_init(struct roster *r, uint32_t room);
void roster_free(struct roster *r);
/* The number of a new worker; UINT32_MAX: there is no room. */
uint32_t roster_add(struct roster *r, uint32_t host, uint32_t slot);
/* The first membership has all workers. -1: no memory. */
int roster_begin(struct roster *r);

/* Members that live and stay; workers that are ready; workers that live and stay, in whatever phase. */
uint32_t roster_staying(const struct roster *r);
uint32_t roster_ready(const struct roster *r);
uint32_t roster_starting(const struct roster *r); /* and will be ready */
uint32_t roster_living(const struct roster *r);
/* A member that lives and stays has the state of the training, as far as memberships tell. */
bool roster_has_state(const struct roster *r);
/* A member that lives has it, even if it is to leave. */
bool roster_has_holder(const struct roster *r);
/* A member of the newest membership has gone. */
bool roster_is_broken(const struct roster *r);
/* A member is to leave. */
bool roster_has_leavers(const struct roster *r);
/* All of the newest membership have entered. */
bool roster_is_settled(const struct roster *r);
/* All members that live have left the newest membership in good order, and wait. */
bool roster_all_wait(const struct roster *r);
/* The worker has not come to the newest membership: neither is it a rank there, nor does it wait. When others
 * are ranks there already, one that waits is late, too: it is stopped in the call. */
bool roster_is_late(const struct roster *r, uint32_t worker);
/* A rank has done its work: is this worker of no use any more? It came later and never was a rank, or it
 * waits for a membership, as all others that live do. */
bool roster_is_needless(const struct roster *r, uint32_t worker);
/* Is the slot of that host some living worker's? */
bool roster_slot_is_taken(const struct roster *r, uint32_t host, uint32_t slot);
/* The worker has entered a membership. */
void roster_enter(struct roster *r, uint32_t worker, uint32_t membership);
/* The worker has left that membership, 0: none, and waits for the next one. */
void roster_wait(struct roster *r, uint32_t worker, uint32_t left);
/* Makes the next membership, of at most `most` ranks. When all that have the state are to leave, the first of
 * them is rank 0 once more, even beyond `most`: the others get the state from it. -1: no memory. */
int roster_advance(struct roster *r, uint32_t most);
/* The worker's rank in the newest membership; UINT32_MAX: none. */
uint32_t roster_rank_of(const struct roster *r, uint32_t worker);
