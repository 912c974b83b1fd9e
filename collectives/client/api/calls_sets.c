/* Process sets: all ranks together make and remove them.
 *
 * A rank tells a new set to its host's engine first. Then all ranks gather the requests of all ranks, as
 * hashes. If all hashes are the same, every engine knows the set, and the set may be used. If they differ,
 * or if a rank could not tell its engine, every rank tells its engine to drop the set, and the error names
 * the ranks that disagree. An id that was tried is not used again, so no late message can be taken for one
 * of another set. */
#include "collectives/client/carry.h"
#include "collectives/client/names.h"
#include "collectives/client/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"

#define HASH_FAILED 0 /* of a rank that could not do its part */

static uint64_t hash_of(bool add, hvd_set set, const uint32_t *rank, uint32_t n)
{
    uint64_t hash = hash_number(hash_number(HASH_EMPTY, add), (uint32_t)set);
    for (uint32_t i = 0; i < n; i++)
        hash = hash_number(hash, rank[i]);
    return hash == HASH_FAILED ? 1 : hash;
}

/* ---- agreement ----------------------------------------------------------------------------------------- */

static int compare_hashes(const uint64_t *all, const char *what, hvd_set set)
{
    for (int i = 0; i < client.size; i++)
        if (all[i] == HASH_FAILED)
            return fail(HVD_ERR_MISMATCH, "process set %d: rank %d could not %s it", set, i, what);
    for (int i = 1; i < client.size; i++)
        if (all[i] != all[0])
            return fail(HVD_ERR_MISMATCH,
                        "process set %d: rank %d does not %s the same set with the same ranks as rank 0", set,
                        i, what);
    return HVD_SUCCESS;
}

static int agree_on_set(uint64_t mine, const char *what, hvd_set set)
{
    uint64_t *all = malloc((size_t)client.size * sizeof *all);
    struct tensor_op op = {.kind = SHM_ALLGATHER, .count = 1, .row = 1};
    int status = all ? sets_exchange(&op, &mine, all, (uint64_t)client.size * sizeof *all)
                     : fail(HVD_ERR_MEMORY, "no memory for %d ranks", client.size);
    carry_count()->calls += status == HVD_SUCCESS;
    if (status == HVD_SUCCESS)
        status = compare_hashes(all, what, set);
    free(all);
    return status;
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

static bool set_exists(hvd_set set)
{
    return client.set[set] && !atomic_load(&client.removed[set]);
}

/* sets_lock is held. */
static int check_new(const uint32_t *rank, uint32_t n, hvd_set *set)
{
    for (uint32_t i = 0; i < client.sets; i++)
        if (set_exists((hvd_set)i) && team_same_ranks(client.set[i], rank, n)) {
            *set = (hvd_set)i;
            return fail(HVD_ERR_SET_EXISTS, "process set %u has these ranks already", i);
        }
    return client.sets < SHM_SETS_MAX ? HVD_SUCCESS
                                      : fail(HVD_ERR_MEMORY, "more than %u process sets", SHM_SETS_MAX - 1);
}

static int add_set(const uint32_t *rank, uint32_t n, hvd_set *set)
{
    int status = check_new(rank, n, set);
    if (status)
        return status;
    *set = (hvd_set)client.sets++;
    int told = set_tell_engine(*set, rank, n);
    char why[SHM_TEXT_MAX];
    snprintf(why, sizeof why, "%s", hvd_last_error());
    bool failed = told && told != HVD_ERR_MISMATCH; /* all ranks will hear of a mismatch */
    status = agree_on_set(failed ? HASH_FAILED : hash_of(true, *set, rank, n), "add", *set);
    if (failed || (told && status == HVD_SUCCESS))
        status = fail(told, "%s", why);
    if (status == HVD_SUCCESS)
        return set_make(*set, rank, n);
    snprintf(why, sizeof why, "%s", hvd_last_error());
    set_tell_removed(*set);
    *set = HVD_WORLD;
    return fail(status, "%s", why);
}

int hvd_set_add(const int *ranks, int n, hvd_set *set)
{
    int status = client_may_begin();
    if (status)
        return status;
    if (!set)
        return fail(HVD_ERR_INVALID, "the place for the process set is NULL");
    uint32_t *rank;
    status = set_sort_ranks(ranks, n, &rank);
    if (status == HVD_SUCCESS) {
        pthread_mutex_lock(&client.sets_lock);
        status = add_set(rank, (uint32_t)n, set);
        pthread_mutex_unlock(&client.sets_lock);
    }
    free(rank);
    return status;
}

static int remove_set(hvd_set set)
{
    const struct team *team = set_find(set);
    if (!team)
        return HVD_ERR_SET_UNKNOWN;
    if (set == HVD_WORLD)
        return fail(HVD_ERR_INVALID, "process set 0 has all ranks and stays");
    if (set >= (hvd_set)SHM_SETS_MAX)
        return fail(HVD_ERR_INVALID, "process set %d is of hvd_set_open, and hvd_set_close ends it", set);
    if (tensors_pending(team))
        return fail(HVD_ERR_IN_PROGRESS, "process set %d: an operation in it was not waited for", set);
    int status = agree_on_set(hash_of(false, set, NULL, 0), "remove", set);
    if (status)
        return status;
    atomic_store(&client.removed[set], true);
    if (client.gpu->look())
        client.gpu->remove_set(team);
    forget_team(team);
    return set_tell_removed(set);
}

int hvd_set_remove(hvd_set set)
{
    int status = client_may_begin();
    if (status)
        return status;
    pthread_mutex_lock(&client.sets_lock);
    status = remove_set(set);
    pthread_mutex_unlock(&client.sets_lock);
    return status;
}

int hvd_set_rank(hvd_set set)
{
    int status = client_check();
    const struct team *team = status ? NULL : set_find(set);
    if (!team)
        return status ? status : HVD_ERR_SET_UNKNOWN;
    uint32_t index = team_own_index(team);
    return index != UINT32_MAX
               ? (int)index
               : fail(HVD_ERR_SET_FOREIGN, "rank %d is not in process set %d", client.rank, set);
}

int hvd_set_size(hvd_set set)
{
    int status = client_check();
    const struct team *team = status ? NULL : set_find(set);
    return team ? (int)team->size : status ? status : HVD_ERR_SET_UNKNOWN;
}

int hvd_set_ranks(hvd_set set, int *ranks)
{
    int status = client_check();
    const struct team *team = status ? NULL : set_find(set);
    if (!team)
        return status ? status : HVD_ERR_SET_UNKNOWN;
    if (!ranks)
        return fail(HVD_ERR_INVALID, "the place for the ranks is NULL");
    for (uint32_t i = 0; i < team->size; i++)
        ranks[i] = (int)team->rank[i];
    return HVD_SUCCESS;
}

/* ids NULL: only counts them. */
static int list_sets(hvd_set *ids)
{
    int n = 0;
    for (uint32_t i = 0; i < 2 * SHM_SETS_MAX; i++) {
        if (!set_exists((hvd_set)i))
            continue;
        if (ids)
            ids[n] = (hvd_set)i;
        n++;
    }
    return n;
}

int hvd_set_count(void)
{
    int status = client_check();
    return status ? status : list_sets(NULL);
}

int hvd_set_ids(hvd_set *ids)
{
    int status = client_check();
    if (status)
        return status;
    if (!ids)
        return fail(HVD_ERR_INVALID, "the place for the process sets is NULL");
    list_sets(ids);
    return HVD_SUCCESS;
}
