/* Asynchronous operations that were copied to shared memory. A thread that starts the next operation looks
 * whether the oldest of them have ended. Their results then leave shared memory while they are still in a
 * cache, and the next operations reuse that memory. Nothing depends on this: an operation that does not end
 * here ends in its wait, and with too many operations the rest is not looked at.
 *
 * An operation may need this rank to the end: its elements go piece by piece, or from rank to rank. Other
 * ranks wait for it, and between hosts all later operations do. Its wait here may have timed out, or was not
 * begun. Then a thread that waits for something else gives that operation its turns. */
#include "collectives/client/operation.h"

#define PENDING   256u /* a power of two */
#define AT_A_TIME 4
#define LEFT_MS   10 /* a wait looks so often after operations that nobody waits for */

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

/* ---- operations that nobody waits for ------------------------------------------------------------------ */

static struct tensor *left; /* the newest first; under left_lock */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool some_are_left;

void pending_leave(struct tensor *t)
{
    pthread_mutex_lock(&left_lock);
    if (!t->is_left) {
        t->is_left = true;
        t->next_left = left;
        left = t;
        atomic_store(&some_are_left, true);
    }
    pthread_mutex_unlock(&left_lock);
}

/* true: nothing is left to do for it here. */
static bool move_one(struct tensor *t, bool *moved)
{
    if (pthread_mutex_trylock(&t->lock) != 0)
        return false;
    enum phase before = t->phase;
    uint32_t gave = t->view.stream.gave, mine = t->view.mine, taken = t->view.stream.taken;
    bool over = before == PHASE_IDLE || before == PHASE_ENDED || operation_step(t);
    *moved = *moved || t->phase != before || t->view.stream.gave != gave || t->view.mine != mine ||
             t->view.stream.taken != taken;
    pthread_mutex_unlock(&t->lock);
    return over;
}

static bool are_some_left(void)
{
    return atomic_load_explicit(&some_are_left, memory_order_relaxed);
}

static void take_back(struct tensor *t)
{
    struct tensor **at = &left;
    pthread_mutex_lock(&left_lock);
    while (*at && *at != t)
        at = &(*at)->next_left;
    if (*at) {
        *at = t->next_left;
        t->is_left = false;
    }
    atomic_store(&some_are_left, left != NULL);
    pthread_mutex_unlock(&left_lock);
}

void pending_take_back(struct tensor *t)
{
    if (__builtin_expect(are_some_left(), 0))
        take_back(t);
}

unsigned pending_slice_ms(void)
{
    return are_some_left() ? LEFT_MS : ENGINE_SLICE_MS;
}

bool pending_move_left(void)
{
    bool moved = false;
    if (!are_some_left() || !lookers_trylock())
        return false;
    pthread_mutex_lock(&left_lock);
    for (struct tensor **at = &left; *at;) {
        struct tensor *t = *at;
        if (!move_one(t, &moved)) {
            at = &t->next_left;
            continue;
        }
        *at = t->next_left;
        t->is_left = false;
    }
    atomic_store(&some_are_left, left != NULL);
    pthread_mutex_unlock(&left_lock);
    lookers_unlock();
    return moved;
}

void pending_forget(void)
{
    first = end = 0;
    left = NULL;
    atomic_store(&some_are_left, false);
}
