/* The ranks that take part in an operation, as one host sees them: all of the job, a process set, or the two
 * of a send and its receive. A number "in the team" is an index among its ranks in ascending order.
 * Those of this host are its members; where all are here, a member is counted as in the team. Never changed
 * once made. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/ranks.h"

struct team {
    int32_t id;       /* hvd_set; of two ranks that send and receive, negative */
    uint32_t size;    /* ranks */
    uint32_t members; /* on this host; 0: it has none */
    uint32_t *member; /* [members], in the team, ascending */
    uint32_t *local;  /* [members], among this host's ranks of the job */
    uint32_t rank[];  /* [size], in the job, ascending */
};

/* The host has the job's ranks `here`. Both lists (NULL: 0, 1, ...) are ascending. NULL: no memory. Freed
 * with free. */
struct team *team_new(int32_t id, const uint32_t *rank, uint32_t size, const uint32_t *here,
                      uint32_t here_size);
/* The rank's index in the team; UINT32_MAX: it is not one of them. */
uint32_t team_index(const struct team *team, uint32_t rank);
bool team_same_ranks(const struct team *team, const uint32_t *rank, uint32_t size);

/* All on this host: nobody else need be asked. */
static inline bool team_is_here(const struct team *team)
{
    return team->members == team->size;
}

/* A member's rank in the job. */
static inline uint32_t team_rank(const struct team *team, uint32_t member)
{
    return team->rank[team->member[member]];
}

/* The member that has this index in the team; UINT32_MAX: it is another host's. */
static inline uint32_t team_member(const struct team *team, uint32_t index)
{
    return team_is_here(team) && index < team->size ? index : ranks_find(team->member, team->members, index);
}

/* The team of two different ranks; their id is made of them. At most TEAM_PAIR_RANKS ranks have one. */
#define TEAM_PAIR_RANKS 4096u
int32_t team_pair_id(uint32_t a, uint32_t b);
/* false: the id is none of a pair. */
bool team_pair_ranks(int32_t id, uint32_t rank[2]);
