/* Autotune at work: host 0 measures (autotune.h) and decides, every host obeys.
 *
 * Host 0 counts the operations that it settles, in the order of the world's execution list. When other values
 * are wanted, it says so to its children in the tree of hosts (host_tree.h), before it sends them anything
 * that is later on the list, and they do the same: "from entry N on". So every host runs an entry with the
 * same values, whenever it comes to it. Operations of other process sets keep the defaults: their order
 * beside the world's is not the same everywhere.
 *
 * On one host nothing is tuned: how its ranks share memory is a matter of sizes and of placement alone.
 *
 * How much travels as one is decided before the list, so host 0 alone needs to know; --fusion-threshold fixes
 * it.
 *
 * PEER_TUNING message (integers little endian): type 1, pad 1, values 2, epoch 4, entry 8, then the shared
 * values, 4 bytes each, in the order of autotune.h.
 *
 * The log (host 0): a line for each sample, then the values that stay, at hvd_shutdown those that were best.
 * A file that cannot be written is told, and the job goes on without. */
#pragma once

#include "collectives/engine/autotune.h"
#include "collectives/engine/engine.h"

struct run;

extern const struct engine_part tuning_part;

/* The values of an entry of the set's list; to be asked for each of them, in order. */
const struct autotune_values *tuning_of_entry(struct engine *engine, const struct set *set, uint64_t number);
/* Operations of the set that may be on the list before what could be fused waits. */
uint32_t tuning_runs_ahead(const struct engine *engine, const struct set *set);
/* A run has ended well. */
void tuning_settled(struct engine *engine, const struct run *run, uint64_t now);
