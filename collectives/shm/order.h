/* The order in which a team's operations on devices are begun, the same at all of its ranks.
 *
 * Devices want all ranks to begin what they do together in one order, and a rank's calls come in any. So an
 * operation is put at the end of a list when it is complete: of a team that is all here by the member that
 * came last (order_claim: by one of them, if two did), else by the engine, when the execution list names it.
 * Every member begins what is on the list, one after the other.
 *
 * The list goes through the slots: each has a word that says which one follows. `last` of the slot of
 * SHM_DEVICE_NAME says where its end is, and who puts a slot there exchanges that word, then writes the link
 * of the one before. The same slot may be on the list twice, never three times: its next operation is
 * complete when all members have begun this one, but the link behind this one may still be read. So there are
 * two links, used in turns, and both are tagged with how often the slot had been put there: not with the
 * operation, since one that disagrees, or is in host memory, may lie between two that are on the list. Memory
 * of zeros is an empty list.
 *
 * An operation about which ranks disagree is on no list: each rank finds the disagreement itself. */
#pragma once

#include "collectives/shm/region.h"

/* How far a member is: the last one it has taken. */
struct order {
    uint32_t head;       /* the slot of SHM_DEVICE_NAME */
    uint32_t slot, time; /* the slot's first, second, ... */
};

/* Nothing was taken. */
struct order order_start(uint32_t head);
/* Member: all have arrived at the operation and agree. true, for one of those who ask: it is to append it. */
bool order_claim(const struct region *r, uint32_t slot, uint32_t operation);
/* To the end of the list. false: the region holds what cannot be. */
bool order_append(const struct region *r, uint32_t head, uint32_t slot);
/* 1: *slot comes next; 0: nothing does yet; -1: the region holds what cannot be. */
int order_next(const struct order *o, const struct region *r, uint32_t *slot);
/* It is taken: of this slot so many, which the member counts. */
void order_take(struct order *o, uint32_t slot, uint32_t time);
