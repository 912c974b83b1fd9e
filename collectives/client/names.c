/* A tensor's name to its slot. The engine hands out slots, and each process remembers the slots it was
 * given. */
#include "collectives/client/names.h"
#include "collectives/client/sets.h"
#include "collectives/client/rpc.h"
#include "collectives/client/group.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/hash.h"

static uint32_t hash_name(const struct team *team, const char *name)
{
    return hash_text((uint32_t)team->id, name);
}

static struct tensor *tensor_make(const struct team *team, const char *name, uint32_t hash, uint32_t slot)
{
    struct tensor *t = calloc(1, sizeof *t);
    uint32_t index = team_own_index(team);
    if (t)
        t->name = strdup(name);
    if (!t || !t->name ||
        (!client.solo &&
         tensor_view_init(&t->view, &client.region, team, slot, team_member(team, index)) != 0)) {
        if (t)
            free(t->name);
        free(t);
        fail(HVD_ERR_MEMORY, "no memory for tensor \"%s\"", name);
        return NULL;
    }
    t->view.team = team;
    t->index = index;
    t->hash = hash;
    t->slot = slot;
    t->generation = client.tensors.generations;
    pthread_mutex_init(&t->lock, NULL);
    t->next = atomic_load_explicit(&client.tensors.bucket[hash % SHM_SLOTS], memory_order_relaxed);
    atomic_store_explicit(&client.tensors.bucket[hash % SHM_SLOTS], t, memory_order_release);
    t->older = client.tensors.newest;
    client.tensors.newest = t;
    atomic_store_explicit(&client.tensors.by_slot[slot], t, memory_order_release);
    return t;
}

static bool is_named(const struct tensor *t, const struct team *team, const char *name)
{
    return t->view.team == team && strcmp(t->name, name) == 0;
}

static struct tensor *look_up(const struct team *team, const char *name, uint32_t hash)
{
    struct tensor *t = atomic_load_explicit(&client.tensors.bucket[hash % SHM_SLOTS], memory_order_acquire);
    while (t && (t->hash != hash || !is_named(t, team, name)))
        t = t->next;
    return t;
}

static int ask_slot(const struct team *team, const char *name, size_t len, uint32_t *slot)
{
    struct worker_message m = {.type = WORKER_NAME, .set = team->id};
    if (client.solo) {
        *slot = SHM_SLOT_FIRST + client.tensors.solo_slots;
        if (*slot >= SHM_SLOTS)
            return fail(HVD_ERR_MEMORY, "more than %u tensor names: use the same names again",
                        SHM_SLOTS - SHM_SLOT_FIRST);
        client.tensors.solo_slots++;
        return HVD_SUCCESS;
    }
    memcpy(m.text, name, len + 1);
    int status = rpc(&m, -1, NULL, NULL);
    if (status != HVD_SUCCESS)
        return status;
    *slot = m.id;
    return m.id < SHM_SLOTS ? HVD_SUCCESS
                            : fail(HVD_ERR_ENGINE, "the engine names a slot that does not exist");
}

/* Asks for a slot, and makes the tensor in that slot. NULL: *status, after fail(). */
static struct tensor *add_tensor(const struct team *team, const char *name, uint32_t hash, int *status)
{
    uint32_t slot;
    *status = ask_slot(team, name, strlen(name), &slot);
    if (*status != HVD_SUCCESS)
        return NULL;
    struct tensor *t = tensor_make(team, name, hash, slot);
    *status = t ? HVD_SUCCESS : HVD_ERR_MEMORY;
    return t;
}

/* ---- the order of calls -------------------------------------------------------------------------------- */

#define PREFETCHED_MEMBERS 8u

/* A program uses the same names in the same order in every step. So the tensor that followed the latest one
 * is tried first, without a hash. NULL: the name is another one. */
static struct tensor *look_after(const struct tensor *latest, const struct team *team, const char *name)
{
    struct tensor *t = latest ? atomic_load_explicit(&latest->follows, memory_order_acquire) : NULL;
    return t && is_named(t, team, name) ? t : NULL;
}

/* Another thread may change the tensor meanwhile. A wrong parity only prefetches the wrong lines. */
__attribute__((no_sanitize("thread"))) static void prefetch_entries(const struct tensor *t)
{
    uint32_t members = t->view.team->members, me = t->view.me;
    uint32_t operation = t->sequence + (t->phase == PHASE_IDLE);
    for (uint32_t i = 0; i < members && i < PREFETCHED_MEMBERS; i++)
        if (i != me)
            __builtin_prefetch(tensor_entry_at(&t->view, i, operation));
    __builtin_prefetch(tensor_entry_at(&t->view, me, operation), 1);
}

void tensor_prefetch_next(const struct tensor *t)
{
    const struct tensor *next = atomic_load_explicit(&t->follows, memory_order_acquire);
    if (!next || client.solo)
        return;
    prefetch_entries(next);
    __builtin_prefetch(next->name);
    const struct tensor *after = atomic_load_explicit(&next->follows, memory_order_acquire);
    if (after == NULL)
        return;
    for (const char *line = (const char *)after; line < after->text; line += SHM_LINE)
        __builtin_prefetch(line, 1);
}

static void remember_latest(struct tensor *latest, struct tensor *t)
{
    if (latest == t) /* the same name again and again: whatever follows one day is no matter now */
        return;
    if (latest && atomic_load_explicit(&latest->follows, memory_order_relaxed) != t)
        atomic_store_explicit(&latest->follows, t, memory_order_release);
    atomic_store_explicit(&client.tensors.latest, t, memory_order_release);
    tensor_prefetch_next(t);
}

int tensor_find(const struct team *team, const char *name, struct tensor **found)
{
    struct tensor *latest = atomic_load_explicit(&client.tensors.latest, memory_order_acquire);
    struct tensor *t = look_after(latest, team, name);
    uint32_t hash;
    int status = HVD_SUCCESS;
    if (!t) {
        hash = hash_name(team, name);
        t = look_up(team, name, hash);
    }
    if (!t) {
        pthread_mutex_lock(&client.names_lock);
        t = look_up(team, name, hash);
        if (!t)
            t = add_tensor(team, name, hash, &status);
        pthread_mutex_unlock(&client.names_lock);
    }
    if (t)
        remember_latest(latest, t);
    *found = t;
    return status;
}

struct tensor *tensor_fixed(uint32_t slot)
{
    static const char *const names[] = {SHM_BARRIER_NAME, SHM_SHUTDOWN_NAME};
    struct tensor *t = atomic_load_explicit(&client.tensors.by_slot[slot], memory_order_acquire);
    const struct team *world = client.set[HVD_WORLD];
    if (t)
        return t;
    pthread_mutex_lock(&client.names_lock);
    t = atomic_load_explicit(&client.tensors.by_slot[slot], memory_order_acquire);
    if (!t)
        t = tensor_make(world, names[slot], hash_name(world, names[slot]), slot);
    pthread_mutex_unlock(&client.names_lock);
    return t;
}

static const struct team *team_of(int32_t id)
{
    uint32_t rank[2];
    if (team_pair_ranks(id, rank))
        return pair_find(rank[0] == (uint32_t)client.rank ? rank[1] : rank[0]);
    return set_find(id);
}

int tensor_of_slot(uint32_t slot, struct tensor **found)
{
    struct worker_message m = {.type = WORKER_SLOT, .id = slot};
    if (slot < SHM_SLOT_FIRST) {
        *found = tensor_fixed(slot);
        return *found ? HVD_SUCCESS : HVD_ERR_MEMORY;
    }
    *found = atomic_load_explicit(&client.tensors.by_slot[slot % SHM_SLOTS], memory_order_acquire);
    if (*found)
        return HVD_SUCCESS;
    int status = rpc(&m, -1, NULL, NULL);
    if (status != HVD_SUCCESS)
        return status;
    const struct team *team = team_of(m.set);
    if (!team)
        return last_failure();
    m.text[SHM_NAME_MAX] = '\0';
    return team_own_index(team) == UINT32_MAX ? HVD_SUCCESS : tensor_find(team, m.text, found);
}

/* The list grows at its begin only, and a thread with a tensor's lock may need names_lock: so names_lock is
 * not held here. */
bool tensors_pending(const struct team *team)
{
    bool pending = false;
    pthread_mutex_lock(&client.names_lock);
    struct tensor *t = client.tensors.newest;
    pthread_mutex_unlock(&client.names_lock);
    for (; t && !pending; t = t->older) {
        if (t->view.team != team)
            continue;
        pending = !lock_unless_waited(&t->lock);
        if (pending)
            break;
        pending = t->phase != PHASE_IDLE || t->persistent;
        pthread_mutex_unlock(&t->lock);
    }
    return pending;
}

int tensor_acquire(const struct team *team, const char *name, struct tensor **t)
{
    int status = tensor_find(team, name, t);
    if (status)
        return status;
    if (!lock_unless_waited(&(*t)->lock))
        return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": an operation of this name is pending already", name);
    return HVD_SUCCESS;
}

struct tensor *tensor_barrier(const struct team *team)
{
    if (team->id == HVD_WORLD)
        return tensor_fixed(SHM_SLOT_BARRIER);
    struct tensor *t;
    return tensor_find(team, SHM_BARRIER_NAME, &t) == HVD_SUCCESS ? t : NULL;
}

struct tensor *tensor_by_handle(hvd_handle handle)
{
    uint32_t slot = (uint32_t)(handle % (hvd_handle)SHM_SLOTS);
    return handle > 0 ? atomic_load_explicit(&client.tensors.by_slot[slot], memory_order_acquire) : NULL;
}

void tensors_free(void)
{
    atomic_store(&client.tensors.latest, NULL);
    while (client.tensors.newest) {
        struct tensor *t = client.tensors.newest;
        if (client.tensors.generations < t->generation) /* no handle of before names anything later */
            client.tensors.generations = t->generation;
        client.tensors.newest = t->older;
        atomic_store(&client.tensors.bucket[t->hash % SHM_SLOTS], NULL);
        atomic_store(&client.tensors.by_slot[t->slot], NULL);
        tensor_view_free(&t->view);
        group_free(t->op.group);
        if (t->gpu)
            client.gpu->free_tensor(t);
        pthread_mutex_destroy(&t->lock);
        free(t->name);
        free(t);
    }
    client.tensors.solo_slots = 0;
}
