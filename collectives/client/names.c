/* A tensor's name to its slot. The engine hands out slots; each process keeps what it was told. */
#include "collectives/client/internal.h"

#include <stdlib.h>
#include <string.h>
#include "common/hash.h"

static uint32_t hash_name(const struct team *team, const char *name)
{
    return hash_text((uint32_t)team->id, name);
}

static struct tensor *tensor_make(const struct team *team, const char *name, uint32_t hash, uint32_t slot)
{
    struct tensor *t = calloc(1, sizeof *t);
    uint32_t index = own_index(team);

    if (!t || !(t->name = strdup(name)) ||
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
    t->generation = client.generations;
    pthread_mutex_init(&t->lock, NULL);
    t->next = client.bucket[hash % NAME_BUCKETS];
    client.bucket[hash % NAME_BUCKETS] = t;
    t->older = client.newest;
    client.newest = t;
    atomic_store_explicit(&client.by_slot[slot], t, memory_order_release);
    return t;
}

static struct tensor *look_up(const struct team *team, const char *name, uint32_t hash)
{
    struct tensor *t = client.bucket[hash % NAME_BUCKETS];

    while (t && (t->hash != hash || t->view.team != team || strcmp(t->name, name) != 0))
        t = t->next;
    return t;
}

static int ask_slot(const struct team *team, const char *name, size_t len, uint32_t *slot)
{
    struct worker_message m = {.type = WORKER_NAME, .set = team->id};
    int status;

    if (client.solo) {
        *slot = SHM_SLOT_FIRST + client.solo_slots;
        if (*slot >= SHM_SLOTS)
            return fail(HVD_ERR_MEMORY, "more than %u tensor names: use the same names again",
                        SHM_SLOTS - SHM_SLOT_FIRST);
        client.solo_slots++;
        return HVD_SUCCESS;
    }
    memcpy(m.text, name, len + 1);
    if ((status = rpc(&m, -1, NULL, NULL)) != HVD_SUCCESS)
        return status;
    *slot = m.id;
    return m.id < SHM_SLOTS ? HVD_SUCCESS
                            : fail(HVD_ERR_ENGINE, "the engine names a slot that does not exist");
}

int tensor_find(const struct team *team, const char *name, struct tensor **found)
{
    size_t len = strlen(name);
    uint32_t hash = hash_name(team, name), slot;
    int status = HVD_SUCCESS;

    pthread_mutex_lock(&client.names_lock);
    *found = look_up(team, name, hash);
    if (!*found && (status = ask_slot(team, name, len, &slot)) == HVD_SUCCESS &&
        !(*found = tensor_make(team, name, hash, slot)))
        status = HVD_ERR_MEMORY;
    pthread_mutex_unlock(&client.names_lock);
    return status;
}

struct tensor *tensor_fixed(uint32_t slot)
{
    static const char *const names[] = {SHM_BARRIER_NAME, SHM_SHUTDOWN_NAME};
    struct tensor *t = atomic_load_explicit(&client.by_slot[slot], memory_order_acquire);
    const struct team *world = client.set[HVD_WORLD];

    if (t)
        return t;
    pthread_mutex_lock(&client.names_lock);
    t = atomic_load_explicit(&client.by_slot[slot], memory_order_acquire);
    if (!t)
        t = tensor_make(world, names[slot], hash_name(world, names[slot]), slot);
    pthread_mutex_unlock(&client.names_lock);
    return t;
}

bool tensors_pending(const struct team *team)
{
    bool pending = false;

    pthread_mutex_lock(&client.names_lock);
    for (struct tensor *t = client.newest; t && !pending; t = t->older) {
        if (t->view.team != team)
            continue;
        pending = !lock_unless_waited(t);
        if (pending)
            break;
        pending = t->phase != PHASE_IDLE || t->persistent;
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_unlock(&client.names_lock);
    return pending;
}

struct tensor *tensor_by_handle(hvd_handle handle)
{
    uint32_t slot = (uint32_t)(handle % (hvd_handle)SHM_SLOTS);

    return handle > 0 ? atomic_load_explicit(&client.by_slot[slot], memory_order_acquire) : NULL;
}

void tensors_free(void)
{
    pending_forget();
    while (client.newest) {
        struct tensor *t = client.newest;
        if (client.generations < t->generation) /* no handle of before names anything later */
            client.generations = t->generation;
        client.newest = t->older;
        client.bucket[t->hash % NAME_BUCKETS] = NULL;
        atomic_store(&client.by_slot[t->slot], NULL);
        tensor_view_free(&t->view);
        group_free(t->group);
        pthread_mutex_destroy(&t->lock);
        free(t->name);
        free(t);
    }
    client.solo_slots = 0;
}
