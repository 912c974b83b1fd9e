/* Process sets in elastic jobs: in each step the ranks make, use and remove sets, while ranks die and come.
 * The workers note here what succeeded for them. These rules hold:
 *
 *   - All ranks have the same sets of hvd_set_add, from the first step of a membership on.
 *   - A set consists of its workers that have a rank. Without any, its use is an error that names it.
 *   - A call that succeeded on a worker that is left counts on all ranks.
 *   - A set of hvd_set_open goes on if all of its workers that are left have it, else it is over for those.
 *   - A sum over a set is that of its workers. */
#include <stdlib.h>
#include <string.h>

#include "collectives/shm/layout.h"
#include "tests/sim/elastic.h"
#include "tests/sim/member.h"

#define IDS     64
#define OPENED  24
#define CHANGES 3 /* of a step */

enum knowledge { NOTHING, HAS, HAS_NOT };

/* A set and what each worker knows of it. */
struct record {
    bool used;
    bool of[SIM_MEMBERS]; /* the worker is one of it */
    enum knowledge has[SIM_MEMBERS];
    hvd_set number[SIM_MEMBERS]; /* of hvd_set_open */
    uint32_t membership, step, change;
};

static struct record added[IDS], opened[OPENED];
static uint32_t opens, deaths;

/* A step as one worker sees it. */
struct view {
    uint32_t rank, size, membership, step, change;
    int32_t worker[SIM_MEMBERS]; /* by rank */
    struct chance chance;        /* the same on all ranks */
};

void elastic_sets_reset(void)
{
    memset(added, 0, sizeof added);
    memset(opened, 0, sizeof opened);
    opens = deaths = 0;
}

/* The ranks that the set is to have now; returns their number. */
static int find_expected(const struct view *v, const struct record *r, int *rank)
{
    int n = 0;

    for (uint32_t i = 0; i < v->size; i++)
        if (r->of[v->worker[i]])
            rank[n++] = (int)i;
    return n;
}

/* ---- checks -------------------------------------------------------------------------------------------- */

static void check_over(hvd_set set)
{
    struct library *l = member_library();
    hvd_options o = {.set = set};
    int32_t one = 1;
    char name[32];
    int status = l->hvd_allreduce("of a set", &one, &one, 1, HVD_INT32, HVD_SUM, &o);

    snprintf(name, sizeof name, "process set %d (", set);
    if (status != HVD_ERR_SET_UNKNOWN || !strstr(l->hvd_last_error(), name) ||
        l->hvd_set_size(set) != HVD_ERR_SET_UNKNOWN)
        elastic_failure("worker %u uses set %d, which is over: %d, %s", sim_current->index, set, status,
                        l->hvd_last_error());
}

static void check_ranks(const struct view *v, hvd_set set, const int *rank, int n)
{
    struct library *l = member_library();
    int got[SIM_MEMBERS], size = l->hvd_set_size(set);
    bool same = size == n && l->hvd_set_ranks(set, got) == HVD_SUCCESS;

    for (int i = 0; same && i < n; i++)
        same = got[i] == rank[i];
    if (!same)
        elastic_failure("worker %u in membership %u: set %d has %d ranks (%s) instead of %d",
                        sim_current->index, v->membership, set, size, l->hvd_last_error(), n);
}

/* Those that have it sum up their workers. A status. */
static int sum_set(const struct view *v, hvd_set set, const int *rank, int n)
{
    struct library *l = member_library();
    hvd_options o = {.set = set};
    int32_t mine[2] = {1, (int32_t)sim_current->index + 1}, sum[2], want = 0;
    bool member = false;

    for (int i = 0; i < n; i++) {
        want += v->worker[rank[i]] + 1;
        member = member || rank[i] == (int)v->rank;
    }
    if (!member)
        return HVD_SUCCESS;
    int status = l->hvd_allreduce("of a set", mine, sum, 2, HVD_INT32, HVD_SUM, &o);
    if (status == HVD_SUCCESS && (sum[0] != n || sum[1] != want))
        elastic_failure("worker %u in membership %u: the sums of set %d are %d, %d instead of %d, %d",
                        sim_current->index, v->membership, set, sum[0], sum[1], n, want);
    else if (status != HVD_SUCCESS && status != HVD_ERR_PEER && status != HVD_ERR_ENGINE)
        elastic_failure("worker %u in membership %u uses set %d: %d, %s", sim_current->index, v->membership,
                        set, status, l->hvd_last_error());
    return status;
}

/* A worker that has died since has removed the set. The others have heard so, in a membership that ended
 * before they came to this point, or they have not. */
static bool may_be_removed(const struct record *r, const struct view *v)
{
    for (uint32_t worker = 0; worker < SIM_MEMBERS; worker++) {
        bool lives = false;
        for (uint32_t i = 0; i < v->size; i++)
            lives = lives || v->worker[i] == (int32_t)worker;
        if (!lives && r->has[worker] == HAS_NOT)
            return true;
    }
    return false;
}

static int use_added(const struct view *v)
{
    struct library *l = member_library();
    hvd_set ids[IDS + OPENED + 1];
    bool exists[IDS] = {false};
    int n = l->hvd_set_count(), rank[SIM_MEMBERS], status = HVD_SUCCESS;

    if (n < 1 || n > IDS + OPENED || l->hvd_set_ids(ids) != HVD_SUCCESS)
        return HVD_ERR_INVALID;
    for (int i = 1; i < n && ids[i] < (hvd_set)SHM_SETS_MAX; i++)
        exists[ids[i] < IDS ? ids[i] : 0] = true;
    for (hvd_set id = 1; id < IDS && status == HVD_SUCCESS; id++) {
        struct record *r = &added[id];
        int expected = find_expected(v, r, rank);
        bool has = false, has_not = false;
        for (uint32_t i = 0; i < v->size; i++) {
            has = has || r->has[v->worker[i]] == HAS;
            has_not = has_not || r->has[v->worker[i]] == HAS_NOT;
        }
        if (has && !has_not && !exists[id] && may_be_removed(r, v)) {
            r->has[sim_current->index] = HAS_NOT;
            continue;
        }
        if (has && !has_not && expected > 0 && !exists[id])
            elastic_failure("worker %u in membership %u lacks set %d", sim_current->index, v->membership, id);
        if (has_not && exists[id])
            elastic_failure("worker %u in membership %u has set %d, which was removed", sim_current->index,
                            v->membership, id);
        if (has && !has_not && expected == 0)
            check_over(id);
        if (!exists[id])
            continue;
        check_ranks(v, id, rank, expected);
        status = sum_set(v, id, rank, expected);
    }
    return status;
}

static int use_opened(const struct view *v)
{
    uint32_t me = sim_current->index;
    int rank[SIM_MEMBERS], status = HVD_SUCCESS;

    for (uint32_t k = 0; k < opens && status == HVD_SUCCESS; k++) {
        struct record *r = &opened[k];
        int expected = find_expected(v, r, rank);
        bool all = true;
        if (r->has[me] != HAS)
            continue;
        for (int i = 0; i < expected; i++)
            all = all && r->has[v->worker[rank[i]]] == HAS;
        if (!all) {
            check_over(r->number[me]);
            r->has[me] = HAS_NOT;
            continue;
        }
        check_ranks(v, r->number[me], rank, expected);
        status = sum_set(v, r->number[me], rank, expected);
    }
    return status;
}

/* ---- changes ------------------------------------------------------------------------------------------- */

static int choose_ranks(struct view *v, int *rank)
{
    int n = 0;

    for (uint32_t i = 0; i < v->size; i++)
        if (chance_one_in(&v->chance, 2))
            rank[n++] = (int)i;
    if (n == 0)
        rank[n++] = (int)chance_below(&v->chance, v->size);
    return n;
}

static bool is_of_change(const struct view *v, const struct record *r)
{
    return r->membership == v->membership && r->step == v->step && r->change == v->change;
}

static void note_workers(const struct view *v, struct record *r, const int *rank, int n)
{
    if (r->used && is_of_change(v, r))
        return;
    *r = (struct record){.used = true, .membership = v->membership, .step = v->step, .change = v->change};
    for (int i = 0; i < n; i++)
        r->of[v->worker[rank[i]]] = true;
}

static int add_one(struct view *v)
{
    int rank[SIM_MEMBERS], n = choose_ranks(v, rank);
    hvd_set set = HVD_WORLD;
    int status = member_library()->hvd_set_add(rank, n, &set);

    if (status == HVD_ERR_SET_EXISTS) {
        check_ranks(v, set, rank, n);
        return HVD_SUCCESS;
    }
    if (status == HVD_SUCCESS && set < IDS) {
        note_workers(v, &added[set], rank, n);
        added[set].has[sim_current->index] = HAS;
    }
    return status;
}

static int remove_one(struct view *v)
{
    struct library *l = member_library();
    hvd_set ids[IDS + OPENED + 1];
    int n = 0;

    l->hvd_set_ids(ids);
    while (n < l->hvd_set_count() && ids[n] < (hvd_set)SHM_SETS_MAX)
        n++;
    hvd_set id = ids[chance_below(&v->chance, (uint64_t)n)];
    if (id == HVD_WORLD)
        return HVD_SUCCESS;
    int status = l->hvd_set_remove(id);
    if (status == HVD_SUCCESS && id < IDS)
        added[id].has[sim_current->index] = HAS_NOT;
    return status;
}

/* An engine knows at most SHM_SLOTS pairs of ranks, which pass the messages of opening. */
static int open_one(struct view *v)
{
    int rank[SIM_MEMBERS], n = choose_ranks(v, rank), status;
    uint32_t k = 0, me = sim_current->index;
    char name[40];
    bool member = false;

    n = n < 3 ? n : 3;
    for (int i = 0; i < n; i++)
        member = member || rank[i] == (int)v->rank;
    if (v->change > 0 || v->step % 2 != 0)
        return HVD_SUCCESS;
    while (k < opens && !is_of_change(v, &opened[k]))
        k++;
    if (!member || k == OPENED)
        return HVD_SUCCESS;
    note_workers(v, &opened[k], rank, n);
    opens = k == opens ? k + 1 : opens;
    snprintf(name, sizeof name, "open.%u.%u.%u", v->membership, v->step, v->change);
    status = member_library()->hvd_set_open(name, rank, n, &opened[k].number[me]);
    if (status == HVD_SUCCESS)
        opened[k].has[me] = HAS;
    return status;
}

/* Those that have it close it. */
static int close_one(struct view *v)
{
    uint32_t me = sim_current->index;
    struct record *r = &opened[chance_below(&v->chance, OPENED)];

    if (r->has[me] != HAS)
        return HVD_SUCCESS;
    int status = member_library()->hvd_set_close(r->number[me]);
    r->has[me] = HAS_NOT;
    return status;
}

/* Others may die in it, or between it and the next step. */
static void die_soon(void)
{
    if (deaths < 2 && !sim_current->die_at && chance_one_in(&sim_timing, 24)) {
        deaths++;
        sim_current->die_at = sim_current->points + 1 + chance_below(&sim_timing, 120);
    }
}

static int change_sets(struct view *v)
{
    uint64_t what = chance_below(&v->chance, 5);
    int status = HVD_SUCCESS;

    die_soon();
    if (what < 4)
        status = what == 0 ? add_one(v) : what == 1 ? remove_one(v) : what == 2 ? open_one(v) : close_one(v);
    bool stranded = !job.host[sim_current->host].engine; /* the session is about to end the worker */
    if (status != HVD_SUCCESS && status != HVD_ERR_PEER && status != HVD_ERR_ENGINE && !stranded)
        elastic_failure("worker %u in membership %u, change %d of the sets: %d, %s", sim_current->index,
                        v->membership, (int)what, status, member_library()->hvd_last_error());
    return status;
}

/* ---- a step -------------------------------------------------------------------------------------------- */

int elastic_sets_step(uint64_t seed, int32_t step)
{
    struct library *l = member_library();
    struct view v = {.rank = (uint32_t)l->hvd_rank(), .size = (uint32_t)l->hvd_size()};
    int32_t mine = (int32_t)sim_current->index;

    v.membership = (uint32_t)l->hvd_membership();
    v.step = (uint32_t)step;
    v.chance.state = (seed * 1000 + v.membership) * 1000 + v.step;
    int status = l->hvd_allgather("workers", &mine, 1, 1, HVD_INT32, v.worker, v.size, NULL, NULL);
    if (status == HVD_SUCCESS)
        status = use_added(&v);
    if (status == HVD_SUCCESS)
        status = use_opened(&v);
    for (v.change = 0; v.change < CHANGES && status == HVD_SUCCESS; v.change++)
        status = change_sets(&v);
    return status == HVD_SUCCESS ? use_added(&v) : status;
}

static int sum_first(hvd_set set)
{
    struct library *l = member_library();
    hvd_options o = {.set = set};
    int32_t sum = 1;

    if (l->hvd_set_rank(set) < 0)
        return HVD_SUCCESS;
    int status = l->hvd_allreduce("first", &sum, &sum, 1, HVD_INT32, HVD_SUM, &o);
    if (status == HVD_SUCCESS && sum != l->hvd_set_size(set))
        elastic_failure("worker %u: the first sum of set %d is %d", sim_current->index, set, sum);
    if (status != HVD_SUCCESS && status != HVD_ERR_PEER && status != HVD_ERR_ENGINE)
        elastic_failure("worker %u: the first sum of set %d: %d, %s", sim_current->index, set, status,
                        l->hvd_last_error());
    return status;
}

/* Nothing of the membership comes before these sums. */
int elastic_sets_enter(void)
{
    uint32_t me = sim_current->index;
    int status = HVD_SUCCESS;

    for (hvd_set id = 1; id < IDS && status == HVD_SUCCESS; id++)
        status = sum_first(id);
    for (uint32_t k = 0; k < opens && status == HVD_SUCCESS; k++)
        if (opened[k].has[me] == HAS)
            status = sum_first(opened[k].number[me]);
    return status;
}
