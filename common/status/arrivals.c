#include "common/status/arrivals.h"

#include <stdlib.h>
#include <string.h>

#define WAITING_MAX 16384u /* arrivals at operations that are not complete; the oldest are dropped */

/* A worker's arrival at an operation that others have not come to yet. */
struct waiting {
    struct flight_beginning at;
    uint32_t worker, looks; /* since it was seen */
};

struct arrivals {
    uint32_t pid[FLIGHT_WORKERS], seen[FLIGHT_WORKERS][FLIGHT_RINGS];
    struct waiting *waiting;
    size_t count, room;
    struct arrival *chosen; /* [most], by id */
    size_t chosens, most;
    struct flight_beginning read[FLIGHT_EACH_MAX];
};

struct arrivals *arrivals_new(uint32_t most)
{
    struct arrivals *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->most = most > 0 ? most : 1;
    a->chosen = calloc(a->most, sizeof *a->chosen);
    if (a->chosen)
        return a;
    free(a);
    return NULL;
}

void arrivals_clear(struct arrivals *a)
{
    for (size_t i = 0; i < a->chosens; i++) {
        free(a->chosen[i].pid);
        free(a->chosen[i].began);
    }
    a->chosens = 0;
}

void arrivals_free(struct arrivals *a)
{
    if (!a)
        return;
    arrivals_clear(a);
    free(a->chosen);
    free(a->waiting);
    free(a);
}

/* ---- news of the rings --------------------------------------------------------------------------------- */

/* An operation with this id would not be chosen. */
static bool is_too_high(const struct arrivals *a, uint64_t id)
{
    return a->chosens == a->most && id >= a->chosen[a->chosens - 1].id;
}

static bool make_room(struct arrivals *a, size_t more)
{
    if (a->count + more <= a->room)
        return true;
    size_t room = 2 * (a->count + more);
    struct waiting *grown = realloc(a->waiting, room * sizeof *grown);
    if (!grown)
        return false;
    a->waiting = grown;
    a->room = room;
    return true;
}

static bool collect_worker(struct arrivals *a, const struct flight *f, uint32_t worker)
{
    uint32_t pid = flight_pid(f, worker);
    if (pid != a->pid[worker])
        memset(a->seen[worker], 0, sizeof a->seen[worker]);
    a->pid[worker] = pid;
    size_t n = flight_read_beginnings(f, worker, a->seen[worker], a->read);
    if (n > 0 && !make_room(a, n))
        return true;
    for (size_t i = 0; i < n; i++)
        if (!is_too_high(a, a->read[i].id))
            a->waiting[a->count++] = (struct waiting){.at = a->read[i], .worker = worker};
    return n > 0;
}

/* ---- complete operations ------------------------------------------------------------------------------- */

static int compare_operations(const void *x, const void *y)
{
    const struct waiting *a = x, *b = y;
    if (a->at.id != b->at.id)
        return a->at.id < b->at.id ? -1 : 1;
    return (a->worker > b->worker) - (a->worker < b->worker);
}

static int compare_ages(const void *x, const void *y)
{
    const struct waiting *a = x, *b = y;
    return (a->looks > b->looks) - (a->looks < b->looks);
}

/* At its place by id; the highest of too many is dropped. */
static void insert_chosen(struct arrivals *a, const struct arrival *new)
{
    if (a->chosens == a->most) {
        struct arrival *last = &a->chosen[--a->chosens];
        free(last->pid);
        free(last->began);
    }
    size_t at = a->chosens++;
    for (; at > 0 && a->chosen[at - 1].id > new->id; at--)
        a->chosen[at] = a->chosen[at - 1];
    a->chosen[at] = *new;
}

static void choose_operation(struct arrivals *a, const struct flight *f, const struct waiting *w,
                             uint32_t count)
{
    struct arrival new = {.id = w->at.id, .count = count, .operation = w->at.operation};
    if (is_too_high(a, new.id))
        return;
    new.pid = calloc(count, sizeof *new.pid);
    new.began = calloc(count, sizeof *new.began);
    if (!new.pid || !new.began) {
        free(new.pid);
        free(new.began);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        new.pid[i] = a->pid[w[i].worker];
        new.began[i] = w[i].at.began;
    }
    flight_copy_name(f, w->at.slot, w->at.ticks, new.name);
    insert_chosen(a, &new);
}

/* A worker's name for a second operation may be the same by chance: such a run is no operation. */
static bool is_complete(const struct waiting *w, size_t count, uint32_t expected)
{
    for (size_t i = 1; i < count; i++)
        if (w[i].worker == w[i - 1].worker)
            return false;
    return count >= expected;
}

static void take_complete(struct arrivals *a, const struct flight *f, uint32_t expected)
{
    size_t kept = 0;
    for (size_t i = 0, next; i < a->count; i = next) {
        for (next = i + 1; next < a->count && a->waiting[next].at.id == a->waiting[i].at.id;)
            next++;
        if (is_complete(&a->waiting[i], next - i, expected)) {
            choose_operation(a, f, &a->waiting[i], (uint32_t)(next - i));
            continue;
        }
        for (; i < next; i++) {
            a->waiting[kept] = a->waiting[i];
            a->waiting[kept++].looks++;
        }
    }
    a->count = kept;
}

bool arrivals_look(struct arrivals *a, const struct flight *f, uint32_t expected)
{
    bool some = false;
    for (uint32_t i = 0; i < FLIGHT_WORKERS && flight_pid(f, i); i++)
        some = collect_worker(a, f, i) || some;
    if (a->count == 0 || expected == 0)
        return some;
    qsort(a->waiting, a->count, sizeof *a->waiting, compare_operations);
    take_complete(a, f, expected);
    if (a->count > WAITING_MAX) {
        qsort(a->waiting, a->count, sizeof *a->waiting, compare_ages);
        a->count = WAITING_MAX / 2;
    }
    return some;
}

const struct arrival *arrivals_chosen(const struct arrivals *a, size_t *count)
{
    *count = a->chosens;
    return a->chosen;
}

size_t arrivals_waiting(const struct arrivals *a)
{
    return a->count;
}
