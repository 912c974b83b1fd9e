/* The ranks that take part in an operation, as one host sees them: all of the job, a process set, or the two
 * of a send and its receive. What is counted "in the team" is an index among its ranks in ascending order, so
 * the ones of this host, its members, follow one another. Never changed once made. */
#ifndef HVD_SHM_TEAM_H
#define HVD_SHM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

struct team {
    int32_t id;       /* hvd_set; of two ranks that send and receive, negative */
    uint32_t size;    /* ranks */
    uint32_t first;   /* member 0, in the team */
    uint32_t members; /* on this host; 0: it has none */
    uint32_t rank[];  /* [size], in the job, ascending */
};

/* The host has the job's ranks [host_first, host_first + host_ranks). `rank` (NULL: 0, 1, ...) is ascending.
 * NULL: no memory. Freed with free. */
struct team *team_new(int32_t id, const uint32_t *rank, uint32_t size, uint32_t host_first,
                      uint32_t host_ranks);
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
    return team->rank[team->first + member];
}

/* The team of two different ranks; their id is made of them. At most TEAM_PAIR_RANKS ranks have one. */
#define TEAM_PAIR_RANKS 4096u
int32_t team_pair_id(uint32_t a, uint32_t b);
/* false: the id is none of a pair. */
bool team_pair_ranks(int32_t id, uint32_t rank[2]);

#endif
