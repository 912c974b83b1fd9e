#include "collectives/shm/team.h"

#include <stdlib.h>
#include <string.h>

#define PAIR_BIT 0x80000000u

struct team *team_new(int32_t id, const uint32_t *rank, uint32_t size, const uint32_t *here,
                      uint32_t here_size)
{
    struct team *team = malloc(sizeof *team + ((size_t)size + 2 * here_size) * sizeof *team->rank);
    uint32_t next = 0;
    if (!team)
        return NULL;
    *team = (struct team){.id = id, .size = size, .member = team->rank + size};
    team->local = team->member + here_size;
    for (uint32_t i = 0; i < size; i++) {
        team->rank[i] = rank ? rank[i] : i;
        while (next < here_size && (here ? here[next] : next) < team->rank[i])
            next++;
        if (next < here_size && (here ? here[next] : next) == team->rank[i]) {
            team->member[team->members] = i;
            team->local[team->members++] = next;
        }
    }
    return team;
}

uint32_t team_index(const struct team *team, uint32_t rank)
{
    return ranks_find(team->rank, team->size, rank);
}

bool team_same_ranks(const struct team *team, const uint32_t *rank, uint32_t size)
{
    return team->size == size && memcmp(team->rank, rank, size * sizeof *rank) == 0;
}

/* Pairs are numbered (0, 1), (0, 2), (1, 2), (0, 3), ... */
int32_t team_pair_id(uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    return (int32_t)(PAIR_BIT | (high * (high - 1) / 2 + low));
}

bool team_pair_ranks(int32_t id, uint32_t rank[2])
{
    uint32_t number = (uint32_t)id & ~PAIR_BIT, high = 1;
    if (id >= 0 || number >= TEAM_PAIR_RANKS * (TEAM_PAIR_RANKS - 1) / 2)
        return false;
    while (number >= high)
        number -= high++;
    rank[0] = number;
    rank[1] = high;
    return true;
}
