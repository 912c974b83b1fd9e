/* The tensors of this process by name, by slot and by handle. */
#pragma once

#include "collectives/client/operation.h"

/* The team's tensor of this name, locked. A new name is a question to the engine, and waits until a slot is
 * free. Fails if a thread submits or waits for the tensor's operation. */
int tensor_acquire(const struct team *team, const char *name, struct tensor **t);
/* NULL: no such tensor is known. Not locked. */
struct tensor *tensor_known(const struct team *team, const char *name);
/* A tensor that libhvd itself uses: its name is not forgotten until its set is removed. Not locked. */
int tensor_keep(const struct team *team, const char *name, struct tensor **t);
/* Prefetches what this processor will touch next if the calls come in the order of the last step. */
void tensor_prefetch_next(const struct tensor *t);
/* The tensor of a slot that another rank may have named first, not locked. NULL in *found: the slot is no
 * name's of this rank. */
int tensor_of_slot(uint32_t slot, struct tensor **found);
/* Whether it is that tensor, once it is locked. */
bool tensor_has_slot(const struct tensor *t, uint32_t slot);
/* One of the set's tensors is not idle. */
bool tensors_pending(const struct team *team);
/* One of the set's tensors was not forgotten. */
bool tensors_exist(const struct team *team);
/* The tensor of one of the two fixed slots, locked; NULL after fail(). */
struct tensor *tensor_fixed(uint32_t slot);
/* The tensor of the team's barrier, locked; NULL after fail(). */
struct tensor *tensor_barrier(const struct team *team);
struct tensor *tensor_by_handle(hvd_handle handle);
void tensors_free(void);
