/* A tensor's name to its slot. The engine hands out slots, and each process remembers the slots it was given,
 * until the name is forgotten.
 *
 * Names are looked up without a lock, while another thread may forget the name and give the tensor another
 * one. So a tensor has a stamp. The stamp is read first, then the name. If the stamp is still the same when
 * the tensor is locked, the tensor is the name's. */
#include "collectives/client/names.h"
#include "collectives/client/sets.h"
#include "collectives/client/rpc.h"
#include "collectives/shm/doorbell.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/hash.h"

static uint32_t hash_name(const struct team *team, const char *name)
{
    return hash_text((uint32_t)team->id, name);
}

/* Another thread may look at the name without a lock. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_ARE_SEEN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(RACES_ARE_SEEN)
__attribute__((no_sanitize("thread"))) static bool is_same_text(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}
#else
static inline bool is_same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}
#endif

/* *stamp: of the tensor while it has that name. */
__attribute__((no_sanitize("thread"))) static bool is_named(const struct tensor *t, const struct team *team,
                                                            const char *name, uint32_t *stamp)
{
    *stamp = atomic_load_explicit(&t->stamp, memory_order_acquire);
    return t->view.team == team && is_same_text(t->name, name) && (*stamp & 1) == 0;
}

__attribute__((no_sanitize("thread"))) static struct tensor *
look_up(const struct team *team, const char *name, uint32_t hash, uint32_t *stamp)
{
    struct tensor *t = atomic_load_explicit(&client.tensors.bucket[hash % SHM_SLOTS], memory_order_acquire);

    while (t && (t->hash != hash || !is_named(t, team, name, stamp)))
        t = atomic_load_explicit(&t->next, memory_order_acquire);
    return t;
}

struct tensor *tensor_known(const struct team *team, const char *name)
{
    uint32_t stamp;
    return look_up(team, name, hash_name(team, name), &stamp);
}

/* ---- new names ----------------------------------------------------------------------------------------- */

/* The memory of a forgotten tensor, or new memory; locked. A thread that had found the forgotten one may hold
 * the lock for a moment. names_lock is held. */
static struct tensor *take_memory(void)
{
    struct tensor **at = &client.tensors.free, *t;

    while (*at && pthread_mutex_trylock(&(*at)->lock) != 0)
        at = &(*at)->next_free;
    t = *at;
    if (t) {
        *at = t->next_free;
        return t;
    }
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    (void)pthread_mutex_trylock(&t->lock); /* nobody else knows it */
    atomic_store_explicit(&t->stamp, 1, memory_order_relaxed);
    t->older = client.tensors.newest;
    client.tensors.newest = t;
    return t;
}

static void give_memory(struct tensor *t)
{
    t->next_free = client.tensors.free;
    client.tensors.free = t;
    pthread_mutex_unlock(&t->lock);
}

static void remember_places(struct tensor *t, const struct team *team)
{
    t->ahead.me = (uint16_t)team->local[t->view.me];
    t->ahead.members = 0;
    for (uint32_t i = 0; i < team->members && t->ahead.members < AHEAD_MEMBERS; i++)
        if (i != t->view.me)
            t->ahead.other[t->ahead.members++] = (uint16_t)team->local[i];
}

/* Everything of an earlier name has gone. If this rank has had the slot before, its operations still
 * count. */
static void begin_tensor(struct tensor *t, const struct team *team, const char *name, uint32_t hash,
                         uint32_t slot)
{
    t->view.team = team;
    t->index = team_own_index(team);
    t->hash = hash;
    t->slot = slot;
    memcpy(t->name, name, strlen(name) + 1);
    t->generation = client.tensors.generations;
    t->sequence = client.solo ? 0 : tensor_latest(&t->view, t->view.me);
    t->phase = PHASE_IDLE;
    if (!client.solo)
        remember_places(t, team);
    t->polls = (struct watchdog){0};
    t->notified = t->traced = 0;
    t->open = 0;
    atomic_store_explicit(&t->ahead.follows, NULL, memory_order_relaxed);
}

static struct tensor *tensor_make(const struct team *team, const char *name, uint32_t hash, uint32_t slot)
{
    struct tensor *t = take_memory();

    if (!t || (!client.solo && tensor_view_init(&t->view, &client.region, team, slot,
                                                team_member(team, team_own_index(team))) != 0)) {
        if (t)
            give_memory(t);
        fail(HVD_ERR_MEMORY, "no memory for tensor \"%s\"", name);
        return NULL;
    }
    begin_tensor(t, team, name, hash, slot);
    atomic_store_explicit(&t->next, atomic_load(&client.tensors.bucket[hash % SHM_SLOTS]),
                          memory_order_relaxed);
    atomic_fetch_add(&t->stamp, 1);
    atomic_store_explicit(&client.tensors.bucket[hash % SHM_SLOTS], t, memory_order_release);
    atomic_store_explicit(&client.tensors.by_slot[slot], t, memory_order_release);
    pthread_mutex_unlock(&t->lock);
    return t;
}

static uint32_t take_solo_slot(void)
{
    if (client.tensors.solo_frees > 0)
        return client.tensors.solo_free[--client.tensors.solo_frees];
    return client.tensors.solo_slots < SHM_SLOTS - SHM_SLOT_FIRST
               ? SHM_SLOT_FIRST + client.tensors.solo_slots++
               : SHM_SLOTS;
}

/* SHM_SLOTS: none is free. *wanting: what the engine has to hear from all ranks of this host then. */
static int ask_slot(const struct team *team, const char *name, uint32_t *wanting, uint32_t *slot)
{
    struct worker_message m = {.type = WORKER_NAME, .set = team->id, .epoch = *wanting};
    int status;

    if (client.solo) {
        *slot = take_solo_slot();
        if (*slot < SHM_SLOTS || *wanting == 0) {
            *wanting = 1;
            return HVD_SUCCESS;
        }
        return fail(HVD_ERR_MEMORY, "%u tensors are pending at once", SHM_SLOTS - SHM_SLOT_FIRST);
    }
    memcpy(m.text, name, strlen(name) + 1);
    if (set_is_told_with_names(team)) {
        m.id = team->size;
        memcpy(m.text + strlen(name) + 1, team->rank, team->size * sizeof *team->rank);
    }
    status = rpc(&m, -1, NULL, NULL);
    if (status != HVD_SUCCESS)
        return status;
    *slot = m.id;
    *wanting = m.epoch;
    return m.id <= SHM_SLOTS ? HVD_SUCCESS
                             : fail(HVD_ERR_ENGINE, "the engine names a slot that does not exist");
}

/* One try. NULL in *found: there is no free slot now. */
static int try_to_make(const struct team *team, const char *name, uint32_t hash, uint32_t *wanting,
                       struct tensor **found, uint32_t *stamp)
{
    uint32_t slot;
    int status = HVD_SUCCESS;

    pthread_mutex_lock(&client.names_lock);
    *found = look_up(team, name, hash, stamp);
    if (!*found && (status = ask_slot(team, name, wanting, &slot)) == HVD_SUCCESS && slot < SHM_SLOTS) {
        *found = tensor_make(team, name, hash, slot);
        if (*found)
            *stamp = atomic_load(&(*found)->stamp);
        else
            status = last_failure();
    }
    pthread_mutex_unlock(&client.names_lock);
    return status;
}

/* No slot is free: this rank gives back its idle ones, and waits for the others of this host. The engine
 * rings when it can say more. */
static int make_when_free(const struct team *team, const char *name, uint32_t hash, struct tensor **found,
                          uint32_t *stamp)
{
    uint32_t wanting = 0, prepared = 0;
    struct watchdog w = {0};
    int status = try_to_make(team, name, hash, &wanting, found, stamp);

    while (status == HVD_SUCCESS && !*found) {
        forget_idle();
        rank_link_drain();
        if (!client.solo)
            prepared = doorbell_prepare(client.mailbox);
        status = try_to_make(team, name, hash, &wanting, found, stamp);
        if (client.solo)
            continue;
        if (status != HVD_SUCCESS || *found || forget_is_wanted())
            doorbell_cancel(client.mailbox);
        else if (!engine_sleep(prepared, ENGINE_SLICE_MS, &w)) {
            engine_lose();
            status =
                fail(HVD_ERR_ENGINE, "tensor \"%s\": this host's engine has gone or does not move", name);
        }
        if (status == HVD_SUCCESS && !*found && region_poisoned(&client.region))
            status = fail_poisoned();
    }
    return status;
}

/* ---- the order of calls -------------------------------------------------------------------------------- */

/* A program uses the same names in the same order in every step, or one name again and again. So the tensor
 * that followed the latest one is tried first, and then the latest one, without a hash. NULL: the name is
 * another one. */
static struct tensor *look_after(struct tensor *latest, const struct team *team, const char *name,
                                 uint32_t *stamp)
{
    struct tensor *t = latest ? atomic_load_explicit(&latest->ahead.follows, memory_order_acquire) : NULL;

    if (t && is_named(t, team, name, stamp))
        return t;
    return latest && is_named(latest, team, name, stamp) ? latest : NULL;
}

/* Another thread may change the tensor meanwhile. A wrong parity only prefetches the wrong lines. */
__attribute__((no_sanitize("thread"))) static void prefetch_entries(const struct tensor *t)
{
    uint32_t operation = t->sequence + (t->phase == PHASE_IDLE);
    for (uint32_t i = 0; i < t->ahead.members; i++)
        __builtin_prefetch(region_entry(&client.region, t->slot, t->ahead.other[i], operation));
    __builtin_prefetch(region_entry(&client.region, t->slot, t->ahead.me, operation), 1);
}

void tensor_prefetch_next(const struct tensor *t)
{
    const struct tensor *next = atomic_load_explicit(&t->ahead.follows, memory_order_acquire);
    if (!next || client.solo)
        return;
    prefetch_entries(next);
    __builtin_prefetch(next->name);
    const struct tensor *after = atomic_load_explicit(&next->ahead.follows, memory_order_acquire);
    if (after == NULL)
        return;
    for (const char *line = (const char *)after; line < after->text; line += SHM_LINE)
        __builtin_prefetch(line, 1);
}

static void remember_latest(struct tensor *latest, struct tensor *t)
{
    if (latest == t) /* the same name again and again: whatever follows one day is no matter now */
        return;
    if (latest && atomic_load_explicit(&latest->ahead.follows, memory_order_relaxed) != t)
        atomic_store_explicit(&latest->ahead.follows, t, memory_order_release);
    atomic_store_explicit(&client.tensors.latest, t, memory_order_release);
    tensor_prefetch_next(t);
}

/* Not locked: `stamp` says whether it is the name's still. */
static inline int find_tensor(const struct team *team, const char *name, struct tensor **found,
                              uint32_t *stamp)
{
    struct tensor *latest = atomic_load_explicit(&client.tensors.latest, memory_order_acquire);
    struct tensor *t = look_after(latest, team, name, stamp);
    uint32_t hash;
    int status = HVD_SUCCESS;
    if (!t) {
        hash = hash_name(team, name);
        t = look_up(team, name, hash, stamp);
    }
    if (!t)
        status = make_when_free(team, name, hash, &t, stamp);
    if (t)
        remember_latest(latest, t);
    *found = t;
    return status;
}

static bool is_stamped(const struct tensor *t, uint32_t stamp)
{
    return atomic_load_explicit(&t->stamp, memory_order_relaxed) == stamp;
}

/* Waits for the lock. */
static int lock_tensor(const struct team *team, const char *name, struct tensor **t)
{
    uint32_t stamp;
    int status;

    while ((status = find_tensor(team, name, t, &stamp)) == HVD_SUCCESS) {
        pthread_mutex_lock(&(*t)->lock);
        if (is_stamped(*t, stamp))
            return HVD_SUCCESS;
        pthread_mutex_unlock(&(*t)->lock);
    }
    return status;
}

int tensor_keep(const struct team *team, const char *name, struct tensor **t)
{
    int status = lock_tensor(team, name, t);

    if (status == HVD_SUCCESS) {
        (*t)->kept = true;
        pthread_mutex_unlock(&(*t)->lock);
    }
    return status;
}

static struct tensor *find_fixed(uint32_t slot)
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

struct tensor *tensor_fixed(uint32_t slot)
{
    struct tensor *t = find_fixed(slot);

    if (t)
        pthread_mutex_lock(&t->lock);
    return t;
}

static const struct team *team_of(int32_t id)
{
    uint32_t rank[2];
    if (team_pair_ranks(id, rank))
        return pair_find(rank[0] == (uint32_t)client.rank ? rank[1] : rank[0]);
    return id < (int32_t)SHM_SETS_MAX ? set_find(id) : set_find_opened(id);
}

int tensor_of_slot(uint32_t slot, struct tensor **found)
{
    struct worker_message m = {.type = WORKER_SLOT, .id = slot};
    uint32_t stamp;
    int status;

    if (slot < SHM_SLOT_FIRST)
        return (*found = find_fixed(slot)) ? HVD_SUCCESS : HVD_ERR_MEMORY;
    if ((*found = atomic_load_explicit(&client.tensors.by_slot[slot % SHM_SLOTS], memory_order_acquire)) !=
        NULL)
        return HVD_SUCCESS;
    status = rpc(&m, -1, NULL, NULL);
    if (status != HVD_SUCCESS || m.text[0] == '\0')
        return status;
    const struct team *team = team_of(m.set);
    if (!team) /* a set of hvd_set_open has been closed meanwhile */
        return m.set >= (int32_t)SHM_SETS_MAX ? HVD_SUCCESS : last_failure();
    m.text[SHM_NAME_MAX] = '\0';
    return team_own_index(team) == UINT32_MAX ? HVD_SUCCESS : find_tensor(team, m.text, found, &stamp);
}

bool tensor_has_slot(const struct tensor *t, uint32_t slot)
{
    return t->slot == slot && (atomic_load(&t->stamp) & 1) == 0;
}

static bool is_of_team(const struct tensor *t, const struct team *team)
{
    bool is;

    pthread_mutex_lock(&client.names_lock);
    is = t->view.team == team && (atomic_load(&t->stamp) & 1) == 0;
    pthread_mutex_unlock(&client.names_lock);
    return is;
}

/* The list grows at its begin only, and a thread with a tensor's lock may need names_lock: so names_lock is
 * not held here. */
bool tensors_exist(const struct team *team)
{
    bool exist = false;
    pthread_mutex_lock(&client.names_lock);
    for (const struct tensor *t = client.tensors.newest; t && !exist; t = t->older)
        exist = t->view.team == team && (atomic_load(&t->stamp) & 1) == 0;
    pthread_mutex_unlock(&client.names_lock);
    return exist;
}

bool tensors_pending(const struct team *team)
{
    bool pending = false;
    pthread_mutex_lock(&client.names_lock);
    struct tensor *t = client.tensors.newest;
    pthread_mutex_unlock(&client.names_lock);
    for (; t && !pending; t = t->older) {
        if (!is_of_team(t, team))
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
    uint32_t stamp;
    int status;

    while ((status = find_tensor(team, name, t, &stamp)) == HVD_SUCCESS) {
        bool locked = lock_unless_waited(&(*t)->lock), right = is_stamped(*t, stamp);
        if (__builtin_expect(locked && right, 1))
            return HVD_SUCCESS;
        if (locked)
            pthread_mutex_unlock(&(*t)->lock);
        else if (right)
            return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": an operation of this name is pending already",
                        name);
    }
    return status;
}

struct tensor *tensor_barrier(const struct team *team)
{
    struct tensor *t;

    if (team->id == HVD_WORLD)
        return tensor_fixed(SHM_SLOT_BARRIER);
    if (lock_tensor(team, SHM_BARRIER_NAME, &t) != HVD_SUCCESS)
        return NULL;
    t->kept = true;
    return t;
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
        client.tensors.newest = t->older;
        if ((atomic_load(&t->stamp) & 1) == 0)
            forget_tensor(t);
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
    client.tensors.free = NULL;
    client.tensors.solo_slots = client.tensors.solo_frees = 0;
    atomic_store(&client.tensors.answered, 0);
}
