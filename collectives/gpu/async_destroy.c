/* Owner and thread hold the same memory; whoever leaves last frees it. */
#include "collectives/gpu/async_destroy.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/process/quiet_thread.h"

struct ending {
    const struct driver *d;
    cu_context context;
    nccl_result (*call)(nccl_comm);
    nccl_comm comm;
    cu_pointer memory;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    int holders;
};

/* Those that have a thread. */
static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned running;
} all = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void init_all(void)
{
    init_condition(&all.ended);
}

static void count_running(int by)
{
    pthread_once(&all.once, init_all);
    pthread_mutex_lock(&all.lock);
    all.running += (unsigned)by;
    if (all.running == 0)
        pthread_cond_broadcast(&all.ended);
    pthread_mutex_unlock(&all.lock);
}

static struct timespec time_after(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

static void let_go(struct ending *x)
{
    pthread_mutex_lock(&x->lock);
    int left = --x->holders;
    pthread_mutex_unlock(&x->lock);
    if (left > 0)
        return;
    pthread_cond_destroy(&x->ended);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static void end_communicator(const struct ending *x)
{
    x->call(x->comm);
    if (x->memory)
        x->d->cuMemFree(x->memory);
}

static void *run_ending(void *argument)
{
    struct ending *x = argument;
    x->d->cuCtxSetCurrent(x->context);
    driver_capture_mode(x->d, CU_CAPTURE_MODE_RELAXED);
    end_communicator(x);
    pthread_mutex_lock(&x->lock);
    x->done = true;
    pthread_cond_signal(&x->ended);
    pthread_mutex_unlock(&x->lock);
    let_go(x);
    count_running(-1);
    return NULL;
}

struct ending *ending_begin(const struct driver *d, cu_context context, nccl_result (*call)(nccl_comm),
                            nccl_comm comm, cu_pointer memory)
{
    const struct ending what = {
        .d = d, .context = context, .call = call, .comm = comm, .memory = memory, .holders = 2};
    struct ending *x = calloc(1, sizeof *x);
    if (x) {
        *x = what;
        pthread_mutex_init(&x->lock, NULL);
        init_condition(&x->ended);
        count_running(1);
        if (quiet_thread_start(run_ending, x) == 0)
            return x;
        count_running(-1);
        x->holders = 1;
        let_go(x);
    }
    d->cuCtxPushCurrent(context);
    end_communicator(&what);
    cu_context before;
    d->cuCtxPopCurrent(&before);
    return NULL;
}

bool ending_wait(struct ending *x, int patience_ms)
{
    struct timespec until = time_after(patience_ms);
    if (!x)
        return true;
    pthread_mutex_lock(&x->lock);
    while (!x->done && patience_ms > 0)
        if (pthread_cond_timedwait(&x->ended, &x->lock, &until) == ETIMEDOUT)
            break;
    bool done = x->done;
    pthread_mutex_unlock(&x->lock);
    return done;
}

bool endings_wait(int patience_ms)
{
    struct timespec until = time_after(patience_ms);
    pthread_once(&all.once, init_all);
    pthread_mutex_lock(&all.lock);
    while (all.running > 0)
        if (pthread_cond_timedwait(&all.ended, &all.lock, &until) == ETIMEDOUT)
            break;
    bool none = all.running == 0;
    pthread_mutex_unlock(&all.lock);
    return none;
}

void ending_leave(struct ending *x)
{
    if (x)
        let_go(x);
}
