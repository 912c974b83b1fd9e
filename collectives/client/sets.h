/* The ranks of process sets and of pairs of ranks. */
#ifndef HVD_COLLECTIVES_CLIENT_SETS_H
#define HVD_COLLECTIVES_CLIENT_SETS_H

#include "collectives/client/core.h"

/* The set's ranks; this rank need not be a member. NULL after fail(). */
const struct team *set_find(hvd_set set);
/* The team of this rank and another rank; NULL after fail(). */
const struct team *pair_find(uint32_t other);
/* The set becomes known to this process. */
int set_make(hvd_set set, const uint32_t *rank, uint32_t size);
int set_table_open(void);
void set_table_close(void);

/* This rank's index in the team; UINT32_MAX: it is not a member. */
static inline uint32_t team_own_index(const struct team *team)
{
    return team->id == HVD_WORLD ? (uint32_t)client.rank : team_index(team, (uint32_t)client.rank);
}

/* The rows that a rank of the team gets in a reducescatter of `rows` rows. */
static inline size_t team_rows_of(size_t rows, const struct team *team, uint32_t index)
{
    return rows / team->size + (index < rows % team->size);
}

#endif
