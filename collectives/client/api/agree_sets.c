/* Process sets in the next membership of an elastic job: in hvd_init all ranks agree which sets there are.
 *
 * The death that ended the membership before may have come while some ranks were in hvd_set_add or
 * hvd_set_remove: some have a set that others lack. All ranks make these calls in one order, and none begins
 * the next one before all have agreed about the last. So a rank's sets follow from the number of calls that
 * it has agreed about, and these numbers differ by at most 1. The rank with the largest number gives its sets
 * to all ranks, newcomers included: a call that succeeded on a rank that is left counts on all ranks.
 *
 *   largest   of {number of calls, rank}, and the most sets of hvd_set_open that a rank has
 *   words     of that rank: its sets, each with its workers and with the ranks that they had
 *   keys      of the sets of hvd_set_open, from the ranks that have them
 *   barrier   all engines know the sets; before that no rank uses one
 *
 * Most jobs have no sets, and only do the first step. A set consists of its workers that have a rank still.
 * If there are none, the set is over: its id is not used again, and each use is an error that names it.
 *
 * hvd_set_open gives a rank a number only when it succeeds there, so a rank cannot learn of such a set later.
 * A set of hvd_set_open goes on if all of its ranks that are left have it, and else it is over for those. The
 * first of these ranks chooses a new id for the engines; a rank's own number stays.
 *
 * When a rank dies in these steps, they fail, and the ranks do them again in the membership after. Ranks that
 * had come to their end, and ranks that had not, have the same sets: what they have agreed about is the same,
 * and workers only become less. */
#include "collectives/client/carry.h"
#include "collectives/client/names.h"
#include "collectives/client/sets.h"

#include <stdlib.h>
#include <string.h>

#define SET_WORDS 3 /* before a set's numbers: id, membership, n */

int sets_exchange(const struct tensor_op *what, const void *in, void *out, uint64_t capacity)
{
    struct request r = {
        .team = client.set[HVD_WORLD], .op = *what, .in = in, .out = out, .capacity = capacity};
    struct tensor *t;
    int status = tensor_acquire(r.team, SHM_SETS_NAME, &t);
    if (status)
        return status;
    r.op.dtype = HVD_UINT64;
    r.op.prescale = r.op.postscale = 1;
    status = operation_submit(t, &r, true);
    if (status == HVD_SUCCESS)
        status = operation_wait(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}

static int broadcast_words(uint32_t root, uint64_t *words, uint64_t n)
{
    struct tensor_op op = {.kind = SHM_BROADCAST, .root = root, .count = n};
    return sets_exchange(&op, words, words, n * sizeof *words);
}

/* ---- sets of hvd_set_add ------------------------------------------------------------------------------- */

/* {the next id, then the sets}; the caller's. NULL after fail(). */
static uint64_t *write_sets(uint64_t *n)
{
    *n = 1;
    for (hvd_set id = 1; id < (hvd_set)SHM_SETS_MAX; id++)
        *n += carry_find(id) ? SET_WORDS + 2 * (uint64_t)carry_find(id)->n : 0;
    uint64_t *words = malloc(*n * sizeof *words), *at = words;
    if (!words) {
        fail(HVD_ERR_MEMORY, "no memory for the process sets");
        return NULL;
    }
    *at++ = carry_count()->next;
    for (hvd_set id = 1; id < (hvd_set)SHM_SETS_MAX; id++) {
        const struct carried *c = carry_find(id);
        if (!c)
            continue;
        *at++ = (uint64_t)id;
        *at++ = c->membership;
        *at++ = c->n;
        for (uint32_t i = 0; i < 2 * c->n; i++)
            *at++ = c->rank[i];
    }
    return words;
}

/* *left: words that were not read. NULL: the words are no set, or there is no memory. */
static struct carried *read_set(const uint64_t *at, uint64_t *left, hvd_set *id)
{
    if (*left < SET_WORDS || at[0] == 0 || at[0] >= SHM_SETS_MAX || at[2] == 0 ||
        at[2] > (*left - SET_WORDS) / 2) {
        fail(HVD_ERR_ENGINE, "what came as the process sets of the other ranks is none");
        return NULL;
    }
    struct carried *c = carry_new((uint32_t)at[2], (uint32_t)at[1]);
    *id = (hvd_set)at[0];
    for (uint32_t i = 0; c && i < 2 * c->n; i++)
        c->rank[i] = (uint32_t)at[SET_WORDS + i];
    *left -= SET_WORDS + 2 * at[2];
    return c;
}

static int make_again(hvd_set id, struct carried *c)
{
    uint32_t *rank = malloc(c->n * sizeof *rank);
    if (!rank)
        return fail(HVD_ERR_MEMORY, "no memory for a process set of %u ranks", c->n);
    uint32_t n = carry_ranks(c, rank);
    c->over = n == 0;
    int status = c->over ? HVD_SUCCESS : set_make(id, rank, n);
    if (!status && !c->over)
        status = set_tell_engine(id, rank, n);
    free(rank);
    return status;
}

static int read_sets(const uint64_t *words, uint64_t n)
{
    uint64_t left = n - 1;
    int status = HVD_SUCCESS;
    client.sets = words[0] < SHM_SETS_MAX ? (uint32_t)words[0] : SHM_SETS_MAX;
    for (hvd_set id = 1; id < (hvd_set)SHM_SETS_MAX; id++)
        carry_drop(id);
    while (left > 0 && !status) {
        hvd_set id;
        struct carried *c = read_set(words + n - left, &left, &id);
        if (!c)
            return last_failure();
        carry_put(id, c);
        status = make_again(id, c);
    }
    return status;
}

/* The sets of that rank become those of all. `calls`: that it has agreed about. */
static int share_sets(uint32_t from, uint32_t calls)
{
    bool mine = from == (uint32_t)client.rank;
    uint64_t n = 0, *words = mine ? write_sets(&n) : NULL;
    if (mine && !words)
        return last_failure();
    int status = broadcast_words(from, &n, 1);
    if (!mine && !status) {
        words = n > 0 && n < SIZE_MAX / sizeof *words ? malloc(n * sizeof *words) : NULL;
        status = words ? HVD_SUCCESS : fail(HVD_ERR_MEMORY, "no memory for the process sets");
    }
    if (!status)
        status = broadcast_words(from, words, n);
    if (!status)
        status = read_sets(words, n);
    if (!status)
        *carry_count() = (struct carry_count){calls, client.sets};
    free(words);
    return status;
}

/* ---- sets of hvd_set_open ------------------------------------------------------------------------------ */

/* A set as one of its ranks has it. */
struct offer {
    uint64_t key;
    uint32_t rank, id; /* id: if the rank is the set's first, the new one; 0: there is none */
};

static int compare_offers(const void *a, const void *b)
{
    const struct offer *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static uint32_t count_opened(void)
{
    uint32_t n = 0;
    for (hvd_set set = SHM_SETS_MAX; set < (hvd_set)(2 * SHM_SETS_MAX); set++)
        n += carry_find(set) && !carry_is_over(set);
    return n;
}

/* The room for offers is as large as they are. */
static void make_offers(struct offer *offer, uint32_t *rank)
{
    uint32_t ids = 0, most = (SHM_OPENED_END - SHM_SETS_MAX) / (uint32_t)client.size;
    for (hvd_set set = SHM_SETS_MAX; set < (hvd_set)(2 * SHM_SETS_MAX); set++) {
        const struct carried *c = carry_find(set);
        if (!c || c->over)
            continue;
        carry_ranks(c, rank);
        bool chooses = rank[0] == (uint32_t)client.rank && ids < most;
        ids += chooses;
        *offer++ = (struct offer){c->key, (uint32_t)client.rank, chooses ? (uint32_t)set_choose_id() : 0};
    }
}

/* The set's offers, if each of these ranks has made one; else NULL. */
static const struct offer *find_offers(const struct offer *all, size_t number, uint64_t key,
                                       const uint32_t *rank, uint32_t n)
{
    size_t low = 0, high = number;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (all[mid].key < key)
            low = mid + 1;
        else
            high = mid;
    }
    for (uint32_t i = 0; i < n; i++)
        if (low + i >= number || all[low + i].key != key || all[low + i].rank != rank[i])
            return NULL;
    return all + low;
}

static int open_again(const struct offer *all, size_t number, uint32_t *rank)
{
    for (hvd_set set = SHM_SETS_MAX; set < (hvd_set)(2 * SHM_SETS_MAX); set++) {
        struct carried *c = carry_find(set);
        if (!c || c->over)
            continue;
        uint32_t n = carry_ranks(c, rank);
        const struct offer *offer = find_offers(all, number, c->key, rank, n);
        c->over = !offer || offer->id < SHM_SETS_MAX;
        if (c->over)
            continue;
        int status = set_make_again(set, c->name, (int32_t)offer->id, rank, n);
        if (!status && !set_is_told_with_names(client.set[set]))
            status = set_tell_engine((int32_t)offer->id, rank, n);
        if (status)
            return status;
    }
    return HVD_SUCCESS;
}

/* `most`: that a rank has. */
static int share_opened(uint64_t most)
{
    uint32_t mine = count_opened(), size = (uint32_t)client.size;
    size_t number = 0, room = most < SHM_SETS_MAX ? (size_t)most * size : (size_t)SHM_SETS_MAX * size;
    struct offer *own = calloc(mine + 1, sizeof *own), *all = calloc(room, sizeof *all);
    uint32_t *rank = malloc(size * sizeof *rank); /* a set has at most as many workers that are left */
    struct tensor_op op = {.kind = SHM_ALLGATHER, .count = 2 * (uint64_t)mine, .row = 2};
    int status =
        own && all && rank ? HVD_SUCCESS : fail(HVD_ERR_MEMORY, "no memory for %zu process sets", room);
    if (!status) {
        make_offers(own, rank);
        status = sets_exchange(&op, own, all, room * sizeof *all);
    }
    if (!status) {
        while (number < room && all[number].key != 0)
            number++;
        qsort(all, number, sizeof *all, compare_offers);
        status = open_again(all, number, rank);
    }
    free(own);
    free(all);
    free(rank);
    return status;
}

/* ---- the steps ----------------------------------------------------------------------------------------- */

int sets_agree(void)
{
    uint32_t last = (uint32_t)client.size - 1, calls = carry_count()->calls;
    uint64_t mine[2] = {calls ? (uint64_t)calls << 32 | (last - (uint32_t)client.rank) : 0, count_opened()};
    uint64_t most[2] = {0};
    struct tensor_op op = {.kind = SHM_ALLREDUCE, .op = HVD_MAX, .count = 2};
    int status = carry_meet();
    if (!status)
        status = sets_exchange(&op, mine, most, sizeof most);
    if (!status && most[0])
        status = share_sets(last - (uint32_t)most[0], (uint32_t)(most[0] >> 32));
    if (!status && most[1])
        status = share_opened(most[1]);
    if (!status && (most[0] || most[1]))
        status = operation_run_fixed(tensor_fixed(SHM_SLOT_BARRIER), SHM_BARRIER);
    return status;
}
