#include "launcher/elastic/roster.h"

#include <stdlib.h>
#include <string.h>

int roster_init(struct roster *r, uint32_t room)
{
    *r = (struct roster){.room = room};
    r->worker = calloc(room, sizeof *r->worker);
    return r->worker ? 0 : -1;
}

void roster_free(struct roster *r)
{
    free(r->worker);
    free(r->rank);
    *r = (struct roster){0};
}

uint32_t roster_add(struct roster *r, uint32_t host, uint32_t slot)
{
    if (r->count == r->room)
        return UINT32_MAX;
    r->worker[r->count] = (struct roster_worker){.host = host, .slot = slot};
    return r->count++;
}

int roster_begin(struct roster *r)
{
    r->rank = malloc((r->count ? r->count : 1) * sizeof *r->rank);
    if (!r->rank)
        return -1;
    for (uint32_t i = 0; i < r->count; i++) {
        r->rank[i] = i;
        r->worker[i].phase = ROSTER_MEMBER;
        r->worker[i].first = true;
    }
    r->size = r->count;
    r->number = 1;
    return 0;
}

static bool is_staying(const struct roster_worker *w)
{
    return w->phase == ROSTER_MEMBER && !w->leaves;
}

uint32_t roster_staying(const struct roster *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->size; i++)
        n += is_staying(&r->worker[r->rank[i]]);
    return n;
}

uint32_t roster_ready(const struct roster *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++)
        n += r->worker[i].phase == ROSTER_READY && !r->worker[i].leaves;
    return n;
}

uint32_t roster_starting(const struct roster *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++)
        n += r->worker[i].phase == ROSTER_STARTS && !r->worker[i].leaves;
    return n;
}

uint32_t roster_living(const struct roster *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++)
        n += r->worker[i].phase != ROSTER_GONE && !r->worker[i].leaves;
    return n;
}

/* The first worker that has the state, though it is to leave. */
static uint32_t find_holder(const struct roster *r)
{
    for (uint32_t i = 0; i < r->size; i++) {
        const struct roster_worker *w = &r->worker[r->rank[i]];
        if (w->phase == ROSTER_MEMBER && (w->trained || w->first))
            return r->rank[i];
    }
    return UINT32_MAX;
}

bool roster_has_state(const struct roster *r)
{
    for (uint32_t i = 0; i < r->size; i++) {
        const struct roster_worker *w = &r->worker[r->rank[i]];
        if (is_staying(w) && (w->trained || w->first))
            return true;
    }
    return false;
}

bool roster_has_holder(const struct roster *r)
{
    return find_holder(r) != UINT32_MAX;
}

bool roster_is_broken(const struct roster *r)
{
    for (uint32_t i = 0; i < r->size; i++)
        if (r->worker[r->rank[i]].phase == ROSTER_GONE)
            return true;
    return false;
}

bool roster_has_leavers(const struct roster *r)
{
    for (uint32_t i = 0; i < r->size; i++)
        if (r->worker[r->rank[i]].phase == ROSTER_MEMBER && r->worker[r->rank[i]].leaves)
            return true;
    return false;
}

bool roster_is_settled(const struct roster *r)
{
    for (uint32_t i = 0; i < r->size; i++)
        if (!r->worker[r->rank[i]].entered)
            return false;
    return true;
}

bool roster_all_wait(const struct roster *r)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < r->size; i++) {
        const struct roster_worker *w = &r->worker[r->rank[i]];
        if (w->phase == ROSTER_MEMBER && w->waits != r->number)
            return false;
        waiting += w->phase == ROSTER_MEMBER;
    }
    return waiting > 0;
}

static bool has_begun(const struct roster *r)
{
    for (uint32_t i = 0; i < r->size; i++)
        if (r->worker[r->rank[i]].entered)
            return true;
    return false;
}

bool roster_is_late(const struct roster *r, uint32_t worker)
{
    const struct roster_worker *w = &r->worker[worker];
    return w->phase == ROSTER_MEMBER && !w->entered && (!w->arrived || has_begun(r)) &&
           roster_rank_of(r, worker) != UINT32_MAX;
}

bool roster_is_needless(const struct roster *r, uint32_t worker)
{
    if (r->worker[worker].phase == ROSTER_GONE)
        return false;
    if (!r->worker[worker].trained) /* of a program without libhvd too, whose workers wait for nothing */
        return !r->worker[worker].first || r->worker[worker].arrived;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->worker[i].phase == ROSTER_MEMBER && r->worker[i].trained && r->worker[i].waits == 0)
            return false;
    return true;
}

void roster_enter(struct roster *r, uint32_t worker, uint32_t membership)
{
    struct roster_worker *w = &r->worker[worker];
    w->waits = 0;
    w->arrived = false;
    w->trained = true;
    if (membership == r->number && roster_rank_of(r, worker) != UINT32_MAX)
        w->entered = true;
}

void roster_wait(struct roster *r, uint32_t worker, uint32_t left)
{
    struct roster_worker *w = &r->worker[worker];
    w->waits = left;
    w->arrived = true;
    if (w->phase == ROSTER_STARTS)
        w->phase = ROSTER_READY;
}

bool roster_slot_is_taken(const struct roster *r, uint32_t host, uint32_t slot)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->worker[i].phase != ROSTER_GONE && r->worker[i].host == host && r->worker[i].slot == slot)
            return true;
    return false;
}

/* Workers that are ready, host by host. */
static uint32_t add_ready(const struct roster *r, uint32_t *next, uint32_t size, uint32_t most)
{
    uint32_t hosts = 0;
    for (uint32_t i = 0; i < r->count; i++)
        hosts = r->worker[i].host >= hosts ? r->worker[i].host + 1 : hosts;
    for (uint32_t h = 0; h < hosts; h++)
        for (uint32_t i = 0; i < r->count && size < most; i++)
            if (r->worker[i].host == h && r->worker[i].phase == ROSTER_READY && !r->worker[i].leaves)
                next[size++] = i;
    return size;
}

int roster_advance(struct roster *r, uint32_t most)
{
    uint32_t *next = malloc((r->count ? r->count : 1) * sizeof *next), size = 0;
    if (!next)
        return -1;
    for (uint32_t i = 0; i < r->size && size < most; i++)
        if (is_staying(&r->worker[r->rank[i]]))
            next[size++] = r->rank[i];
    if (!roster_has_state(r) && find_holder(r) != UINT32_MAX) {
        most = most < 2 ? 2 : most; /* it is to give the state to another one */
        memmove(next + 1, next, size * sizeof *next);
        next[0] = find_holder(r);
        size++;
    }
    size = add_ready(r, next, size, most);
    free(r->rank);
    r->rank = next;
    r->size = size;
    r->number++;
    for (uint32_t i = 0; i < size; i++) {
        r->worker[next[i]].phase = ROSTER_MEMBER;
        r->worker[next[i]].entered = false;
    }
    return 0;
}

uint32_t roster_rank_of(const struct roster *r, uint32_t worker)
{
    for (uint32_t i = 0; i < r->size; i++)
        if (r->rank[i] == worker)
            return i;
    return UINT32_MAX;
}
