/* The tensors of this process by name, by slot and by handle. */
#ifndef HVD_COLLECTIVES_CLIENT_NAMES_H
#define HVD_COLLECTIVES_CLIENT_NAMES_H

#include "collectives/client/operation.h"

/* The team's tensor of this name. A new name is a question to the engine. */
int tensor_find(const struct team *team, const char *name, struct tensor **found);
/* Like tensor_find; the tensor is locked. Fails if a thread submits or waits for its operation. */
int tensor_acquire(const struct team *team, const char *name, struct tensor **t);
/* Prefetches what this processor will touch next if the calls come in the order of the last step. */
void tensor_prefetch_next(const struct tensor *t);
/* The tensor of a slot that another rank may have named first. NULL in *found: this rank is no member of its
 * team. */
int tensor_of_slot(uint32_t slot, struct tensor **found);
/* One of the set's tensors is not idle. */
bool tensors_pending(const struct team *team);
/* The tensor of one of the two fixed slots; NULL after fail(). */
struct tensor *tensor_fixed(uint32_t slot);
/* The tensor of the team's barrier; NULL after fail(). */
struct tensor *tensor_barrier(const struct team *team);
struct tensor *tensor_by_handle(hvd_handle handle);
void tensors_free(void);

#endif
