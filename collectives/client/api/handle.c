/* Persistent handles: name, checks and staging once, then only start and wait.
 *
 * A persistent handle is its tensor's between hvd_allreduce_init and hvd_handle_free: inactive (PHASE_IDLE)
 * or started. Other ranks need not know: they may call the same operation by its name. */
#include "collectives/client/api/join.h"

#include <sched.h>

#include "collectives/client/names.h"
#include "collectives/client/request.h"

int hvd_allreduce_init(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                       const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = request_make(&r, SHM_ALLREDUCE, count, dtype, op, options);
    r.in = in;
    r.out = out;
    r.capacity = tensor_all_bytes(&r.op);
    if (!status && !handle)
        status = fail(HVD_ERR_INVALID, "the place for the handle is NULL");
    if (handle)
        *handle = 0;
    struct tensor *t;
    status = status ? request_name_tensor(name, status) : request_begin(name, &r, &t);
    if (status)
        return status;
    if (t->phase != PHASE_IDLE || t->persistent) {
        status = fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": %s", name,
                      t->persistent ? "a persistent handle has this name already"
                                    : "an operation of this name is pending");
    } else {
        t->generation++;
        status = operation_prepare(t, &r, false);
        if (status == HVD_SUCCESS) {
            t->persistent = true;
            *handle = tensor_handle(t);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* lock_handle: another thread holds the tensor (wait false); the tensor is locked, but the handle's operation
 * has ended and hvd_join has set it aside. */
enum { HANDLE_HELD = 1, HANDLE_DEFERRED = 2 };

#define DO_NOT_WAIT 0 /* as a time: another thread that waits or submits is not waited for */

static bool lock_by(pthread_mutex_t *lock, uint64_t until)
{
#ifdef __SANITIZE_THREAD__ /* gcc 12's does not see that pthread_mutex_clocklock locks */
    while (pthread_mutex_trylock(lock) != 0)
        if (clock_now() >= until || sched_yield() != 0)
            return false;
    return true;
#else
    struct timespec at = {(time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC)};

    return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &at) == 0;
#endif
}

/* A thread of the library may hold the lock until its operation has ended: that of hvd_join_async. */
static bool lock_until(pthread_mutex_t *lock, uint64_t until)
{
    if (until == DO_NOT_WAIT)
        return lock_unless_waited(lock);
    if (until == WAIT_FOREVER)
        return pthread_mutex_lock(lock) == 0;
    return lock_by(lock, until);
}

/* The tensor, locked, of a handle that is pending or persistent. */
static int lock_handle(hvd_handle handle, uint64_t until, struct tensor **found)
{
    int status = client_check();
    if (status)
        return status;
    struct tensor *t = tensor_by_handle(handle);
    if (t)
        tensor_prefetch_next(t);
    if (t && !lock_until(&t->lock, until))
        t = NULL, status = HANDLE_HELD; /* another thread waits for it */
    if (t && (t->phase != PHASE_IDLE || t->persistent) &&
        t->generation == (uint32_t)(handle / (hvd_handle)SHM_SLOTS)) {
        *found = t;
        return HVD_SUCCESS;
    }
    if (t && join_has_deferred(t, handle)) {
        *found = t;
        return HANDLE_DEFERRED;
    }
    if (t)
        pthread_mutex_unlock(&t->lock);
    return status ? status
                  : fail(HVD_ERR_INVALID, "handle %lld names no pending operation", (long long)handle);
}

int hvd_poll(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_handle(handle, DO_NOT_WAIT, &t);
    if (status) {
        if (status == HANDLE_DEFERRED)
            pthread_mutex_unlock(&t->lock);
        return status > 0 ? status == HANDLE_DEFERRED : status;
    }
    rank_link_drain();
    bool ended = t->phase == PHASE_ENDED || t->phase == PHASE_IDLE || operation_step(t);
    if (!ended && engine_has_stopped_polling(&t->polls) && !operation_step(t))
        operation_lose_engine(t);
    ended = t->phase == PHASE_ENDED || t->phase == PHASE_IDLE;
    pthread_mutex_unlock(&t->lock);
    if (!ended)
        (void)pending_move_left();
    return ended;
}

static int wait_for_handle(hvd_handle handle, uint64_t until)
{
    struct tensor *t;
    int status = lock_handle(handle, until, &t);
    if (status) {
        if (status == HANDLE_DEFERRED) {
            status = join_wait_deferred(t);
            pthread_mutex_unlock(&t->lock);
        }
        return status == HANDLE_HELD ? HVD_ERR_TIMEOUT : status;
    }
    if (t->phase != PHASE_IDLE) /* a persistent one that was not started */
        status = operation_wait_until(t, until);
    pthread_mutex_unlock(&t->lock);
    return status;
}

int hvd_wait(hvd_handle handle)
{
    return wait_for_handle(handle, WAIT_FOREVER);
}

int hvd_wait_for(hvd_handle handle, unsigned milliseconds)
{
    int status = wait_for_handle(handle, clock_now() + milliseconds * NSEC_PER_MSEC);

    return status == HVD_ERR_TIMEOUT
               ? fail(status, "handle %lld is pending after %u ms", (long long)handle, milliseconds)
               : status;
}

/* The tensor, locked, of a persistent handle that is not started. */
static int lock_inactive(hvd_handle handle, struct tensor **t)
{
    int status = client_may_begin();
    if (status == HVD_SUCCESS)
        status = lock_handle(handle, DO_NOT_WAIT, t);

    if (status < 0)
        return status;
    if (status == HVD_SUCCESS && (*t)->persistent && (*t)->phase == PHASE_IDLE)
        return HVD_SUCCESS;
    bool persistent = status > 0 || (*t)->persistent;
    if (status != HANDLE_HELD)
        pthread_mutex_unlock(&(*t)->lock);
    return persistent
               ? fail(HVD_ERR_IN_PROGRESS, "handle %lld was started and not waited for", (long long)handle)
               : fail(HVD_ERR_INVALID, "handle %lld is not persistent", (long long)handle);
}

int hvd_start(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_inactive(handle, &t);
    if (status)
        return status;
    status = operation_start(t, false);
    pthread_mutex_unlock(&t->lock);
    return status;
}

int hvd_handle_free(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_inactive(handle, &t);
    if (status)
        return status;
    t->persistent = false;
    operation_release(t);
    pthread_mutex_unlock(&t->lock);
    return HVD_SUCCESS;
}
