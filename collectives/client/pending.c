/* Asynchronous operations that were copied to shared memory: whoever starts the next one looks whether the
 * oldest of them have come to an end. Their results then leave shared memory while they are still in a cache,
 * and the next ones are copied to the same memory. Nothing depends on it: what does not end here ends in the
 * wait, and when there are too many, the rest is not looked at. */
#include "collectives/client/internal.h"

#define PENDING   256u /* a power of two */
#define AT_A_TIME 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held by who looks */
static struct tensor *pending[PENDING];
static uint32_t first, end;

void pending_add(struct tensor *t)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    if (end - first < PENDING)
        pending[end++ % PENDING] = t;
    pthread_mutex_unlock(&lock);
}

/* The oldest. false: it has not ended, and those behind it can wait. */
static bool look(struct tensor *t)
{
    bool ended = true; /* somebody waits for it: no business of ours */

    if (pthread_mutex_trylock(&t->lock) == 0) {
        ended = t->phase == PHASE_IDLE || t->phase == PHASE_ENDED || progress_locked(t);
        pthread_mutex_unlock(&t->lock);
    }
    return ended;
}

bool lock_unless_waited(struct tensor *t)
{
    bool locked = pthread_mutex_trylock(&t->lock) == 0;

    if (locked)
        return true;
    pthread_mutex_lock(&lock); /* then nobody only looks */
    locked = pthread_mutex_trylock(&t->lock) == 0;
    pthread_mutex_unlock(&lock);
    return locked;
}

void pending_look(void)
{
    pthread_mutex_lock(&lock);
}

void pending_looked(void)
{
    pthread_mutex_unlock(&lock);
}

void pending_progress(void)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    for (int i = 0; i < AT_A_TIME && first != end && look(pending[first % PENDING]); i++)
        first++;
    pthread_mutex_unlock(&lock);
}

void pending_forget(void)
{
    first = end = 0;
}
