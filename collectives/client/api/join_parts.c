/* The operations of a joined rank that have not ended: its own from before the join, and its parts in the
 * operations of others. A name may have an older operation that a handle of this rank still names; that
 * operation is set aside in the part meanwhile. */
#include "collectives/client/api/join.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/shm/doorbell.h"

/* One of this rank's operations that has not ended. */
struct part {
    struct tensor *tensor;
    bool own;       /* begun before the join; else what follows was put aside: */
    uint32_t stamp; /* of the tensor: its name may be forgotten once its own operation was waited for */
    bool persistent;
    bool on_path; /* the operation's path has its result */
    uint32_t generation;
    enum phase phase;
    struct operation operation;
    char text[SHM_TEXT_MAX];
};

int parts_no_memory(void)
{
    return fail(HVD_ERR_MEMORY, "hvd_join: no memory for pending operations");
}

struct part *parts_add(struct parts *all, struct tensor *t, bool own)
{
    struct part *p = calloc(1, sizeof *p);
    if (!p || !grow_array((void **)&all->part, &all->capacity, all->number, sizeof *all->part)) {
        free(p);
        parts_no_memory();
        return NULL;
    }
    p->tensor = t;
    p->stamp = atomic_load(&t->stamp);
    p->own = own;
    all->part[all->number++] = p;
    all->own += own;
    return p;
}

void part_defer(struct part *p)
{
    struct tensor *t = p->tensor;
    if (is_sized(&t->op) && t->op.sized.due)
        sized_hold(t);
    p->persistent = t->persistent;
    p->on_path = t->phase == PHASE_ENDED && t->op.path && t->op.path->result && t->op.status == HVD_SUCCESS;
    p->generation = t->generation;
    p->phase = t->phase;
    p->operation = t->op;
    memcpy(p->text, t->text, sizeof p->text);
    t->persistent = false;
    t->generation = 0; /* of no handle */
    t->phase = PHASE_IDLE;
    t->deferred = p;
}

void part_restore(const struct part *p)
{
    struct tensor *t = p->tensor;
    t->op = p->operation;
    memcpy(t->text, p->text, sizeof p->text);
    t->persistent = p->persistent;
    t->generation = p->generation;
    t->phase = p->phase;
    t->deferred = NULL;
}

bool join_has_deferred(const struct tensor *t, hvd_handle handle)
{
    const struct part *p = t->deferred;
    return p && (p->phase != PHASE_IDLE || p->persistent) &&
           p->generation == (uint32_t)(handle / (hvd_handle)SHM_SLOTS);
}

int join_wait_deferred(struct tensor *t)
{
    struct part *p = t->deferred;
    int status = HVD_SUCCESS;
    if (p->phase == PHASE_ENDED)
        status = p->operation.status;
    if (p->phase == PHASE_ENDED &&
        p->on_path) /* no other thread begins an operation of this name meanwhile */
        status = p->operation.path->result(t);
    if (p->phase == PHASE_ENDED && is_sized(&p->operation) && p->operation.sized.is_held)
        status = sized_hand_over(&p->operation, t->name, p->text, sizeof p->text);
    p->phase = PHASE_IDLE;
    if (p->on_path)
        return status; /* with its sentence */
    return status == HVD_SUCCESS ? status : fail(status, "%s", p->text);
}

void parts_drop(struct parts *all, size_t i)
{
    all->own -= all->part[i]->own;
    free(all->part[i]);
    all->part[i] = all->part[--all->number];
}

void join_hear(struct tensor *t, enum point point, uint64_t since)
{
    (void)since;
    if (point != POINT_ENDED)
        return;
    atomic_store(&t->is_over, true);
    if (doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox);
}

bool part_lock(struct tensor *t)
{
    lookers_lock();
    bool locked = pthread_mutex_trylock(&t->lock) == 0;
    if (!locked && atomic_load(&t->is_over))
        locked = pthread_mutex_lock(&t->lock) == 0;
    if (!locked)
        lookers_unlock();
    return locked;
}

void part_unlock(struct tensor *t)
{
    pthread_mutex_unlock(&t->lock);
    lookers_unlock();
}

/* Restores operations that were set aside as soon as the part on their name has ended. */
bool parts_progress(struct parts *all)
{
    bool moved = false;
    for (size_t i = all->number; i-- > 0;) {
        struct part *p = all->part[i];
        struct tensor *t = p->tensor;
        if (!part_lock(t))
            continue;
        bool ended = atomic_load(&t->stamp) != p->stamp || t->phase == PHASE_IDLE ||
                     t->phase == PHASE_ENDED || operation_progress(t);
        if (ended && !p->own)
            part_restore(p);
        part_unlock(t);
        if (ended)
            parts_drop(all, i);
        moved = moved || ended;
    }
    return moved;
}

/* The engine is gone: nothing that others have begun will end. */
void parts_abandon(struct parts *all)
{
    while (all->number > 0) {
        struct part *p = all->part[all->number - 1];
        if (!p->own) {
            pthread_mutex_lock(&p->tensor->lock);
            if (p->tensor->phase != PHASE_ENDED)
                operation_lose_engine(p->tensor);
            part_restore(p);
            pthread_mutex_unlock(&p->tensor->lock);
        }
        parts_drop(all, all->number - 1);
    }
}

void parts_free(struct parts *all)
{
    while (all->number > 0)
        parts_drop(all, all->number - 1);
    free(all->part);
}
