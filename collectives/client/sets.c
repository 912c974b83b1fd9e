/* The ranks of process sets and of pairs of ranks. Made once and kept until hvd_shutdown, because an
 * operation of another thread may still read them; those of hvd_set_open until hvd_set_close. */
#include "collectives/client/sets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/carry.h"
#include "collectives/client/rpc.h"
#include "collectives/shm/numbers.h"

const struct team *set_find(hvd_set set)
{
    const struct team *team = NULL;
    if (set >= 0 && set < (hvd_set)(2 * SHM_SETS_MAX) && !atomic_load(&client.removed[set]))
        team = atomic_load_explicit(&client.set[set], memory_order_acquire);
    if (!team)
        carry_refuse(set);
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

/* Sets of hvd_set_open: their half of client.set, too, is under this lock. No thread waits for another rank
 * with it, as one does with sets_lock. */
static struct {
    pthread_mutex_t lock;
    char *name[SHM_SETS_MAX];
    uint32_t ids; /* that this rank has chosen */
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Also one that this rank is about to close. The lock is held. */
static const struct team *find_opened(int32_t id)
{
    for (uint32_t i = SHM_SETS_MAX; i < 2 * SHM_SETS_MAX; i++)
        if (client.set[i] && client.set[i]->id == id)
            return client.set[i];
    return NULL;
}

int32_t set_choose_id(void)
{
    uint32_t size = (uint32_t)client.size, of_this_rank = (SHM_OPENED_END - SHM_SETS_MAX) / size;
    int32_t found = 0;
    pthread_mutex_lock(&opened.lock);
    for (uint32_t tries = 0; found == 0 && tries <= SHM_SETS_MAX && tries < of_this_rank; tries++) {
        uint32_t turn = opened.ids++ % of_this_rank;
        int32_t id = (int32_t)(SHM_SETS_MAX + turn * size + (uint32_t)client.rank);
        if (!find_opened(id))
            found = id;
    }
    pthread_mutex_unlock(&opened.lock);
    return found;
}

const char *set_opened_name(hvd_set set)
{
    return opened.name[set - (hvd_set)SHM_SETS_MAX];
}

const struct team *set_find_opened(int32_t id)
{
    pthread_mutex_lock(&opened.lock);
    const struct team *team = find_opened(id);
    pthread_mutex_unlock(&opened.lock);
    if (!team)
        fail(HVD_ERR_SET_UNKNOWN, "there is no process set %d", id);
    return team;
}

/* HVD_WORLD: there is no place. */
static hvd_set take_place(struct team *team, char *name)
{
    hvd_set place = HVD_WORLD;
    pthread_mutex_lock(&opened.lock);
    for (uint32_t i = 0; i < SHM_SETS_MAX && place == HVD_WORLD; i++) {
        if (client.set[SHM_SETS_MAX + i] || carry_is_over((hvd_set)(SHM_SETS_MAX + i)))
            continue;
        opened.name[i] = name;
        atomic_store_explicit(&client.set[SHM_SETS_MAX + i], team, memory_order_release);
        place = (hvd_set)(SHM_SETS_MAX + i);
    }
    pthread_mutex_unlock(&opened.lock);
    return place;
}

int set_make_opened(const char *name, int32_t id, const uint32_t *rank, uint32_t size, hvd_set *set)
{
    char *copy = strdup(name);
    struct team *team = copy ? make_team(id, rank, size) : NULL;
    *set = team ? take_place(team, copy) : HVD_WORLD;
    if (*set != HVD_WORLD)
        return HVD_SUCCESS;
    free(copy);
    free(team);
    return fail(HVD_ERR_MEMORY,
                team ? "this rank is in %u sets of hvd_set_open already"
                     : "no memory for one of %u process sets",
                SHM_SETS_MAX);
}

void set_free_opened(hvd_set set)
{
    pthread_mutex_lock(&opened.lock);
    free(client.set[set]);
    free(opened.name[set - (hvd_set)SHM_SETS_MAX]);
    opened.name[set - (hvd_set)SHM_SETS_MAX] = NULL;
    carry_drop(set);
    atomic_store(&client.removed[set], false);
    atomic_store(&client.set[set], NULL);
    pthread_mutex_unlock(&opened.lock);
}

int set_make_again(hvd_set set, const char *name, int32_t id, const uint32_t *rank, uint32_t size)
{
    char *copy = strdup(name);
    struct team *team = copy ? make_team(id, rank, size) : NULL;
    if (!team) {
        free(copy);
        return fail(HVD_ERR_MEMORY, "no memory for a process set of %u ranks", size);
    }
    opened.name[set - (hvd_set)SHM_SETS_MAX] = copy;
    atomic_store_explicit(&client.set[set], team, memory_order_release);
    return HVD_SUCCESS;
}

void set_table_save(void)
{
    carry_count()->next = client.sets;
    for (hvd_set set = 1; set < (hvd_set)(2 * SHM_SETS_MAX); set++) {
        const struct team *team = atomic_load(&client.removed[set]) ? NULL : client.set[set];
        if (team)
            carry_save(set, team, set < (hvd_set)SHM_SETS_MAX ? NULL : set_opened_name(set));
        else if (!carry_is_over(set))
            carry_drop(set);
    }
}

int set_table_open(void)
{
    client.sets = HVD_WORLD + 1;
    opened.ids = 0;
    return set_make(HVD_WORLD, NULL, (uint32_t)client.size);
}

void set_table_close(void)
{
    for (uint32_t i = 0; i < 2 * SHM_SETS_MAX; i++) {
        free(client.set[i]);
        atomic_store(&client.set[i], NULL);
        atomic_store(&client.removed[i], false);
    }
    for (uint32_t i = 0; i < SHM_SETS_MAX; i++) {
        free(opened.name[i]);
        opened.name[i] = NULL;
    }
    for (uint32_t i = 0; i < TEAM_PAIR_RANKS; i++) {
        free(client.pair[i]);
        atomic_store(&client.pair[i], NULL);
    }
}

/* ---- the engine ---------------------------------------------------------------------------------------- */

int set_tell_engine(hvd_set set, const uint32_t *rank, uint32_t n)
{
    struct worker_message m = {.type = WORKER_ADD_SET, .set = set};
    if (client.solo)
        return HVD_SUCCESS;
    if (n <= WORKER_NUMBERS_MAX) {
        m.id = n;
        memcpy(m.text, rank, n * sizeof *rank);
        return rpc(&m, -1, NULL, NULL);
    }
    int fd = numbers_write(rank, n);
    if (fd < 0)
        return fail(HVD_ERR_SYSTEM, "cannot write down %u ranks: %s", n, strerror(errno));
    int status = rpc(&m, fd, NULL, NULL);
    close(fd);
    return status;
}

int set_tell_removed(hvd_set set)
{
    struct worker_message m = {.type = WORKER_REMOVE_SET, .set = set};
    return client.solo ? HVD_SUCCESS : rpc(&m, -1, NULL, NULL);
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int set_sort_ranks(const int *ranks, int n, uint32_t **sorted)
{
    *sorted = NULL;
    if (n < 1 || n > client.size || !ranks)
        return fail(HVD_ERR_INVALID, "a process set has 1 to %d ranks, not %d", client.size,
                    ranks || n < 1 ? n : 0);
    uint32_t *rank = malloc((size_t)n * sizeof *rank);
    if (!rank)
        return fail(HVD_ERR_MEMORY, "no memory for %d ranks", n);
    *sorted = rank;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= client.size)
            return fail(HVD_ERR_INVALID, "%d is not a rank below %d", ranks[i], client.size);
        rank[i] = (uint32_t)ranks[i];
    }
    qsort(rank, (size_t)n, sizeof *rank, by_number);
    for (int i = 1; i < n; i++)
        if (rank[i] == rank[i - 1])
            return fail(HVD_ERR_INVALID, "rank %u is twice among the ranks of a process set", rank[i]);
    return HVD_SUCCESS;
}
