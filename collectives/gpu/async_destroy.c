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

static void end(const struct ending *x)
{
    x->call(x->comm);
    if (x->memory)
        x->d->cuMemFree(x->memory);
}

static void *run(void *argument)
{
    struct ending *x = argument;
    x->d->cuCtxSetCurrent(x->context);
    driver_capture_mode(x->d, CU_CAPTURE_MODE_RELAXED);
    end(x);
    pthread_mutex_lock(&x->lock);
    x->done = true;
    pthread_cond_signal(&x->ended);
    pthread_mutex_unlock(&x->lock);
    let_go(x);
    return NULL;
}

struct ending *ending_begin(const struct driver *d, cu_context context, nccl_result (*call)(nccl_comm),
                            nccl_comm comm, cu_pointer memory)
{
    cu_context before;
    const struct ending what = {
        .d = d, .context = context, .call = call, .comm = comm, .memory = memory, .holders = 2};
    struct ending *x = calloc(1, sizeof *x);
    if (x) {
        pthread_condattr_t monotonic;
        *x = what;
        pthread_mutex_init(&x->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&x->ended, &monotonic);
        pthread_condattr_destroy(&monotonic);
        if (quiet_thread_start(run, x) == 0)
            return x;
        x->holders = 1;
        let_go(x);
    }
    d->cuCtxPushCurrent(context);
    end(&what);
    d->cuCtxPopCurrent(&before);
    return NULL;
}

bool ending_wait(struct ending *x, int patience_ms)
{
    struct timespec until;
    if (!x)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += patience_ms / 1000;
    until.tv_nsec += (long)(patience_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&x->lock);
    while (!x->done && patience_ms > 0)
        if (pthread_cond_timedwait(&x->ended, &x->lock, &until) == ETIMEDOUT)
            break;
    bool done = x->done;
    pthread_mutex_unlock(&x->lock);
    return done;
}

void ending_leave(struct ending *x)
{
    if (x)
        let_go(x);
}
