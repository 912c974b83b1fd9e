/* Process sets that only their own ranks make and close.
 *
 * The ranks of a set are a binomial tree, in ascending order: rank i has the parent i & (i - 1). Three waves
 * of send and receive go through the tree, each of one message for each edge:
 *
 *   down  the first rank has chosen an id, and says what it takes the ranks to be; each rank compares, and
 *         tells its host's engine of the set (later, if all ranks are on this host)
 *   up    each rank says whether all ranks below it could do that
 *   down  what the first rank has heard: now all engines know the set, or no rank uses it
 *
 * To close a set, one wave up and one down find that all ranks have called. Then each rank tells its engine.
 * A last wave up tells the first rank, which may use the id again from then on.
 *
 * Ids are the first rank's own: it takes those that leave its number when they are divided by the number of
 * the job's ranks. Engines know a set by its id, a rank by a number of its own (client.set). */
#include "collectives/client/names.h"
#include "collectives/client/operation.h"
#include "collectives/client/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"

#define NAME_MAX_BYTES 240u /* so that libhvd's own word in front leaves a tensor's name */

/* ---- the tree ------------------------------------------------------------------------------------------ */

struct tree {
    char name[SHM_NAME_MAX + 1]; /* of the messages */
    const uint32_t *rank;        /* [size], ascending */
    uint32_t size, self;
};

#define WAVE_FAILED UINT64_MAX /* of a wave down: it has failed above, with the status `second` */

/* down: {id, hash of the ranks}; up: {0, or the rank that could not and 1; its status} */
struct word {
    uint64_t first, second;
};

static int give_word(const struct tree *t, uint32_t to, const struct word *w)
{
    return hvd_send(t->name, w, 2, HVD_UINT64, (int)t->rank[to], NULL);
}

static int take_word(const struct tree *t, uint32_t from, struct word *w)
{
    return hvd_recv(t->name, w, 2, HVD_UINT64, (int)t->rank[from], NULL);
}

/* bit: 1, 2, 4 and so on, until the answer is false. */
static bool has_child(const struct tree *t, uint32_t bit)
{
    return !(t->self & bit) && t->self + bit < t->size;
}

/* An edge that fails does not keep the message from the other edges: no rank waits for a wave that has ended
 * here. Returns the first failure. */
static int wave_down(const struct tree *t, struct word *w)
{
    int status = t->self > 0 ? take_word(t, t->self & (t->self - 1), w) : HVD_SUCCESS;
    if (status)
        *w = (struct word){WAVE_FAILED, (uint64_t)(int64_t)status};
    for (uint32_t bit = 1; has_child(t, bit); bit <<= 1) {
        int given = give_word(t, t->self + bit, w);
        status = status ? status : given;
    }
    return status;
}

/* *w becomes the first rank's that has something to say. */
static int wave_up(const struct tree *t, struct word *w)
{
    int status = HVD_SUCCESS;
    for (uint32_t bit = 1; has_child(t, bit); bit <<= 1) {
        struct word below = {0};
        int taken = take_word(t, t->self + bit, &below);
        if (taken)
            below = (struct word){t->rank[t->self + bit] + 1, (uint64_t)(int64_t)taken};
        if (w->first == 0)
            *w = below;
        status = status ? status : taken;
    }
    if (t->self > 0) {
        int given = give_word(t, t->self & (t->self - 1), w);
        status = status ? status : given;
    }
    return status;
}

static void begin_tree(struct tree *t, const char *name)
{
    snprintf(t->name, sizeof t->name, "hvd.open:%s", name);
}

/* The tensor of the messages between this rank and another one of the set. */
static struct tensor *find_messages(const struct tree *t, uint32_t other)
{
    const struct team *team = pair_find(t->rank[other]);
    return team ? tensor_known(team, t->name) : NULL;
}

/* The messages' name is not needed any more. */
static void end_tree(const struct tree *t)
{
    struct tensor *edge[33];
    uint32_t n = 0;
    if (t->self > 0)
        edge[n++] = find_messages(t, t->self & (t->self - 1));
    for (uint32_t bit = 1; has_child(t, bit); bit <<= 1)
        edge[n++] = find_messages(t, t->self + bit);
    forget_tensors(edge, n);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint32_t *rank, uint32_t n)
{
    uint64_t hash = hash_number(HASH_EMPTY, n);
    for (uint32_t i = 0; i < n; i++)
        hash = hash_number(hash, rank[i]);
    return hash;
}

/* This rank's part: its own table, and its host's engine. */
static int make_own(const char *name, int32_t id, const struct tree *t, hvd_set *set)
{
    if (id == 0)
        return fail(HVD_ERR_MEMORY, "rank %u has opened too many process sets", t->rank[0]);
    int status = set_make_opened(name, id, t->rank, t->size, set);
    if (status || set_is_told_with_names(client.set[*set]))
        return status;
    return set_tell_engine(id, t->rank, t->size);
}

static void drop_own(hvd_set set)
{
    if (set == HVD_WORLD)
        return;
    set_tell_removed(client.set[set]->id);
    set_free_opened(set);
}

static int fail_for(const char *name, const struct word *verdict)
{
    unsigned rank = (unsigned)verdict->first - 1;
    int status = (int)(int64_t)verdict->second;
    return status == HVD_ERR_MISMATCH
               ? fail(status, "process set \"%s\": rank %u does not open it with the same ranks", name, rank)
               : fail(status < 0 ? status : HVD_ERR_ENGINE, "process set \"%s\": rank %u could not open it",
                      name, rank);
}

/* This rank's part after the wave down has come. */
static int take_part(const char *name, const struct tree *t, const struct word *down, hvd_set *set)
{
    if (down->first == WAVE_FAILED)
        return fail(HVD_ERR_MISMATCH, "process set \"%s\": its first rank could not be heard", name);
    if (down->second != hash_of(t->rank, t->size))
        return fail_for(name, &(struct word){(uint64_t)client.rank + 1, (uint64_t)HVD_ERR_MISMATCH});
    return make_own(name, (int32_t)down->first, t, set);
}

static int open_set(const char *name, const struct tree *t, hvd_set *set)
{
    struct word down = {.second = hash_of(t->rank, t->size)}, up = {0};
    char why[SHM_TEXT_MAX] = "";

    if (t->self == 0)
        down.first = (uint64_t)set_choose_id();
    int waves = wave_down(t, &down), mine = waves ? waves : take_part(name, t, &down, set);
    if (mine) {
        snprintf(why, sizeof why, "%s", hvd_last_error());
        up = (struct word){(uint64_t)client.rank + 1, (uint64_t)(int64_t)mine};
    }
    int status = wave_up(t, &up);
    if (status && !*why)
        snprintf(why, sizeof why, "%s", hvd_last_error());
    int last = wave_down(t, &up);
    mine = mine ? mine : status ? status : last;
    if (mine == HVD_SUCCESS && up.first == 0)
        return HVD_SUCCESS;
    if (!*why && last)
        snprintf(why, sizeof why, "%s", hvd_last_error());
    status = *why ? fail(mine, "%s", why) : fail_for(name, &up);
    snprintf(why, sizeof why, "%s", hvd_last_error());
    drop_own(*set);
    *set = HVD_WORLD;
    return fail(status, "%s", why);
}

/* *self gets this rank's place. */
static int check_open(const char *name, const uint32_t *rank, uint32_t n, uint32_t *self)
{
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length > NAME_MAX_BYTES)
        return fail(HVD_ERR_INVALID, "a process set's name has 1 to %u bytes", NAME_MAX_BYTES);
    *self = ranks_find(rank, n, (uint32_t)client.rank);
    if (*self == UINT32_MAX)
        return fail(HVD_ERR_SET_FOREIGN, "process set \"%s\": rank %d is not one of its ranks", name,
                    client.rank);
    return HVD_SUCCESS;
}

int hvd_set_open(const char *name, const int *ranks, int n, hvd_set *set)
{
    int status = client_may_begin();
    if (status)
        return status;
    if (!set)
        return fail(HVD_ERR_INVALID, "the place for the process set is NULL");
    uint32_t *rank;
    struct tree t = {.size = (uint32_t)n};
    *set = HVD_WORLD;
    status = set_sort_ranks(ranks, n, &rank);
    if (status == HVD_SUCCESS)
        status = check_open(name, rank, (uint32_t)n, &t.self);
    if (status == HVD_SUCCESS) {
        t.rank = rank;
        begin_tree(&t, name);
        status = open_set(name, &t, set);
    }
    free(rank);
    return status;
}

/* ---- closing ------------------------------------------------------------------------------------------- */

/* A tensor that was on a GPU keeps the team, and so the set's place, until hvd_shutdown. */
static int close_own(hvd_set set, const struct team *team)
{
    atomic_store(&client.removed[set], true);
    sized_reap();
    if (client.gpu->look())
        client.gpu->remove_set(team);
    forget_team(team);
    return set_tell_removed(team->id);
}

static int close_set(hvd_set set, const struct team *team)
{
    struct tree t = {.rank = team->rank, .size = team->size, .self = team_own_index(team)};
    struct word none = {0};
    begin_tree(&t, set_opened_name(set));
    int status = wave_up(&t, &none);
    if (status == HVD_SUCCESS)
        status = wave_down(&t, &none);
    if (status == HVD_SUCCESS)
        status = close_own(set, team);
    if (status == HVD_SUCCESS)
        status = wave_up(&t, &none);
    if (status == HVD_SUCCESS)
        end_tree(&t);
    if (status == HVD_SUCCESS && !tensors_exist(team))
        set_free_opened(set);
    if (status == HVD_ERR_PEER) /* the next membership is without it */
        atomic_store(&client.removed[set], true);
    return status;
}

int hvd_set_close(hvd_set set)
{
    int status = client_may_begin();
    if (status)
        return status;
    const struct team *team = set_find(set);
    if (!team)
        return HVD_ERR_SET_UNKNOWN;
    if (set < (hvd_set)SHM_SETS_MAX)
        return fail(HVD_ERR_INVALID, "process set %d is not of hvd_set_open", set);
    if (tensors_pending(team))
        return fail(HVD_ERR_IN_PROGRESS, "process set %d: an operation in it was not waited for", set);
    return close_set(set, team);
}
