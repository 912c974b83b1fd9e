/* Tensors without a use are forgotten, so that a job may have any number of names (engine/forget.h).
 *
 * The engine asks for idle slots by a counter in the header. A rank looks at the counter when it begins an
 * operation, and before it sleeps. It forgets all tensors that are idle and that no caller can still mean,
 * and gives their slots back in few messages. names_lock is held all the time: no other thread of this rank
 * can ask for such a name before the engine has heard that the slot was given back. */
#include "collectives/client/operation.h"

#include <string.h>

#include "collectives/client/arena.h"
#include "collectives/client/group.h"
#include "collectives/client/rpc.h"

struct given {
    struct worker_message message;
    uint32_t slot[WORKER_NUMBERS_MAX];
};

/* removed: only tensors of this team; NULL: of every team. The memory of a shared allreduce's result may
 * still be read, unless its set was closed. A tensor that was on a GPU stays in the orders of GPUs. */
static bool is_idle(const struct tensor *t, const struct team *removed)
{
    if ((atomic_load(&t->stamp) & 1) != 0 || t->slot < SHM_SLOT_FIRST)
        return false;
    if (removed ? t->view.team != removed : t->kept)
        return false;
    if (t->shared.memory && (!removed || removed->id < (int32_t)SHM_SETS_MAX))
        return false;
    return t->phase == PHASE_IDLE && !t->persistent && !t->deferred && !t->gpu;
}

static void leave_bucket(struct tensor *t)
{
    struct tensor *_Atomic *at = &client.tensors.bucket[t->hash % SHM_SLOTS];
    struct tensor *next = atomic_load(&t->next);

    while (atomic_load(at) != t)
        at = &atomic_load(at)->next;
    atomic_store(at, next);
}

void forget_tensor(struct tensor *t)
{
    leave_bucket(t);
    atomic_store(&client.tensors.by_slot[t->slot], NULL);
    atomic_fetch_add(&t->stamp, 1);
    if (client.tensors.generations < t->generation) /* no handle of before names anything later */
        client.tensors.generations = t->generation;
    if (client.solo)
        client.tensors.solo_free[client.tensors.solo_frees++] = t->slot;
    tensor_view_free(&t->view);
    group_free(t->op.group);
    t->op.group = NULL;
    if (t->gpu)
        client.gpu->free_tensor(t);
    t->kept = false;
    t->link = NULL;
    arena_free(t->shared.memory);
    arena_free(t->shared.before);
    t->shared = (struct shared_result){0};
    t->next_free = client.tensors.free;
    client.tensors.free = t;
}

/* `wanting`: what these, the last ones, answer; 0: more follow. */
static void send_given(struct given *given, uint32_t wanting)
{
    struct worker_message *m = &given->message;
    uint32_t slots = m->id;

    m->id = 0;
    if (client.solo || (slots == 0 && wanting == 0))
        return;
    *m = (struct worker_message){.type = WORKER_FORGET, .id = slots, .epoch = wanting};
    memcpy(m->text, given->slot, slots * sizeof *given->slot);
    rpc(m, -1, NULL, NULL); /* an engine that has gone needs none */
    m->id = 0;
}

/* A thread that submits or waits holds its tensor's lock: that one is in use. */
static void forget_if_idle(struct tensor *t, const struct team *removed, struct given *given)
{
    if (pthread_mutex_trylock(&t->lock) != 0)
        return;
    if (is_idle(t, removed)) {
        given->slot[given->message.id++] = t->slot;
        forget_tensor(t);
    }
    pthread_mutex_unlock(&t->lock);
    if (given->message.id == WORKER_NUMBERS_MAX)
        send_given(given, 0);
}

/* names_lock is held. `wanting` as in send_given. */
static void forget_all(const struct team *removed, uint32_t wanting)
{
    struct given given;

    given.message.id = 0;
    for (struct tensor *t = client.tensors.newest; t; t = t->older)
        forget_if_idle(t, removed, &given);
    send_given(&given, wanting);
}

void forget_idle(void)
{
    uint32_t wanting = 0;

    rank_link_stop();
    if (!lookers_trylock())
        return; /* another thread looks; who needs the slots comes again */
    pthread_mutex_lock(&client.names_lock);
    if (!client.solo)
        wanting = atomic_load(&client.region.header->wanting);
    forget_all(NULL, wanting);
    atomic_store(&client.tensors.answered, wanting);
    pthread_mutex_unlock(&client.names_lock);
    lookers_unlock();
}

void forget_team(const struct team *removed)
{
    lookers_lock(); /* this thread holds no lock of a tensor */
    pthread_mutex_lock(&client.names_lock);
    forget_all(removed, 0);
    pthread_mutex_unlock(&client.names_lock);
    lookers_unlock();
}

void forget_tensors(struct tensor *const *tensor, uint32_t n)
{
    struct given given;

    given.message.id = 0;
    lookers_lock();
    pthread_mutex_lock(&client.names_lock);
    for (uint32_t i = 0; i < n; i++)
        if (tensor[i])
            forget_if_idle(tensor[i], NULL, &given);
    send_given(&given, 0);
    pthread_mutex_unlock(&client.names_lock);
    lookers_unlock();
}
