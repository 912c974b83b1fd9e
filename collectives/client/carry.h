/* Process sets over a change of the ranks (hvd_reset in an elastic job). api/agree_sets.c has the story. */
#pragma once

#include "collectives/client/core.h"

/* A set of a former membership. Workers are numbered for their lives, ranks for a membership. */
struct carried {
    uint64_t key;        /* of hvd_set_open: not 0, the same on all of its ranks; else 0 */
    char *name;          /* likewise; else NULL */
    bool over;           /* it has no ranks in the present membership, or not all that are left have it */
    uint32_t membership; /* of the ranks below */
    uint32_t n;
    uint32_t *worker; /* [n] */
    uint32_t rank[];  /* [n], ascending; then the workers */
};

/* Takes the numbers of the present workers from the region. A status, after fail(). */
int carry_meet(void);
/* The set is to be had in the next membership. Without memory it is not. */
void carry_save(hvd_set set, const struct team *team, const char *name);
/* NULL: no memory, after fail(). Freed by carry_put, or by carry_drop if it was put. */
struct carried *carry_new(uint32_t n, uint32_t membership);
void carry_put(hvd_set set, struct carried *c);
struct carried *carry_find(hvd_set set);
void carry_drop(hvd_set set);
void carry_drop_all(void);
/* Writes the present ranks of the set's workers, ascending; returns their number. */
uint32_t carry_ranks(const struct carried *c, uint32_t *rank);
/* There is no such set: fails with a sentence about what it was. */
int carry_refuse(hvd_set set);
/* Beside the sets of hvd_set_add. */
struct carry_count {
    uint32_t calls; /* of hvd_set_add and hvd_set_remove that all ranks have agreed about, since hvd_init */
    uint32_t next;  /* the next id, when this rank left the membership before */
};
struct carry_count *carry_count(void);
static inline bool carry_is_over(hvd_set set)
{
    const struct carried *c = carry_find(set);
    return c && c->over;
}

/* ---- api/agree_sets.c ---------------------------------------------------------------------------------- */

/* An operation of all ranks, on uint64_t. `what` has its kind, op, root and count. A status, after fail(). */
int sets_exchange(const struct tensor_op *what, const void *in, void *out, uint64_t capacity);
/* In hvd_init: the ranks agree about the sets of the membership before. A status, after fail(). */
int sets_agree(void);
