/* The ranks of process sets and of pairs of ranks. */
#pragma once

#include "collectives/client/core.h"
#include "collectives/shm/worker_socket.h"

/* The set's ranks; this rank need not be a member. NULL after fail(). */
const struct team *set_find(hvd_set set);
/* The team of this rank and another rank; NULL after fail(). */
const struct team *pair_find(uint32_t other);
/* The set becomes known to this process. */
int set_make(hvd_set set, const uint32_t *rank, uint32_t size);
/* Sets of hvd_set_open, known to their ranks only: `id` is the engines', *set this rank's own number. */
int set_make_opened(const char *name, int32_t id, const uint32_t *rank, uint32_t size, hvd_set *set);
void set_free_opened(hvd_set set);
/* An id that no other set has: the first rank of a set chooses it. 0: all are in use. */
int32_t set_choose_id(void);
const char *set_opened_name(hvd_set set);
/* Also one that this rank is about to close. NULL after fail(). */
const struct team *set_find_opened(int32_t id);
/* The host's engine hears of such a set when this rank asks it for a name. */
static inline bool set_is_told_with_names(const struct team *team)
{
    return team->id >= (int32_t)SHM_SETS_MAX && team_is_here(team) && team->size <= WORKER_BEHIND_MAX;
}

/* The host's engine is to know the set of that id, or that this rank has left it. */
int set_tell_engine(int32_t id, const uint32_t *rank, uint32_t n);
int set_tell_removed(int32_t id);
/* Checks a caller's ranks. *sorted gets them in ascending order, the caller's to free in every case. */
int set_sort_ranks(const int *ranks, int n, uint32_t **sorted);
/* A set of hvd_set_open of a former membership: `set` stays this rank's number. */
int set_make_again(hvd_set set, const char *name, int32_t id, const uint32_t *rank, uint32_t size);
/* All sets are to be had in the next membership (carry.h). */
void set_table_save(void);
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
