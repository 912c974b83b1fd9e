/* Memberships of an elastic job: epochs with other ranks.
 *
 * The launcher names the next membership; its session brings it here. A membership that is `at_once` ends the
 * present one: the region is poisoned, so every call ends with HVD_ERR_PEER. Any other waits until the ranks
 * have called hvd_shutdown; the header says that it is there (hvd_membership_changed). A later membership
 * replaces one that waits. The next membership begins when the present one has failed or is over:
 *
 *   epoch_end of every part; the table of hosts; regroup of every part; a new region; epoch_begin;
 *   links to new hosts; then the workers that wait in hvd_init are seated (questions.c)
 *
 * Links to hosts that stay are kept (links_regroup). A fence on each link tells where the new epoch begins.
 * It goes before the first message of the epoch on that link, so that an engine sends no more fences than it
 * has engines beside it in the tree. Messages before the fence are thrown away; messages of a later epoch
 * wait (peers.c).
 *
 * A host without ranks in the present membership has an epoch that no worker is in (host_table_alone). So has
 * the engine of a newcomer before its first membership. */
#pragma once

#include "collectives/engine/core.h"

struct memberships {
    bool alone;               /* this host has no ranks in the present membership */
    uint32_t first;           /* the number with which this engine began */
    uint32_t newest;          /* number that was taken, and may wait */
    Hvd__Membership *waiting; /* NULL: none */
    bool seats;               /* workers that wait may be seated now */
};

extern const struct engine_part membership_part;

/* The job is elastic. `newcomer`: this host has no membership yet. -1: no memory. */
int membership_open(struct engine *engine, bool newcomer);
/* From the session. -1 with *e: it cannot be right. */
int membership_take(struct engine *engine, const Hvd__Membership *m, struct err *e);
