/* The ranks of process sets and of pairs of ranks. Made once and kept until hvd_shutdown, because an
 * operation of another thread may still read them. */
#include "collectives/client/sets.h"

#include <stdlib.h>

const struct team *set_find(hvd_set set)
{
    const struct team *team = NULL;
    if (set >= 0 && set < (hvd_set)SHM_SETS_MAX && !atomic_load(&client.removed[set]))
        team = atomic_load_explicit(&client.set[set], memory_order_acquire);
    if (!team)
        fail(HVD_ERR_SET_UNKNOWN, "there is no process set %d", set);
    return team;
}

static struct team *make_team(int32_t id, const uint32_t *rank, uint32_t size)
{
    struct team *team = team_new(id, rank, size, client.region.rank, (uint32_t)client.local_size);
    if (!team)
        fail(HVD_ERR_MEMORY, "no memory for a process set of %u ranks", size);
    return team;
}

const struct team *pair_find(uint32_t other)
{
    uint32_t self = (uint32_t)client.rank;
    uint32_t rank[2] = {self < other ? self : other, self < other ? other : self};
    struct team *team = atomic_load_explicit(&client.pair[other], memory_order_acquire);
    if (team)
        return team;
    pthread_mutex_lock(&client.names_lock);
    team = atomic_load_explicit(&client.pair[other], memory_order_relaxed);
    if (!team) {
        team = make_team(team_pair_id(self, other), rank, 2);
        atomic_store_explicit(&client.pair[other], team, memory_order_release);
    }
    pthread_mutex_unlock(&client.names_lock);
    return team;
}

int set_make(hvd_set set, const uint32_t *rank, uint32_t size)
{
    struct team *team = make_team(set, rank, size);
    if (!team)
        return HVD_ERR_MEMORY;
    atomic_store_explicit(&client.set[set], team, memory_order_release);
    return HVD_SUCCESS;
}

int set_table_open(void)
{
    client.sets = HVD_WORLD + 1;
    return set_make(HVD_WORLD, NULL, (uint32_t)client.size);
}

void set_table_close(void)
{
    for (uint32_t i = 0; i < SHM_SETS_MAX; i++) {
        free(client.set[i]);
        atomic_store(&client.set[i], NULL);
        atomic_store(&client.removed[i], false);
    }
    for (uint32_t i = 0; i < TEAM_PAIR_RANKS; i++) {
        free(client.pair[i]);
        atomic_store(&client.pair[i], NULL);
    }
}
