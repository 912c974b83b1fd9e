/* Asynchronous operations that were copied to shared memory. A thread that starts the next operation looks
 * whether the oldest of them have ended. Their results then leave shared memory while they are still in a
 * cache, and the next operations reuse that memory. Nothing depends on this: an operation that does not end
 * here ends in its wait, and with too many operations the rest is not looked at. */
#include "collectives/client/operation.h"

#define PENDING   256u /* a power of two */
#define AT_A_TIME 4

static struct tensor *pending[PENDING]; /* under the lookers' lock */
static uint32_t first, end;

void pending_add(struct tensor *t)
{
    if (!lookers_trylock())
        return;
    if (end - first < PENDING)
        pending[end++ % PENDING] = t;
    lookers_unlock();
}

/* The oldest. false: it has not ended, and those behind it can wait. */
static bool look_at(struct tensor *t)
{
    bool ended = true; /* another thread waits for it, and will see its end */
    if (pthread_mutex_trylock(&t->lock) == 0) {
        ended = t->phase == PHASE_IDLE || t->phase == PHASE_ENDED || operation_progress(t);
        pthread_mutex_unlock(&t->lock);
    }
    return ended;
}

void pending_progress(void)
{
    if (!lookers_trylock())
        return;
    for (int i = 0; i < AT_A_TIME && first != end && look_at(pending[first % PENDING]); i++)
        first++;
    lookers_unlock();
}

void pending_forget(void)
{
    first = end = 0;
}
