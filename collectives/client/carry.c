/* Sets that are carried from one membership to the next, by the numbers of their workers.
 *
 * When a rank leaves a membership it saves its sets (carry_save). In the next one the ranks agree about them
 * (api/agree_sets.c), and each set is made again, or is over. A set that is over stays here, for the sentence
 * of its error. */
#include "collectives/client/carry.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"

static struct {
    struct carried *set[2 * SHM_SETS_MAX];
    uint32_t *worker;    /* [size], of the present ranks */
    uint32_t *by_worker; /* [size], these ranks in the order of their workers */
    uint32_t size;
    struct carry_count count;
} carry;

struct carry_count *carry_count(void)
{
    return &carry.count;
}

/* ---- the present workers ------------------------------------------------------------------------------- */

static int compare_workers(const void *a, const void *b)
{
    uint32_t x = carry.worker[*(const uint32_t *)a], y = carry.worker[*(const uint32_t *)b];
    return x < y ? -1 : x > y;
}

static bool grow_list(uint32_t **list, uint32_t size)
{
    uint32_t *larger = realloc(*list, size * sizeof **list);
    if (!larger)
        return false;
    *list = larger;
    return true;
}

int carry_meet(void)
{
    uint32_t size = client.region.size;
    if (!client.region.elastic)
        return fail(HVD_ERR_ENGINE, "this host's engine knows no elastic jobs");
    if (!grow_list(&carry.worker, size) || !grow_list(&carry.by_worker, size))
        return fail(HVD_ERR_MEMORY, "no memory for the numbers of %u workers", size);
    memcpy(carry.worker, region_workers(&client.region), size * sizeof *carry.worker);
    for (uint32_t i = 0; i < size; i++)
        carry.by_worker[i] = i;
    carry.size = size;
    qsort(carry.by_worker, size, sizeof *carry.by_worker, compare_workers);
    return HVD_SUCCESS;
}

/* UINT32_MAX: it has none. */
static uint32_t rank_of_worker(uint32_t worker)
{
    uint32_t low = 0, high = carry.size;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (carry.worker[carry.by_worker[mid]] < worker)
            low = mid + 1;
        else
            high = mid;
    }
    return low < carry.size && carry.worker[carry.by_worker[low]] == worker ? carry.by_worker[low]
                                                                            : UINT32_MAX;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t carry_ranks(const struct carried *c, uint32_t *rank)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t now = rank_of_worker(c->worker[i]);
        if (now != UINT32_MAX)
            rank[n++] = now;
    }
    qsort(rank, n, sizeof *rank, by_number);
    return n;
}

/* ---- the sets ------------------------------------------------------------------------------------------ */

struct carried *carry_new(uint32_t n, uint32_t membership)
{
    struct carried *c = malloc(sizeof *c + 2 * (size_t)n * sizeof *c->rank);
    if (!c) {
        fail(HVD_ERR_MEMORY, "no memory for a process set of %u ranks", n);
        return NULL;
    }
    *c = (struct carried){.membership = membership, .n = n, .worker = c->rank + n};
    return c;
}

struct carried *carry_find(hvd_set set)
{
    return carry.set[set];
}

void carry_drop(hvd_set set)
{
    struct carried *c = carry.set[set];
    if (c)
        free(c->name);
    free(c);
    carry.set[set] = NULL;
}

void carry_put(hvd_set set, struct carried *c)
{
    carry_drop(set);
    carry.set[set] = c;
}

void carry_drop_all(void)
{
    for (hvd_set set = 0; set < (hvd_set)(2 * SHM_SETS_MAX); set++)
        carry_drop(set);
    free(carry.worker);
    free(carry.by_worker);
    carry.worker = carry.by_worker = NULL;
    carry.size = 0;
    carry.count = (struct carry_count){0};
}

/* One name has one set of the same workers at a time. */
static uint64_t find_key(const struct carried *c, const char *name)
{
    uint64_t key = hash_number(HASH_EMPTY, c->n);
    for (; *name; name++)
        key = hash_number(key, (uint8_t)*name);
    for (uint32_t i = 0; i < c->n; i++)
        key = hash_number(key, c->worker[i]);
    return key ? key : 1;
}

void carry_save(hvd_set set, const struct team *team, const char *name)
{
    const struct carried *former = carry.set[set];
    struct carried *c = carry_new(team->size, client.epochs);
    for (uint32_t i = 0; c && i < team->size; i++) {
        c->rank[i] = team->rank[i];
        c->worker[i] = carry.worker[team->rank[i]];
    }
    if (c && name) {
        c->key = former ? former->key : find_key(c, name);
        c->name = strdup(name);
    }
    if (c && name && !c->name) {
        free(c);
        c = NULL;
    }
    carry_put(set, c);
}

int carry_refuse(hvd_set set)
{
    const struct carried *c =
        set >= 0 && set < (hvd_set)(2 * SHM_SETS_MAX) && carry_is_over(set) ? carry.set[set] : NULL;
    char ranks[96];
    if (!c)
        return fail(HVD_ERR_SET_UNKNOWN, "there is no process set %d", set);
    ranks_text(c->rank, c->n, ranks, sizeof ranks);
    if (c->name)
        return fail(
            HVD_ERR_SET_UNKNOWN,
            "process set %d (\"%s\", ranks %s of membership %u) is over: not all of its ranks that are left "
            "had it when the ranks changed",
            set, c->name, ranks, c->membership);
    return fail(HVD_ERR_SET_UNKNOWN, "process set %d (rank%s %s of membership %u) has no rank that is left",
                set, c->n > 1 ? "s" : "", ranks, c->membership);
}
